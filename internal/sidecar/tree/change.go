package tree

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Changing changes a tree. What is new is made beside it, in a folder of its own in the tree's root, and takes its place
// by renaming; what has to go is renamed into there first when it is more than one file. A reader sees each file whole, as it was or as it is.
// Its methods must not be called concurrently.
type Changing struct {
	t       *Tree
	uid     int
	durable bool
	name    string
	aside   *Dir
	next    int

	waiting []*Incoming         // durable: complete, and not yet in place
	weight  int64               // their bytes
	removes bool                // what was new before is on disk
	touched map[string]struct{} // folders whose names changed
	modes   map[string]uint32   // of folders, set at the end: a folder may take away the right to change it
}

const (
	// Of files that wait to be synced together.
	groupFiles = 4096
	groupBytes = 64 << 20
	// syncEach is how many are synced one by one. More of them take longer than all that the file system has.
	syncEach = 16
)

// Change begins to change the tree. uid is the owner of all that is made; 0 leaves it to this process. durable: what Finish
// has returned from is on disk.
func (t *Tree) Change(uid int, durable bool) (*Changing, error) {
	if uid == os.Geteuid() {
		uid = 0
	}
	c := &Changing{t: t, uid: uid, durable: durable, name: Aside + rand.Text()[:12], touched: map[string]struct{}{}, modes: map[string]uint32{}}
	if err := unix.Mkdirat(t.root.fd(), c.name, 0o700); err != nil {
		return nil, t.root.fail("mkdir", c.name, err)
	}
	var err error
	if c.aside, err = t.root.Dir(c.name); err != nil {
		return nil, err
	}
	return c, nil
}

// Sweep takes away what others left that were changing the tree when they ended.
func (t *Tree) Sweep(ctx context.Context) error {
	return t.root.each(func(name string) error {
		if len(name) <= len(Aside) || name[:len(Aside)] != Aside {
			return nil
		}
		return t.root.removeAll(ctx, name)
	})
}

// Incoming is the content of a file on its way into the tree.
type Incoming struct {
	f    *os.File
	name string // in aside
	h    hash.Hash
	size int64
	to   Entry
}

// New makes a file without a name in the tree.
func (c *Changing) New() (*Incoming, error) {
	name := c.spare()
	f, err := c.aside.create(name)
	if err != nil {
		return nil, err
	}
	return &Incoming{f: f, name: name, h: sha256.New()}, nil
}

func (c *Changing) spare() string {
	c.next++
	return strconv.Itoa(c.next)
}

// Write appends to it.
func (in *Incoming) Write(p []byte) (int, error) {
	n, err := in.f.Write(p)
	in.h.Write(p[:n])
	in.size += int64(n)
	return n, err
}

// Size is how much was written.
func (in *Incoming) Size() int64 { return in.size }

// Digest is that of what was written.
func (in *Incoming) Digest() Digest { return Digest(in.h.Sum(nil)) }

// Drop discards it.
func (c *Changing) Drop(in *Incoming) {
	_ = in.f.Close()
	_ = unix.Unlinkat(c.aside.fd(), in.name, 0)
}

// File moves an incoming file to its place, with the mode and time of e. In any case it is the Changing's from then on.
func (c *Changing) File(in *Incoming, e Entry) error {
	in.to = e
	err := c.setAttributes(in.f, e)
	if err != nil {
		c.Drop(in)
		return err
	}
	if !c.durable {
		return c.settle(in)
	}
	if err := in.f.Close(); err != nil {
		c.Drop(in)
		return err
	}
	c.waiting = append(c.waiting, in)
	if c.weight += in.size; len(c.waiting) >= groupFiles || c.weight >= groupBytes {
		return c.flush()
	}
	return nil
}

// setAttributes sets a new file's owner, mode and time.
func (c *Changing) setAttributes(f *os.File, e Entry) error {
	if c.uid != 0 {
		if err := f.Chown(c.uid, c.uid); err != nil {
			return err
		}
	}
	if err := f.Chmod(fs.FileMode(e.Mode)); err != nil {
		return err
	}
	return setMtime(f, e.Mtime)
}

