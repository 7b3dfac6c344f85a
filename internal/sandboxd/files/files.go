// Package files reads and changes files inside a sandbox for callers whose host cannot see them.
// Paths are absolute. They must lie in one of the roots that the FS was made with; os.Root keeps
// links from leading out of it. In a sandbox the one root is "/", and the kernel says what its user may do. Only regular files are read and written, and nothing blocks on a
// FIFO.
package files

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Errors besides those of package fs. Every error of an FS wraps one of these, or an error of the
// operating system.
var (
	ErrOutside    = errors.New("the path lies outside of the folders that may be used")
	ErrReadOnly   = errors.New("the folder is read-only")
	ErrNotRegular = errors.New("not a regular file")
	ErrNotDir     = errors.New("not a folder")
)

const (
	maxPath  = 4096
	maxDepth = 64
	// maxParents is how many folders are made for a path, with those that code makes or removes meanwhile.
	maxParents = 128
	maxNames   = 100_000 // of one folder
	tempName   = ".skerry-new-"
)

// Root is a folder that may be used.
type Root struct {
	Path     string // absolute and clean
	Writable bool
	// Without are folders in it that may not be used. Only "/" has some: links in it are followed wherever they lead, as
	// for the programs beside sandboxd, and what they lead to is held against these.
	Without []string
}

// FS is the view of the files. Its methods may be called concurrently.
type FS struct{ roots []Root }

// New makes an FS. Roots that do not exist (yet) are as good as others.
func New(roots []Root) *FS {
	sorted := slices.Clone(roots)
	sort.Slice(sorted, func(i, j int) bool { return len(sorted[i].Path) > len(sorted[j].Path) })
	return &FS{roots: sorted}
}

// Roots lists the folders that may be used.
func (f *FS) Roots() []string {
	list := make([]string, len(f.roots))
	for i, r := range f.roots {
		list[i] = r.Path
	}
	sort.Strings(list)
	return list
}

// Info describes a file or folder.
type Info struct {
	Path     string
	IsDir    bool
	Bytes    int64
	Mode     fs.FileMode
	Modified time.Time
	Symlink  string // where a link points to, as it is written in it
}

// place is a path in an open root. Of the root "/" it is a name in the folder that was opened for it: what code swaps
// meanwhile is not followed out of that folder.
type place struct {
	root    *os.Root
	rel     string
	path    string
	real    string   // without links, in the root "/"
	without []string // Root.Without
}

func (p *place) close() { _ = p.root.Close() }

// open opens a place to read, or to write.
func (f *FS) open(name string, write bool) (*place, error) { return f.openIn(name, write, false) }

// openNew is open for a path whose parents are made.
func (f *FS) openNew(name string) (*place, error) {
	p, err := f.openIn(name, true, true)
	if err != nil || p.rel == "." {
		return p, err
	}
	if err := p.root.MkdirAll(filepath.Dir(p.rel), 0o755); err != nil {
		p.close()
		return nil, p.fail(err)
	}
	return p, nil
}

func (f *FS) openIn(name string, write, parents bool) (*place, error) {
	if len(name) > maxPath || !path.IsAbs(name) || strings.ContainsRune(name, 0) {
		return nil, fmt.Errorf("%.200q: %w", name, ErrOutside)
	}
	name = path.Clean(name)
	for _, r := range f.roots {
		rel, err := filepath.Rel(r.Path, name)
		if err != nil || !filepath.IsLocal(rel) {
			continue
		}
		if write && !r.Writable {
			return nil, fmt.Errorf("%.200q: %w", name, ErrReadOnly)
		}
		if r.Path == "/" {
			return openBelow(name, parents, r.Without)
		}
		root, err := os.OpenRoot(r.Path)
		if err != nil {
			return nil, fmt.Errorf("%.200q: %w", name, cause(err))
		}
		return &place{root: root, rel: rel, path: name}, nil
	}
	return nil, fmt.Errorf("%.200q: %w", name, ErrOutside)
}

// openBelow opens the folder of a path of the root "/". Links on the way are followed, one at its end is not. parents: folders
// that are not there are made, one after the other.
func openBelow(name string, parents bool, without []string) (*place, error) {
	for range maxParents {
		dir, rest := resolve(name)
		if within(filepath.Join(dir, rest), without) {
			return nil, fmt.Errorf("%.200q: %w", name, ErrOutside)
		}
		first, _, deeper := strings.Cut(rest, "/")
		if deeper && !parents {
			_, err := os.Lstat(name)
			return nil, fmt.Errorf("%.200q: %w", name, cause(cmp.Or(err, fs.ErrNotExist)))
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			return nil, fmt.Errorf("%.200q: %w", name, cause(err))
		}
		p := &place{root: root, rel: first, path: name, without: without}
		// Code may have put a link in the place of a folder meanwhile.
		at, err := p.folder()
		if err == nil && deeper {
			if err = root.Mkdir(first, 0o755); errors.Is(err, fs.ErrExist) {
				err = nil // also a link that leads nowhere: the loop ends
			}
		}
		if err == nil && !deeper {
			p.real = filepath.Join(at, rest)
			return p, nil
		}
		p.close()
		if err != nil {
			return nil, p.fail(err)
		}
	}
	return nil, fmt.Errorf("%.200q: %w", name, ErrNotDir)
}

