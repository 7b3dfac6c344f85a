package tree

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Tree is one tree, opened for a while by one caller. Its methods must not be called concurrently.
type Tree struct {
	root *Dir
	only []string
	cur  cursor
}

// Open opens a tree. only, if not nil, are the names in its root that count.
func Open(path string, only []string) (*Tree, error) {
	d, err := OpenDir(path)
	if err != nil {
		return nil, err
	}
	return &Tree{root: d, only: only, cur: cursor{root: d}}, nil
}

// Close closes it.
func (t *Tree) Close() {
	t.cur.cut(0)
	t.root.Close()
}

// Counts says whether a path is of the tree at all.
func (t *Tree) Counts(path string) bool {
	top, _, _ := strings.Cut(path, "/")
	return !strings.HasPrefix(top, Aside) && (t.only == nil || slices.Contains(t.only, top))
}

// List walks what is at a path and below it; all of the tree for "". What is not there is an empty list. What changes
// meanwhile is in it as it was at some moment, or not. ErrTooMuch: it is beyond the limits.
func (t *Tree) List(ctx context.Context, path string, limits Limits) (List, error) {
	w := walk{ctx: ctx, count: Counter{Limits: limits}, now: time.Now()}
	if path == "" {
		names, err := w.read(t.root)
		if err != nil {
			return nil, err
		}
		err = w.all(t.root, "", slices.DeleteFunc(names, func(n string) bool { return !t.Counts(n) }), 1)
		return w.list, err
	}
	if err := CheckPath(path); err != nil {
		return nil, err
	}
	if !t.Counts(path) {
		return nil, nil
	}
	dir, err := t.cur.at(Parent(path))
	if err == nil {
		err = w.one(dir, Parent(path), Base(path), 1+strings.Count(path, "/"))
	}
	if gone(err) {
		return nil, nil
	}
	return w.list, err
}

// gone says that a name, or a folder on the way to it, is not there, or not any more what it was.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

type walk struct {
	ctx   context.Context
	count Counter
	now   time.Time
	list  List
	names int // that were visited, or that the folders on the way hold, whatever they are
}

func (w *walk) all(d *Dir, path string, names []string, depth int) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		if err := w.one(d, path, name, depth); err != nil && !gone(err) {
			return err
		}
	}
	return nil
}

func (w *walk) one(d *Dir, path, name string, depth int) error {
	e, ok, err := d.Stat(name)
	if err != nil || !ok {
		return err
	}
	e.Path = name
	if path != "" {
		e.Path = path + "/" + name
	}
	if depth > maxDepth || len(e.Path) > maxPath {
		return fmt.Errorf("%w: %.100q… is deeper than %d folders or longer than %d bytes", ErrTooMuch, e.Path, maxDepth, maxPath)
	}
	if e.Kind != Folder {
		e.Racy = e.Kind == File && e.Stamp.RacyAt(w.now)
		if err := w.count.Add(e); err != nil {
			return err
		}
		w.list = append(w.list, e)
		return nil
	}
	sub, err := d.Dir(name)
	if errors.Is(err, fs.ErrPermission) {
		return nil // it has another owner, as lost+found has
	}
	if err != nil {
		return err
	}
	defer sub.Close()
	if err := w.count.Add(e); err != nil {
		return err
	}
	w.list = append(w.list, e)
	names, err := w.read(sub)
	if err != nil {
		return err
	}
	return w.all(sub, e.Path, names, depth+1)
}

// read lists a folder, no more names than are left of the limit: each level could hold as many.
func (w *walk) read(d *Dir) ([]string, error) {
	names, err := d.names(w.count.Entries - w.names)
	if errors.Is(err, ErrTooMuch) {
		return nil, tooMany(w.count.Entries)
	}
	w.names += len(names)
	return names, err
}

// Stat tells what is at a path. ok is false when there is nothing that a tree has.
func (t *Tree) Stat(path string) (e Entry, ok bool, err error) {
	if err := CheckPath(path); err != nil {
		return e, false, err
	}
	dir, err := t.cur.at(Parent(path))
	if err == nil {
		e, ok, err = dir.Stat(Base(path))
	}
	if gone(err) {
		return Entry{}, false, nil
	}
	e.Path = path
	return e, ok, err
}