func setMtime(f *os.File, mtime int64) error {
	ts := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(mtime)}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), ts, 0); err != nil {
		return &fs.PathError{Op: "utimes", Path: f.Name(), Err: err}
	}
	return nil
}

// flush puts the waiting files into place, when all of them are on disk.
func (c *Changing) flush() error {
	waiting := c.waiting
	c.waiting, c.weight = nil, 0
	err := c.sync(len(waiting), func(i int) (*os.File, error) { return c.aside.Open(waiting[i].name) })
	for _, in := range waiting {
		if err != nil {
			c.Drop(in)
			continue
		}
		err = c.settle(in)
	}
	return err
}

// sync makes n files or folders durable.
func (c *Changing) sync(n int, open func(i int) (*os.File, error)) error {
	if n > syncEach {
		if err := unix.Syncfs(c.t.root.fd()); err != nil {
			return c.t.root.fail("sync", ".", err)
		}
		return nil
	}
	for i := range n {
		f, err := open(i)
		if gone(err) {
			continue
		}
		if err != nil {
			return err
		}
		err = f.Sync()
		if e := f.Close(); err == nil {
			err = e
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// settle closes an incoming file and renames it to its place.
func (c *Changing) settle(in *Incoming) error {
	err := in.f.Close()
	if err == nil || errors.Is(err, fs.ErrClosed) {
		err = c.place(in.name, in.to.Path)
	}
	if err != nil {
		c.Drop(in)
	}
	return err
}

// place moves what is aside to a path. What cannot be replaced by renaming makes room first.
func (c *Changing) place(name, path string) error {
	dir, err := c.t.cur.at(Parent(path))
	if err != nil {
		return err
	}
	c.touched[Parent(path)] = struct{}{}
	base := Base(path)
	err = unix.Renameat(c.aside.fd(), name, dir.fd(), base)
	for range 3 { // hostile code may put things there again
		if err == nil || !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.ENOTEMPTY) {
			break
		}
		if e := c.putAside(dir, base); e != nil {
			return e
		}
		err = unix.Renameat(c.aside.fd(), name, dir.fd(), base)
	}
	if err != nil {
		return dir.fail("rename", path, err)
	}
	return nil
}

// putAside takes a name out of a folder in one step, whatever it is.
func (c *Changing) putAside(dir *Dir, base string) error {
	err := unix.Renameat(dir.fd(), base, c.aside.fd(), c.spare())
	if errors.Is(err, unix.EACCES) {
		// A folder that its owner may not write cannot be moved to another one: its ".." changes.
		if _, e := dir.unlock(base, 0o700); e == nil {
			err = unix.Renameat(dir.fd(), base, c.aside.fd(), c.spare())
		}
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return dir.fail("remove", base, err)
	}
	return nil
}

// Folder makes a folder, and takes away what is none in its place. An existing folder keeps what is in it. Its mode
// is set by Finish.
func (c *Changing) Folder(e Entry) error {
	dir, err := c.t.cur.at(Parent(e.Path))
	if err != nil {
		return err
	}
	base := Base(e.Path)
	c.modes[e.Path] = e.Mode
	now, _, err := dir.Stat(base)
	if err == nil && now.Kind == Folder {
		return nil
	}
	name := c.spare()
	if err := unix.Mkdirat(c.aside.fd(), name, 0o700); err != nil {
		return c.aside.fail("mkdir", e.Path, err)
	}
	if err := c.own(c.aside, name); err != nil {
		return err
	}
	c.touched[e.Path] = struct{}{}
	return c.place(name, e.Path)
}

func (c *Changing) own(dir *Dir, name string) error {
	if c.uid == 0 {
		return nil
	}
	if err := unix.Fchownat(dir.fd(), name, c.uid, c.uid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return dir.fail("chown", name, err)
	}
	return nil
}

// Link makes a symbolic link in place of whatever is there.
func (c *Changing) Link(e Entry) error {
	name := c.spare()
	if err := unix.Symlinkat(e.Target, c.aside.fd(), name); err != nil {
		return c.aside.fail("symlink", e.Path, err)
	}
	if err := c.own(c.aside, name); err != nil {
		return err
	}
	return c.place(name, e.Path)
}

// SetAttributes sets mode and time of a file that is there and has the right content, or the mode of a folder.
func (c *Changing) SetAttributes(e Entry) error {
	if e.Kind == Folder {
		c.modes[e.Path] = e.Mode
		return nil
	}
	if e.Kind != File {
		return nil
	}
	dir, err := c.t.cur.at(Parent(e.Path))
	if err != nil {
		return err
	}
	f, err := dir.Open(Base(e.Path))
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // nothing was written
	if err := f.Chmod(fs.FileMode(e.Mode)); err != nil {
		return err
	}
	if err := setMtime(f, e.Mtime); err != nil {
		return err
	}
	if c.durable {
		return f.Sync()
	}
	return nil
}

// before makes what is new safe before the first thing goes: it may be the same under another name.
func (c *Changing) before() error {
	if c.removes {
		return nil
	}
	c.removes = true
	if err := c.flush(); err != nil || !c.durable {
		return err
	}
	return c.syncFolders()
}

// Remove takes away a file, a link, or a folder with nothing in it. A folder with content stays: it is not what was listed.
// Nothing is added behind it.
func (c *Changing) Remove(e Entry) error {
	if err := c.before(); err != nil {
		return err
	}
	dir, err := c.t.cur.at(Parent(e.Path))
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	flags := 0
	if e.Kind == Folder {
		flags = unix.AT_REMOVEDIR
	}
	err = unix.Unlinkat(dir.fd(), Base(e.Path), flags)
	switch {
	case err == nil:
		c.touched[Parent(e.Path)] = struct{}{}
		delete(c.touched, e.Path)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EISDIR):
	default:
		return dir.fail("remove", e.Path, err)
	}
	return nil
}

// RemoveAll takes away whatever has a path, in one step.
func (c *Changing) RemoveAll(path string) error {
	if err := c.before(); err != nil {
		return err
	}
	dir, err := c.t.cur.at(Parent(path))
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	c.touched[Parent(path)] = struct{}{}
	return c.putAside(dir, Base(path))
}

// Finish ends it: all is in place, and on disk if it was to be durable.
func (c *Changing) Finish(ctx context.Context) error {
	err := c.finish()
	c.Abort(ctx)
	return err
}

func (c *Changing) finish() error {
	if err := c.flush(); err != nil {
		return err
	}
	for p := range c.modes {
		c.touched[p] = struct{}{}
	}
	paths := slices.SortedFunc(maps.Keys(c.modes), func(a, b string) int { return Compare(b, a) }) // the deepest first
	for _, p := range paths {
		if err := c.setMode(p, c.modes[p]); err != nil && !gone(err) {
			return err
		}
	}
	if !c.durable {
		return nil
	}
	return c.syncFolders()
}

func (c *Changing) setMode(path string, mode uint32) error {
	dir, err := c.t.cur.at(path)
	if err != nil {
		return err
	}
	if dir.opened >= 0 {
		dir.opened = int(mode)
	}
	return dir.f.Chmod(fs.FileMode(mode))
}

func (c *Changing) syncFolders() error {
	paths := slices.SortedFunc(maps.Keys(c.touched), Compare)
	err := c.sync(len(paths), func(i int) (*os.File, error) {
		dir, err := c.t.cur.at(paths[i])
		if err != nil {
			return nil, err
		}
		fd, err := openat(dir.fd(), ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return nil, dir.fail("open", paths[i], err)
		}
		return os.NewFile(uintptr(fd), paths[i]), nil
	})
	if err == nil {
		clear(c.touched)
	}
	return err
}

// sweepTime bounds the removal of what was put aside, when the caller's time is up.
const sweepTime = 10 * time.Second

// Abort ends it as it is. What is left aside is taken away, now or by the next Sweep.
func (c *Changing) Abort(ctx context.Context) {
	for _, in := range c.waiting {
		c.Drop(in)
	}
	c.waiting = nil
	c.t.cur.cut(0)
	c.aside.Close()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sweepTime)
	defer cancel()
	_ = c.t.root.removeAll(ctx, c.name) // what cannot be removed now is removed by the next Sweep
}