// folder is the path of the open root, which is one that may be used.
func (p *place) folder() (string, error) {
	dir, err := p.root.Open(".")
	if err != nil {
		return "", err
	}
	defer dir.Close()
	return p.realOf(dir)
}

// realOf is the path of an open file as the kernel knows it. It is one that may be used.
func (p *place) realOf(file *os.File) (string, error) {
	at, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
	if err == nil && within(at, p.without) {
		err = ErrOutside
	}
	return at, err
}

// resolve follows the links on the way to a name, not one at its end: to the nearest folder that exists, and what is left.
func resolve(name string) (dir, rest string) {
	if name == "/" {
		return name, "."
	}
	rest = filepath.Base(name)
	for at := filepath.Dir(name); ; at, rest = filepath.Dir(at), filepath.Join(filepath.Base(at), rest) {
		if real, err := filepath.EvalSymlinks(at); err == nil || at == "/" {
			return cmp.Or(real, at), rest
		}
	}
}

// openFollowed is open for a name whose link at the end is followed, too.
func (f *FS) openFollowed(name string) (*place, error) {
	p, err := f.open(name, false)
	if err != nil || p.real == "" {
		return p, err
	}
	real, err := filepath.EvalSymlinks(p.path)
	if err != nil || real == p.real {
		return p, nil //nolint:nilerr // what is not there is said by who uses it
	}
	p.close()
	q, err := f.open(real, false)
	if err == nil {
		q.path = p.path
	}
	return q, err
}

func within(name string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") })
}

// cause strips the path that package os puts in front: it is relative to a root, and ours is not.
func cause(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	var le *os.LinkError
	if errors.As(err, &le) {
		return le.Err
	}
	return err
}

func (p *place) fail(err error) error { return fmt.Errorf("%.200q: %w", p.path, cause(err)) }

func (p *place) info(fi fs.FileInfo) Info {
	i := Info{Path: p.path, IsDir: fi.IsDir(), Bytes: fi.Size(), Mode: fi.Mode(), Modified: fi.ModTime()}
	if fi.Mode()&fs.ModeSymlink != 0 {
		i.Symlink, _ = p.root.Readlink(p.rel)
	}
	return i
}

// Stat describes what is at a path. A link is not followed.
func (f *FS) Stat(name string) (Info, error) {
	p, err := f.open(name, false)
	if err != nil {
		return Info{}, err
	}
	defer p.close()
	fi, err := p.root.Lstat(p.rel)
	if err != nil {
		return Info{}, p.fail(err)
	}
	return p.info(fi), nil
}

// List returns the entries of a folder, sorted by path, depth levels deep (at least one). Links are
// not followed. truncated: there are more than limit.
func (f *FS) List(name string, depth, limit int) (items []Info, truncated bool, err error) {
	p, err := f.openFollowed(name)
	if err != nil {
		return nil, false, err
	}
	defer p.close()
	l := lister{limit: limit, depth: min(max(depth, 1), maxDepth)}
	if err := l.walk(p, 1); err != nil {
		return nil, false, p.fail(err)
	}
	return l.items, l.truncated, nil
}

type lister struct {
	limit, depth int
	items        []Info
	truncated    bool
}

func (l *lister) walk(p *place, level int) error {
	dir, err := p.root.OpenFile(p.rel, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	// A folder of millions is not read to its end, and then its first entries are any.
	names, err := dir.Readdirnames(maxNames)
	_ = dir.Close()
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	sort.Strings(names)
	for _, name := range names {
		if len(l.items) >= l.limit {
			l.truncated = true
			return nil
		}
		c := &place{root: p.root, rel: filepath.Join(p.rel, name), path: path.Join(p.path, name), real: filepath.Join(p.real, name), without: p.without}
		fi, err := c.root.Lstat(c.rel)
		if err != nil {
			continue // gone meanwhile
		}
		l.items = append(l.items, c.info(fi))
		if fi.IsDir() && level < l.depth && !within(c.real, p.without) {
			_ = l.walk(c, level+1) // an unreadable folder is listed as empty
		}
	}
	return nil
}

// Open opens a regular file for reading. The caller closes it.
func (f *FS) Open(name string) (*os.File, error) {
	p, err := f.openFollowed(name)
	if err != nil {
		return nil, err
	}
	defer p.close()
	return p.regular(os.O_RDONLY, 0)
}

func (p *place) regular(flags int, mode fs.FileMode) (*os.File, error) {
	file, err := p.root.OpenFile(p.rel, flags|syscall.O_NONBLOCK, mode)
	if err != nil {
		return nil, p.fail(err)
	}
	fi, err := file.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = ErrNotRegular
	}
	if err == nil && p.real != "" { // a link that came meanwhile
		_, err = p.realOf(file)
	}
	if err != nil {
		_ = file.Close()
		return nil, p.fail(err)
	}
	return file, nil
}

