package wasm

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"
	"time"

	wasisys "github.com/tetratelabs/wazero/experimental/sys"
	"github.com/tetratelabs/wazero/sys"
	"golang.org/x/sys/unix"
)

// tree is a folder as WASI sees it. No path leads out of it, also none by symlinks: wazero's own DirFS follows them.
type tree struct {
	wasisys.UnimplementedFS
	root     *os.Root
	readOnly bool
}

// change runs what changes the tree, where it may be changed. It follows no symlink at the end of a name.
func (t *tree) change(name string, do func(at string) error) wasisys.Errno {
	if t.readOnly {
		return wasisys.EROFS
	}
	at, errno := t.resolve(name, false)
	if errno != 0 {
		return errno
	}
	return errnoOf(do(at))
}

// errnoOf translates an error. What os.Root refuses has no number of the system.
func errnoOf(err error) wasisys.Errno {
	var errno syscall.Errno
	switch {
	case err == nil, errors.Is(err, io.EOF):
		return 0
	case errors.As(err, &errno):
		return wasisys.UnwrapOSError(errno)
	case errors.Is(err, fs.ErrClosed):
		return wasisys.EBADF
	case errors.Is(err, fs.ErrNotExist):
		return wasisys.ENOENT
	case errors.Is(err, fs.ErrExist):
		return wasisys.EEXIST
	case errors.Is(err, fs.ErrInvalid):
		return wasisys.EINVAL
	}
	return wasisys.EPERM
}

var openFlags = []struct {
	wasi wasisys.Oflag
	os   int
}{
	{wasisys.O_APPEND, os.O_APPEND}, {wasisys.O_CREAT, os.O_CREATE}, {wasisys.O_EXCL, os.O_EXCL}, {wasisys.O_TRUNC, os.O_TRUNC},
	{wasisys.O_DIRECTORY, unix.O_DIRECTORY}, {wasisys.O_NONBLOCK, unix.O_NONBLOCK},
	{wasisys.O_SYNC, unix.O_SYNC}, {wasisys.O_DSYNC, unix.O_DSYNC}, {wasisys.O_RSYNC, unix.O_RSYNC},
}

// OpenFile implements wasisys.FS.
func (t *tree) OpenFile(name string, flag wasisys.Oflag, perm fs.FileMode) (wasisys.File, wasisys.Errno) {
	mode := os.O_RDONLY
	switch {
	case flag&wasisys.O_RDWR != 0:
		mode = os.O_RDWR
	case flag&wasisys.O_WRONLY != 0:
		mode = os.O_WRONLY
	}
	if mode != os.O_RDONLY && flag&wasisys.O_DIRECTORY != 0 {
		return nil, wasisys.EISDIR
	}
	for _, f := range openFlags {
		if flag&f.wasi != 0 {
			mode |= f.os
		}
	}
	if t.readOnly && mode&^(unix.O_DIRECTORY|unix.O_NONBLOCK) != os.O_RDONLY {
		return nil, wasisys.EROFS
	}
	at, errno := t.resolve(name, flag&(wasisys.O_NOFOLLOW|wasisys.O_EXCL) == 0)
	if errno != 0 {
		return nil, errno
	}
	f, err := t.root.OpenFile(at, mode|unix.O_NOFOLLOW, perm)
	if err != nil {
		return nil, errnoOf(err)
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, errnoOf(err)
	}
	return &file{tree: t, name: at, f: f, st: sys.NewStat_t(info), append: flag&wasisys.O_APPEND != 0}, 0
}

// Lstat implements wasisys.FS.
func (t *tree) Lstat(name string) (sys.Stat_t, wasisys.Errno) { return t.stat(name, false) }

// Stat implements wasisys.FS.
func (t *tree) Stat(name string) (sys.Stat_t, wasisys.Errno) { return t.stat(name, true) }

func (t *tree) stat(name string, follow bool) (sys.Stat_t, wasisys.Errno) {
	at, errno := t.resolve(name, follow)
	if errno != 0 {
		return sys.Stat_t{}, errno
	}
	return stat(t.root.Lstat(at))
}

func stat(info fs.FileInfo, err error) (sys.Stat_t, wasisys.Errno) {
	if err != nil {
		return sys.Stat_t{}, errnoOf(err)
	}
	return sys.NewStat_t(info), 0
}

// Mkdir implements wasisys.FS.
func (t *tree) Mkdir(name string, perm fs.FileMode) wasisys.Errno {
	return t.change(name, func(at string) error { return t.root.Mkdir(at, perm) })
}

// Rename implements wasisys.FS.
func (t *tree) Rename(from, to string) wasisys.Errno { return t.both(from, to, t.root.Rename) }

// Link implements wasisys.FS.
func (t *tree) Link(from, to string) wasisys.Errno { return t.both(from, to, t.root.Link) }

func (t *tree) both(from, to string, do func(from, to string) error) wasisys.Errno {
	at, errno := t.resolve(from, false)
	if errno != 0 {
		return errno
	}
	return t.change(to, func(to string) error { return do(at, to) })
}

// Rmdir implements wasisys.FS.
func (t *tree) Rmdir(name string) wasisys.Errno { return t.remove(name, true) }

// Unlink implements wasisys.FS.
func (t *tree) Unlink(name string) wasisys.Errno { return t.remove(name, false) }

// remove tells files and folders apart first: os.Root removes either.
func (t *tree) remove(name string, dir bool) wasisys.Errno {
	return t.change(name, func(at string) error {
		info, err := t.root.Lstat(at)
		switch {
		case err != nil:
			return err
		case dir && !info.IsDir():
			return syscall.ENOTDIR
		case !dir && info.IsDir():
			return syscall.EISDIR
		}
		return t.root.Remove(at)
	})
}

// Symlink implements wasisys.FS. WASI has no absolute ones.
func (t *tree) Symlink(to, name string) wasisys.Errno {
	if path.IsAbs(to) {
		return wasisys.EPERM
	}
	return t.change(name, func(at string) error { return t.root.Symlink(to, at) })
}

// Readlink implements wasisys.FS.
func (t *tree) Readlink(name string) (string, wasisys.Errno) {
	at, errno := t.resolve(name, false)
	if errno != 0 {
		return "", errno
	}
	to, err := t.root.Readlink(at)
	return to, errnoOf(err)
}

// Utimens implements wasisys.FS.
func (t *tree) Utimens(name string, atim, mtim int64) wasisys.Errno {
	at, errno := t.resolve(name, true)
	if errno != 0 {
		return errno
	}
	return t.change(at, func(at string) error { return t.root.Chtimes(at, timeOf(atim), timeOf(mtim)) })
}

// timeOf returns the zero time, which changes nothing, for what is to stay.
func timeOf(nanos int64) time.Time {
	if nanos == wasisys.UTIME_OMIT {
		return time.Time{}
	}
	return time.Unix(0, nanos)
}
