package snapshot

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Restored is what a thread is to be from now on.
type Restored struct {
	// Fill makes workspace, uploads and outputs in a folder that is empty, with all that is in them, owned by uid. They
	// are durable when it returns. An error leaves a part of them. nil: the thread was deleted.
	Fill func(ctx context.Context, dir string, uid int) error
	// About is what Save was told.
	About []byte
}

// restoreTries bounds how often a head that moves is read again.
const restoreTries = 3

// Restore makes sure that a thread's folder is what was kept last, or is to be kept next. When something else is kept,
// replace is called, which puts a folder that Restored.Fill filled in the place of what is there, as a whole. Nothing that
// is kept is no error, and leaves what is there. own: something is to run in the thread, so that this data folder goes on
// with it, and no other one can. Without own, a thread that is on this disk may be as it was lookAgain ago.
func (s *Snapshots) Restore(ctx context.Context, t sandbox.Thread, dir string, own bool, replace func(Restored) error) error {
	if have, err := onDisk(dir); err != nil || have && !own && (looks{s}).justLooked(t) {
		return err
	}
	unlock, err := indexes{s}.lock(ctx, t)
	if err != nil {
		return err
	}
	defer unlock()
	for range restoreTries {
		if err = s.restoreOnce(ctx, t, dir, own, replace); !errors.Is(err, errAgain) {
			break
		}
	}
	if errors.Is(err, errAgain) {
		err = sandbox.Errorf(sandbox.Conflict, "other servers go on with the thread at the same time; try again")
	}
	if err == nil {
		looks{s}.lookedAt(t)
	}
	return err
}

func (s *Snapshots) restoreOnce(ctx context.Context, t sandbox.Thread, dir string, own bool, replace func(Restored) error) error {
	have, err := onDisk(dir) // another call may have made it
	if err != nil {
		return err
	}
	idx, err := indexes{s}.readBrief(ctx, t)
	if err != nil {
		return err
	}
	h, version, err := s.head(ctx, t)
	if err != nil {
		if have && !own && idx != nil && idx.Head.Holder == s.o.Holder {
			return nil // what this server wrote last is read from its disk
		}
		return err
	}
	switch {
	case h == nil:
		return nil
	case h.Deleted:
		if idx == nil { // and what is here is another thread of its name
			return nil
		}
		if have { // what is here was kept, and then another server deleted it
			if err := replace(Restored{}); err != nil {
				return err
			}
		}
		return indexes{s}.dropIndex(t)
	case have && indexes{s}.vouches(t, idx, h): // this disk has that, or more
	default:
		if err := s.restore(ctx, t, h, version, replace); err != nil {
			return err
		}
	}
	if !own || h.Holder == s.o.Holder {
		return nil
	}
	return s.claim(ctx, t, h, version)
}

// claim makes this data folder the thread's.
func (s *Snapshots) claim(ctx context.Context, t sandbox.Thread, h *head, version string) error {
	h.Holder = s.o.Holder
	version, err := s.writeHead(ctx, t, h, version)
	if errors.Is(err, sandbox.Conflict) {
		return errAgain
	}
	if err != nil {
		return err
	}
	large := s.largeThread(ctx)
	defer large.done()
	if err := (indexes{s}).waitIfLarge(large, t); err != nil {
		return err
	}
	idx := indexes{s}.readIndex(t)
	if idx == nil {
		return nil
	}
	claimed := *idx
	claimed.Version, claimed.Head.Holder = version, h.Holder
	return indexes{s}.writeIndex(t, &claimed)
}

// restore has the thread's folder replaced by what is kept.
func (s *Snapshots) restore(ctx context.Context, t sandbox.Thread, h *head, version string, replace func(Restored) error) (err error) {
	began := time.Now()
	var idx *index
	err = replace(Restored{About: h.About, Fill: func(ctx context.Context, dir string, uid int) (err error) {
		idx, err = s.fill(ctx, t, h, version, dir, uid)
		return err
	}})
	if err == nil && idx != nil { // not before the folder is in its place: until then the former one is there
		err = indexes{s}.writeIndex(t, idx)
	}
	if s.o.Meter != nil {
		s.o.Meter.Restored(err, time.Since(began))
	}
	if err == nil {
		return nil
	}
	if !errors.Is(err, sandbox.NotFound) {
		return err
	}
	// A pack is gone. That is right when what is kept is something else by now.
	now, _, e := s.head(ctx, t)
	if e == nil && now != nil && now.ID != h.ID {
		return errAgain
	}
	return sandbox.Wrap(sandbox.Unavailable, err, "a part of what is kept of the thread is missing: %v; nothing was restored", err)
}