// OpenFile opens a regular file of the tree for reading. fs.ErrNotExist: there is none.
func (t *Tree) OpenFile(path string) (*os.File, error) {
	if err := CheckPath(path); err != nil {
		return nil, err
	}
	dir, err := t.cur.at(Parent(path))
	if err == nil {
		var f *os.File
		if f, err = dir.Open(Base(path)); err == nil {
			return f, nil
		}
	}
	if gone(err) {
		return nil, fmt.Errorf("%.200q: %w", path, fs.ErrNotExist)
	}
	return nil, err
}

// Digest reads a file and returns its digest, and the stamp for which it holds; ok is false when it changed meanwhile.
func (t *Tree) Digest(ctx context.Context, path string, limit int64) (d Digest, s Stamp, ok bool, err error) {
	f, err := t.OpenFile(path)
	if err != nil {
		return d, s, false, err
	}
	defer f.Close() //nolint:errcheck // it was read
	before, err := StampOf(f)
	if err != nil {
		return d, s, false, err
	}
	h := sha256.New()
	if _, err := io.Copy(h, &bound{ctx: ctx, r: io.LimitReader(f, limit)}); err != nil {
		return d, s, false, err
	}
	after, err := StampOf(f)
	if err != nil {
		return d, s, false, err
	}
	return Digest(h.Sum(nil)), after, before == after, nil
}

// bound ends a long read with its context.
type bound struct {
	ctx context.Context
	r   io.Reader
}

func (b *bound) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	return b.r.Read(p)
}

// Digests remembers digests by stamps. It is safe for concurrent use.
type Digests struct {
	Max int // how many, at least; 0: 100,000

	mu    sync.Mutex
	known map[Stamp]Digest
	old   map[Stamp]Digest
}

// maxDigests are kept of each of two generations.
const maxDigests = 100_000

func (d *Digests) most() int {
	if d.Max > 0 {
		return d.Max
	}
	return maxDigests
}

// Get looks one up.
func (d *Digests) Get(s Stamp) (Digest, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if got, ok := d.known[s]; ok {
		return got, true
	}
	got, ok := d.old[s]
	if ok {
		d.put(s, got)
	}
	return got, ok
}

// Put remembers one. The stamp must not have been racy when the file was read.
func (d *Digests) Put(s Stamp, digest Digest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.put(s, digest)
}

func (d *Digests) put(s Stamp, digest Digest) {
	if len(d.known) >= d.most() {
		d.old, d.known = d.known, nil
	}
	if d.known == nil {
		d.known = map[Stamp]Digest{}
	}
	d.known[s] = digest
}

// Fill sets the digest of each file of a list: what is remembered costs nothing, other files are read. A file that
// changes while it is read is read again, and is left without a digest when it does not stop; a file that went, or that may
// not be read, has none either.
func (d *Digests) Fill(ctx context.Context, t *Tree, list List, limit int64) error {
	for i := range list {
		if list[i].Kind != File || list[i].Digest.Known() {
			continue
		}
		if err := d.fillOne(ctx, t, &list[i], limit); err != nil {
			return err
		}
	}
	return nil
}

const readTries = 3

func (d *Digests) fillOne(ctx context.Context, t *Tree, e *Entry, limit int64) error {
	if got, ok := d.Get(e.Stamp); ok && !e.Racy {
		e.Digest = got
		return nil
	}
	for range readTries {
		now := time.Now()
		got, stamp, ok, err := t.Digest(ctx, e.Path, limit)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			return nil
		}
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		e.Digest, e.Stamp, e.Size, e.Mtime, e.Racy = got, stamp, stamp.Size, stamp.Mtime, stamp.RacyAt(now)
		if !e.Racy {
			d.Put(stamp, got)
		}
		return nil
	}
	return nil
}

// StatFile tells what an open file is.
func StatFile(f *os.File) (Entry, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return Entry{}, &fs.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	e := entryOf(&st)
	e.Racy = e.Stamp.RacyAt(time.Now())
	return e, nil
}

// NewHash makes what Digests are of.
func NewHash() hash.Hash { return sha256.New() }