// MakeDir makes a folder and its parents. It is no error when it is there.
func (f *FS) MakeDir(name string) (Info, error) {
	p, err := f.openNew(name)
	if err != nil {
		return Info{}, err
	}
	defer p.close()
	if err := p.root.MkdirAll(p.rel, 0o755); err != nil {
		return Info{}, p.fail(err)
	}
	fi, err := p.root.Stat(p.rel)
	if err != nil {
		return Info{}, p.fail(err)
	}
	if !fi.IsDir() {
		return Info{}, p.fail(ErrNotDir)
	}
	return p.info(fi), nil
}

// Move renames a file or folder within one root, making the parents of the target. It is fs.ErrExist
// when there is something at the target.
func (f *FS) Move(from, to string) (Info, error) {
	p, err := f.open(from, true)
	if err != nil {
		return Info{}, err
	}
	defer p.close()
	if _, err := p.root.Lstat(p.rel); err != nil {
		return Info{}, p.fail(err)
	}
	q, err := f.openNew(to)
	if err != nil {
		return Info{}, err
	}
	defer q.close()
	if p.real == "" && p.root.Name() != q.root.Name() {
		return Info{}, q.fail(syscall.EXDEV)
	}
	if _, err := q.root.Lstat(q.rel); err == nil {
		return Info{}, q.fail(fs.ErrExist)
	}
	if err := move(p, q); err != nil {
		return Info{}, p.fail(err)
	}
	fi, err := q.root.Lstat(q.rel)
	if err != nil {
		return Info{}, q.fail(err)
	}
	return q.info(fi), nil
}

// move renames between two folders. Both are open, so that no link is followed.
func move(p, q *place) error {
	from, err := p.root.Open(filepath.Dir(p.rel))
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := q.root.Open(filepath.Dir(q.rel))
	if err != nil {
		return err
	}
	defer to.Close()
	return unix.Renameat(int(from.Fd()), filepath.Base(p.rel), int(to.Fd()), filepath.Base(q.rel))
}

// Remove removes a file, a link or an empty folder; with recursive a folder with all in it. A root
// itself cannot be removed.
func (f *FS) Remove(name string, recursive bool) error {
	p, err := f.open(name, true)
	if err != nil {
		return err
	}
	defer p.close()
	if p.rel == "." {
		return p.fail(ErrReadOnly)
	}
	if _, err := p.root.Lstat(p.rel); err != nil {
		return p.fail(err)
	}
	if recursive {
		err = p.root.RemoveAll(p.rel)
	} else {
		err = p.root.Remove(p.rel)
	}
	if err != nil {
		return p.fail(err)
	}
	return nil
}

// Writer writes a file: see FS.Create.
type Writer struct {
	place *place
	file  *os.File
	temp  string // "" when it appends
}

// Create begins to write a file, making its parents. Without appendTo the file keeps what it has
// until Commit puts the new content in its place, in one step. One of Commit and Abort must be
// called.
func (f *FS) Create(name string, appendTo bool) (*Writer, error) {
	p, err := f.openNew(name)
	if err != nil {
		return nil, err
	}
	w := &Writer{place: p}
	if err := w.open(appendTo); err != nil {
		p.close()
		return nil, err
	}
	return w, nil
}

func (w *Writer) open(appendTo bool) error {
	p := w.place
	if p.rel == "." {
		return p.fail(ErrNotRegular)
	}
	var err error
	if appendTo {
		w.file, err = p.regular(os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
		return err
	}
	mode := fs.FileMode(0o644)
	if fi, err := p.root.Lstat(p.rel); err == nil {
		if !fi.Mode().IsRegular() {
			return p.fail(ErrNotRegular)
		}
		mode = fi.Mode().Perm()
	}
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	w.temp = filepath.Join(filepath.Dir(p.rel), tempName+hex.EncodeToString(random[:]))
	w.file, err = p.root.OpenFile(w.temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return p.fail(err)
	}
	return nil
}

// Write adds to the file.
func (w *Writer) Write(b []byte) (int, error) {
	n, err := w.file.Write(b)
	if err != nil {
		return n, w.place.fail(err)
	}
	return n, nil
}

// Commit makes the content that of the file.
func (w *Writer) Commit() (Info, error) {
	defer w.place.close()
	p := w.place
	fi, err := w.file.Stat()
	if err = errors.Join(err, w.file.Close()); err == nil && w.temp != "" {
		err = p.root.Rename(w.temp, p.rel)
	}
	if err != nil {
		w.drop()
		return Info{}, p.fail(err)
	}
	return p.info(fi), nil
}

// Abort removes the unfinished file. Appended bytes stay.
func (w *Writer) Abort() {
	defer w.place.close()
	_ = w.file.Close()
	w.drop()
}

func (w *Writer) drop() {
	if w.temp != "" {
		_ = w.place.root.Remove(w.temp)
	}
}