// entries reads the list of files of a snapshot. have holds packs that were read, and gets the packs that
// entries reads; nil: none are kept.
func (s *Snapshots) entries(ctx context.Context, t sandbox.Thread, h *head, have map[string][]byte) ([]entry, error) {
	r := newReader(h.Packs)
	var pack []byte
	id := ""
	for _, c := range h.Tree {
		if id != c.Pack {
			var err error
			if data, ok := have[c.Pack]; ok {
				pack = data
			} else if pack, err = s.readPack(ctx, t, h, c.Pack); err != nil {
				return nil, err
			}
			id = c.Pack
			if have != nil && len(have) < sendParallel {
				have[id] = pack
			}
		}
		text, err := c.cut(pack)
		if err == nil {
			err = r.read(text)
		}
		if err != nil {
			return nil, broken(s.o.Objects.Name(), packName(t, c.Pack), err)
		}
	}
	if len(r.entries) != h.Files || r.bytes != h.Bytes {
		return nil, broken(s.o.Objects.Name(), headName(t), fmt.Errorf("it says %d files and folders with %d bytes, and lists %d with %d", h.Files, h.Bytes, len(r.entries), r.bytes))
	}
	return r.entries, nil
}

// spot is where a chunk goes.
type spot struct {
	path name
	at   int64
	c    chunk
}

// fill makes the files of a snapshot in a folder, and returns what is known of them.
func (s *Snapshots) fill(ctx context.Context, t sandbox.Thread, h *head, version, dir string, uid int) (*index, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "the thread's files cannot be restored")
	}
	defer root.Close() //nolint:errcheck // what was written is synced
	large := s.largeThread(ctx)
	defer large.done()
	if h.Files >= manyEntries || h.listBytes() >= manyBytes {
		if err := large.wait(); err != nil {
			return nil, err
		}
	}
	have := map[string][]byte{}
	entries, err := s.entries(ctx, t, h, have)
	if err != nil {
		return nil, err
	}
	spots, err := lay(ctx, root, entries)
	if err != nil {
		return nil, unwritable(err)
	}
	if err := s.pour(ctx, t, h, root, spots, have); err != nil {
		return nil, err
	}
	if err := setAttributes(ctx, root, entries, uid); err != nil {
		return nil, unwritable(err)
	}
	if err := syncTree(dir); err != nil {
		return nil, unwritable(err)
	}
	found, err := scan(ctx, root, math.MaxInt, func() error { return nil })
	if err != nil {
		return nil, err
	}
	idx := &index{Version: version, Head: *h, About: sumOf(h.About), Entries: found}
	for i := range found {
		if i >= len(entries) || !alike(found[i], seen{Entry: entries[i]}) {
			return nil, sandbox.Errorf(sandbox.Internal, "%.200q is not what was restored", string(found[i].Entry.Path))
		}
		// Nothing can have changed it since, and what does so now changes its time.
		found[i].Entry, found[i].Racy = entries[i], false
	}
	if len(found) != len(entries) {
		return nil, sandbox.Errorf(sandbox.Internal, "not all files were restored")
	}
	return idx, nil
}

func unwritable(err error) error {
	var known *sandbox.Error
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return sandbox.Wrap(sandbox.Timeout, err, "restoring the thread's files took too long")
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EFBIG):
		return sandbox.Wrap(sandbox.QuotaExceeded, err, "there is no room for the thread's files")
	}
	return sandbox.Wrap(sandbox.Internal, err, "the thread's files cannot be restored")
}

