package wasm

import (
	"errors"
	"io"
	"io/fs"
	"os"

	wasisys "github.com/tetratelabs/wazero/experimental/sys"
	"github.com/tetratelabs/wazero/sys"
	"golang.org/x/sys/unix"
)

// file is an open file or folder of a tree.
type file struct {
	tree   *tree
	name   string
	f      *os.File
	st     sys.Stat_t // as it was opened: device, inode and kind do not change
	append bool
}

// Dev implements wasisys.File.
func (f *file) Dev() (uint64, wasisys.Errno) { return f.st.Dev, 0 }

// Ino implements wasisys.File.
func (f *file) Ino() (sys.Inode, wasisys.Errno) { return f.st.Ino, 0 }

// IsDir implements wasisys.File.
func (f *file) IsDir() (bool, wasisys.Errno) { return f.st.Mode.IsDir(), 0 }

// IsAppend implements wasisys.File.
func (f *file) IsAppend() bool { return f.append }

// SetAppend implements wasisys.File.
func (f *file) SetAppend(enable bool) wasisys.Errno {
	flags, err := unix.FcntlInt(f.f.Fd(), unix.F_GETFL, 0)
	if err != nil {
		return errnoOf(err)
	}
	if flags &^= unix.O_APPEND; enable {
		flags |= unix.O_APPEND
	}
	if _, err := unix.FcntlInt(f.f.Fd(), unix.F_SETFL, flags); err != nil {
		return errnoOf(err)
	}
	f.append = enable
	return 0
}

// Stat implements wasisys.File.
func (f *file) Stat() (sys.Stat_t, wasisys.Errno) { return stat(f.f.Stat()) }

// Read implements wasisys.File.
func (f *file) Read(buf []byte) (int, wasisys.Errno) {
	if len(buf) == 0 {
		return 0, 0
	}
	n, err := f.f.Read(buf)
	return n, errnoOf(err)
}

// Pread implements wasisys.File.
func (f *file) Pread(buf []byte, off int64) (int, wasisys.Errno) {
	if off < 0 {
		return 0, wasisys.EINVAL
	}
	n, err := f.f.ReadAt(buf, off)
	return n, errnoOf(err)
}

// position is where a file is read. Under its own name, vet does not take the Seek of wazero for a wrong one of package io.
type position = int64

// Seek implements wasisys.File. Of a folder only the beginning can be sought.
func (f *file) Seek(offset position, whence int) (position, wasisys.Errno) {
	if whence < io.SeekStart || whence > io.SeekEnd || f.st.Mode.IsDir() && (offset != 0 || whence != io.SeekStart) {
		return 0, wasisys.EINVAL
	}
	n, err := f.f.Seek(offset, whence)
	return n, errnoOf(err)
}

// Readdir implements wasisys.File. It leaves inodes out, as the interface allows: they would take a call for each name.
func (f *file) Readdir(n int) ([]wasisys.Dirent, wasisys.Errno) {
	if !f.st.Mode.IsDir() {
		return nil, wasisys.EBADF
	}
	found, err := f.f.ReadDir(n)
	list := make([]wasisys.Dirent, 0, len(found))
	for _, e := range found {
		list = append(list, wasisys.Dirent{Name: e.Name(), Type: e.Type()})
	}
	if errors.Is(err, fs.ErrNotExist) { // deleted meanwhile: it is empty
		err = nil
	}
	return list, errnoOf(err)
}

// Write implements wasisys.File.
func (f *file) Write(buf []byte) (int, wasisys.Errno) {
	n, err := f.f.Write(buf)
	return n, errnoOf(err)
}

// Pwrite implements wasisys.File. WriteAt of package os refuses a file that appends.
func (f *file) Pwrite(buf []byte, off int64) (int, wasisys.Errno) {
	if off < 0 {
		return 0, wasisys.EINVAL
	}
	n, err := unix.Pwrite(int(f.f.Fd()), buf, off)
	return max(n, 0), errnoOf(err)
}

// Truncate implements wasisys.File.
func (f *file) Truncate(size int64) wasisys.Errno {
	if size < 0 {
		return wasisys.EINVAL
	}
	return errnoOf(f.f.Truncate(size))
}

// Sync implements wasisys.File.
func (f *file) Sync() wasisys.Errno { return errnoOf(f.f.Sync()) }

// Datasync implements wasisys.File.
func (f *file) Datasync() wasisys.Errno { return errnoOf(unix.Fdatasync(int(f.f.Fd()))) }

// Utimens implements wasisys.File.
func (f *file) Utimens(atim, mtim int64) wasisys.Errno { return f.tree.Utimens(f.name, atim, mtim) }

// Close implements wasisys.File.
func (f *file) Close() wasisys.Errno {
	if err := f.f.Close(); !errors.Is(err, fs.ErrClosed) {
		return errnoOf(err)
	}
	return 0
}
