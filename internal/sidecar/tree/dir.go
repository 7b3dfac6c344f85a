package tree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Dir is an open folder. Every method takes one name in it and follows no link.
type Dir struct {
	f *os.File
	// opened is the mode that it had before it was made readable; Close sets it again. -1: it was readable.
	opened int
}

// OpenDir opens the root of a tree. Its path is the configuration's, and is followed as any other.
func OpenDir(path string) (*Dir, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return &Dir{f: f, opened: -1}, nil
}

// Close closes it. It may be called again.
func (d *Dir) Close() {
	if d.opened >= 0 {
		_ = d.f.Chmod(fs.FileMode(d.opened)) // of a folder that is gone by now, it does not matter
		d.opened = -1
	}
	_ = d.f.Close()
}

func (d *Dir) fd() int { return int(d.f.Fd()) }

func (d *Dir) fail(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// openat retries what a signal interrupted.
func openat(dir int, name string, flags int, mode uint32) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags|unix.O_CLOEXEC, mode)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// Dir opens a folder in it. A folder that its owner, this process, cannot read is made readable until it is closed.
func (d *Dir) Dir(name string) (*Dir, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_NONBLOCK
	fd, err := openat(d.fd(), name, flags, 0)
	mode := -1
	if errors.Is(err, unix.EACCES) {
		if mode, err = d.unlock(name, 0o700); err == nil {
			fd, err = openat(d.fd(), name, flags, 0)
		}
	}
	if err != nil {
		return nil, d.fail("open", name, err)
	}
	sub := &Dir{f: os.NewFile(uintptr(fd), name), opened: mode}
	if mode < 0 && os.Geteuid() != 0 {
		// It can be listed; what is in it can be reached only when it can be searched.
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err == nil && int(st.Uid) == os.Geteuid() && st.Mode&0o100 == 0 {
			if sub.f.Chmod(fs.FileMode(st.Mode&0o777|0o700)) == nil {
				sub.opened = int(st.Mode & 0o777)
			}
		}
	}
	return sub, nil
}

// unlock adds permissions to what belongs to this process, and returns the former ones.
func (d *Dir) unlock(name string, add uint32) (had int, err error) {
	fd, err := openat(d.fd(), name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return -1, err
	}
	if kind := st.Mode & unix.S_IFMT; int(st.Uid) != os.Geteuid() || kind != unix.S_IFREG && kind != unix.S_IFDIR {
		return -1, unix.EACCES
	}
	// The descriptor names the inode, whatever has the name by now.
	if err := os.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), fs.FileMode(st.Mode&0o777|add)); err != nil {
		return -1, err
	}
	return int(st.Mode & 0o777), nil
}