// lay makes folders and empty files, and says what goes where, by pack.
func lay(ctx context.Context, root *os.Root, entries []entry) (map[string][]spot, error) {
	spots := map[string][]spot{}
	for i := range entries {
		e := &entries[i]
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		switch e.Kind {
		case kindFolder:
			if err := root.Mkdir(string(e.Path), 0o700); err != nil {
				return nil, err
			}
		case kindFile:
			file, err := root.OpenFile(string(e.Path), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if err != nil {
				return nil, err
			}
			if e.Bytes > 0 {
				err = file.Truncate(e.Bytes)
			}
			if err := errors.Join(err, file.Close()); err != nil {
				return nil, err
			}
			at := int64(0)
			for _, c := range e.Chunks {
				if c.Pack != "" {
					spots[c.Pack] = append(spots[c.Pack], spot{e.Path, at, c})
				}
				at += c.Bytes
			}
		}
	}
	return spots, nil
}

// pour writes the content of files, pack by pack.
func (s *Snapshots) pour(ctx context.Context, t sandbox.Thread, h *head, root *os.Root, spots map[string][]spot, have map[string][]byte) error {
	g, each := errgroup.WithContext(ctx)
	g.SetLimit(sendParallel)
	var mu sync.Mutex // of have
	for id, list := range spots {
		g.Go(func() error {
			select {
			case s.room <- struct{}{}:
			case <-each.Done():
				return unwritable(each.Err())
			}
			defer func() { <-s.room }()
			mu.Lock()
			pack, ok := have[id]
			delete(have, id)
			mu.Unlock()
			if !ok {
				var err error
				if pack, err = s.readPack(each, t, h, id); err != nil {
					return err
				}
			}
			for _, p := range list {
				if err := each.Err(); err != nil {
					return unwritable(err)
				}
				data, err := p.c.cut(pack)
				if err != nil {
					return broken(s.o.Objects.Name(), packName(t, id), err)
				}
				if err := write(root, p, data); err != nil {
					return unwritable(err)
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// blockBytes is what zeros are left out by, so that a file with holes has them again.
const blockBytes = 4096

// write puts a chunk into its file, but for blocks of zeros, which are there already.
func write(root *os.Root, p spot, data []byte) error {
	file, err := root.OpenFile(string(p.path), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	for at := 0; at < len(data); {
		end := at
		for end < len(data) && !zeroBlock(data, end) {
			end = min(end+blockBytes, len(data))
		}
		if end > at {
			if _, err := file.WriteAt(data[at:end], p.at+int64(at)); err != nil {
				return errors.Join(err, file.Close())
			}
		}
		at = min(end+blockBytes, len(data))
		if end == len(data) {
			break
		}
	}
	return file.Close()
}

func zeroBlock(data []byte, at int) bool {
	block := data[at:min(at+blockBytes, len(data))]
	return string(block) == string(zeros[:len(block)])
}

// setAttributes makes links, and sets the owner, mode and time of everything: folders last, because what is made in them changes
// theirs.
func setAttributes(ctx context.Context, root *os.Root, entries []entry, uid int) error {
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	top := int(dir.Fd()) // os.Root cannot set the time of a link; no folder of this tree is one
	for _, e := range entries {
		path := string(e.Path)
		if err := ctx.Err(); err != nil {
			return err
		}
		var err error
		switch e.Kind {
		case kindFile:
			err = finish(root, e, uid)
		case kindLink:
			if err = root.Symlink(string(e.Target), path); err == nil {
				err = root.Lchown(path, uid, uid)
			}
			if err == nil {
				at := unix.NsecToTimespec(e.Time)
				err = unix.UtimesNanoAt(top, path, []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW)
			}
		case kindHard:
			err = root.Link(string(e.Target), path)
		}
		if err != nil {
			return err
		}
	}
	for _, e := range slices.Backward(entries) {
		if e.Kind != kindFolder {
			continue
		}
		if err := finish(root, e, uid); err != nil {
			return err
		}
	}
	return nil
}

func finish(root *os.Root, e entry, uid int) error {
	path := string(e.Path)
	if err := root.Lchown(path, uid, uid); err != nil {
		return err
	}
	if err := root.Chmod(path, modeOf(e.Mode)); err != nil {
		return err
	}
	at := time.Unix(0, e.Time)
	return root.Chtimes(path, at, at)
}

func modeOf(bits uint32) os.FileMode {
	mode := os.FileMode(bits & 0o777)
	if bits&unix.S_ISVTX != 0 {
		mode |= os.ModeSticky
	}
	return mode
}

// syncTree makes all that was written to the file system of a folder durable.
func syncTree(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return unix.Syncfs(int(d.Fd()))
}

// Forget deletes what is kept of a thread. Its head goes first, and then what remove takes away, so that nothing is left to
// be restored, and nothing to be kept; then its packs, which are tried again by AllForgotten when the store fails.
// A mark of the head stays, so that the folder that another server may have is not taken for the thread.
func (s *Snapshots) Forget(ctx context.Context, t sandbox.Thread, remove func() error) error {
	unlock, err := indexes{s}.lock(ctx, t)
	if err != nil {
		return err
	}
	defer unlock()
	if err := s.markDeleted(ctx, t); err != nil {
		return err
	}
	if err := remove(); err != nil {
		return err
	}
	if err := (indexes{s}).dropIndex(t); err != nil {
		return err
	}
	_ = os.Remove(looks{s}.pendingFile(t)) // a thread that is not there is not kept
	looks{s}.forgetLook(t)
	if err := s.sweep(ctx, t, &index{}, time.Now().Add(time.Hour)); err != nil {
		s.o.Log.Warn("not all objects of a deleted thread are removed; tried again", "thread", t.String(), "error", err)
		return s.MarkPending(t)
	}
	_ = os.Remove(indexes{s}.state(t)) // when it is empty
	return nil
}

// markDeleted replaces the head by a mark; of a thread of which nothing was kept there is none.
func (s *Snapshots) markDeleted(ctx context.Context, t sandbox.Thread) error {
	for range saveTries {
		h, version, err := s.head(ctx, t)
		if err != nil || h == nil || h.Deleted {
			return err
		}
		mark := &head{Format: format, ID: h.ID, Holder: s.o.Holder, Written: time.Now().UTC(), Deleted: true}
		if _, err = s.writeHead(ctx, t, mark, version); !errors.Is(err, sandbox.Conflict) {
			return err
		}
	}
	return sandbox.Errorf(sandbox.Conflict, "another server goes on with the thread; try again")
}

// Sweep removes the packs of a thread that is marked as deleted.
func (s *Snapshots) Sweep(ctx context.Context, t sandbox.Thread) error {
	unlock, err := indexes{s}.lock(ctx, t)
	if err != nil {
		return err
	}
	defer unlock()
	h, _, err := s.head(ctx, t)
	if err != nil {
		return err
	}
	if h != nil && h.Deleted {
		if err := s.sweep(ctx, t, &index{}, time.Now().Add(time.Hour)); err != nil {
			return err
		}
	}
	_ = os.Remove(looks{s}.pendingFile(t)) // else it is swept once more
	_ = os.Remove(filepath.Clean(indexes{s}.state(t)))
	return nil
}