// Open opens a regular file for reading, also a file that its owner, this process, cannot read. What is none is as good as
// not there: fs.ErrNotExist.
func (d *Dir) Open(name string) (*os.File, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	const flags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY
	fd, err := openat(d.fd(), name, flags, 0)
	mode := -1
	if errors.Is(err, unix.EACCES) {
		if mode, err = d.unlock(name, 0o400); err == nil {
			fd, err = openat(d.fd(), name, flags, 0)
		}
	}
	if errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ELOOP) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, d.fail("open", name, err)
	}
	if mode >= 0 {
		_ = unix.Fchmod(fd, uint32(mode))
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = fs.ErrNotExist
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, d.fail("open", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Stat tells what a name is. ok is false for what trees do not have; the error is fs.ErrNotExist for nothing.
func (d *Dir) Stat(name string) (e Entry, ok bool, err error) {
	if err := checkName(name); err != nil {
		return Entry{}, false, err
	}
	var st unix.Stat_t
	if err := unix.Fstatat(d.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return Entry{}, false, d.fail("stat", name, err)
	}
	e = entryOf(&st)
	if e.Kind == Link {
		buf := make([]byte, maxTarget+1)
		n, err := unix.Readlinkat(d.fd(), name, buf)
		if err != nil {
			return Entry{}, false, d.fail("readlink", name, err)
		}
		if e.Target = string(buf[:n]); n == 0 || n > maxTarget {
			return Entry{}, false, nil
		}
	}
	return e, e.Kind != 0, nil
}

func entryOf(st *unix.Stat_t) Entry {
	e := Entry{Mode: st.Mode & 0o777, Stamp: stampOf(st)}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		e.Kind, e.Size, e.Mtime = File, st.Size, e.Stamp.Mtime
	case unix.S_IFDIR:
		e.Kind = Folder
	case unix.S_IFLNK:
		e.Kind, e.Mode = Link, 0
	}
	return e
}

func stampOf(st *unix.Stat_t) Stamp {
	return Stamp{Dev: st.Dev, Ino: st.Ino, Size: st.Size, Mtime: st.Mtim.Nano(), Ctime: st.Ctim.Nano()}
}

// StampOf returns the stamp of an open file.
func StampOf(f *os.File) (Stamp, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return Stamp{}, &fs.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	return stampOf(&st), nil
}

// names lists it, in no order. ErrTooMuch when there are more than limit.
func (d *Dir) names(limit int) ([]string, error) {
	fd, err := openat(d.fd(), ".", unix.O_RDONLY|unix.O_DIRECTORY, 0) // with an offset of its own
	if err != nil {
		return nil, d.fail("open", ".", err)
	}
	f := os.NewFile(uintptr(fd), ".")
	defer f.Close() //nolint:errcheck // it was read
	var all []string
	for {
		some, err := f.Readdirnames(1024)
		if all = append(all, some...); len(all) > limit {
			return nil, tooMany(limit)
		}
		if err != nil || len(some) == 0 {
			return all, nil // a folder that is removed meanwhile is empty
		}
	}
}

// create makes a file that was not there.
func (d *Dir) create(name string) (*os.File, error) {
	fd, err := openat(d.fd(), name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, d.fail("create", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// RemoveFolder takes away the folder of a path, with all that is in it, whatever the modes of its own folders. A folder that is
// empty may stay where the one above has another owner. Nothing there is no error.
func RemoveFolder(ctx context.Context, path string) error {
	parent, err := OpenDir(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer parent.Close()
	dir, err := parent.Dir(filepath.Base(path))
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := dir.empty(ctx); err != nil {
		return err
	}
	err = unix.Unlinkat(parent.fd(), filepath.Base(path), unix.AT_REMOVEDIR)
	if err == nil || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return nil
	}
	return parent.fail("remove", filepath.Base(path), err)
}

// removeAll takes away whatever has a name, with all that is in it.
func (d *Dir) removeAll(ctx context.Context, name string) error {
	err := unix.Unlinkat(d.fd(), name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
		return d.fail("remove", name, err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	sub, err := d.Dir(name)
	if err != nil {
		return err
	}
	defer sub.Close()
	sub.opened = -1        // it goes away
	_ = sub.f.Chmod(0o700) // code may have made it read-only; one of another owner says so below
	if err := sub.empty(ctx); err != nil {
		return err
	}
	if err := unix.Unlinkat(d.fd(), name, unix.AT_REMOVEDIR); err != nil && !errors.Is(err, unix.ENOENT) {
		return d.fail("remove", name, err)
	}
	return nil
}

// empty takes away what is in it, as its names are read.
func (d *Dir) empty(ctx context.Context) error {
	return d.each(func(name string) error { return d.removeAll(ctx, name) })
}

// each calls do with each name in it, of which it holds few.
func (d *Dir) each(do func(name string) error) error {
	fd, err := openat(d.fd(), ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return d.fail("open", ".", err)
	}
	f := os.NewFile(uintptr(fd), ".")
	defer f.Close() //nolint:errcheck // it was read
	for {
		some, err := f.Readdirnames(1024)
		for _, n := range some {
			if err := do(n); err != nil {
				return err
			}
		}
		if err != nil || len(some) == 0 {
			return nil // a folder that is removed meanwhile is empty
		}
	}
}

// cursor opens the folders of paths one after the other, and keeps those open that the next path has, too.
type cursor struct {
	root  *Dir
	names []string
	dirs  []*Dir
}

// at returns the folder with a path. It is the cursor's, and open until the next call.
func (c *cursor) at(path string) (*Dir, error) {
	depth := 0
	for rest := path; rest != ""; depth++ {
		name := rest
		if i := indexSlash(rest); i >= 0 {
			name, rest = rest[:i], rest[i+1:]
		} else {
			rest = ""
		}
		if depth < len(c.names) && c.names[depth] == name {
			continue
		}
		c.cut(depth)
		sub, err := c.top().Dir(name)
		if err != nil {
			return nil, err
		}
		c.names, c.dirs = append(c.names, name), append(c.dirs, sub)
	}
	c.cut(depth)
	return c.top(), nil
}

func (c *cursor) top() *Dir {
	if len(c.dirs) == 0 {
		return c.root
	}
	return c.dirs[len(c.dirs)-1]
}

func (c *cursor) cut(depth int) {
	for len(c.dirs) > depth {
		c.dirs[len(c.dirs)-1].Close()
		c.names, c.dirs = c.names[:len(c.names)-1], c.dirs[:len(c.dirs)-1]
	}
}

func indexSlash(s string) int {
	for i := range len(s) {
		if s[i] == '/' {
			return i
		}
	}
	return -1
}
