package paths

import (
	"io/fs"
	"os"
	"syscall"
)

// File is a regular file that is open for reading.
type File struct {
	f    *os.File
	info fs.FileInfo
	path string
}

// Read reads as os.File does.
func (f *File) Read(p []byte) (int, error) { return f.f.Read(p) }

// ReadAt reads as os.File does.
func (f *File) ReadAt(p []byte, off int64) (int, error) { return f.f.ReadAt(p, off) }

// Seek seeks as os.File does.
func (f *File) Seek(off int64, whence int) (int64, error) { return f.f.Seek(off, whence) }

// Close releases the file.
func (f *File) Close() error { return f.f.Close() }

// Entry describes the file as it was when it was opened. Path has no symbolic links.
func (f *File) Entry() Entry { return entry(f.path, f.info) }

// ETag changes when the content does: see etag.
func (f *File) ETag() string { return etag(f.info) }

func entry(virtual string, info fs.FileInfo) Entry {
	return Entry{Path: virtual, IsDir: info.IsDir(), Bytes: entryBytes(info), Mode: modeText(info.Mode()), ModifiedAt: info.ModTime().UTC()}
}

// entryBytes is 0 for a folder: the size of a folder's own table says nothing to a caller.
func entryBytes(info fs.FileInfo) int64 {
	if info.IsDir() {
		return 0
	}
	return info.Size()
}

// Open opens a regular file for reading; the caller closes it. ErrIsDirectory for a folder, Invalid
// for a FIFO, device or socket. It never waits for another process.
func (f *FS) Open(name string) (*File, error) {
	p, err := f.space.resolve(name, how{follow: true})
	if err != nil {
		return nil, err
	}
	defer p.close()
	file, info, err := p.open(os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	return &File{f: file, info: info, path: p.virtual}, nil
}

// open opens the place when it is a regular file, and is still one afterwards.
func (p *place) open(flag int) (*os.File, fs.FileInfo, error) {
	switch {
	case p.isDir():
		return nil, nil, isDirectory(p.virtual)
	case p.info == nil:
		return nil, nil, notFound(p.virtual)
	case !p.info.Mode().IsRegular():
		return nil, nil, notRegular(p.virtual)
	}
	return openRegular(p.dir, p.base, p.virtual, flag)
}

func openRegular(dir *os.Root, name, virtual string, flag int) (*os.File, fs.FileInfo, error) {
	file, err := dir.OpenFile(name, flag|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, fail(err, virtual)
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = notRegular(virtual)
	}
	if err != nil {
		_ = file.Close()
		return nil, nil, fail(err, virtual)
	}
	return file, info, nil
}

// Stat describes a path. For a symbolic link whose target is inside, it is the target with Symlink
// set; for any other link, the link itself.
func (f *FS) Stat(name string) (Entry, error) {
	p, err := f.space.resolve(name, how{})
	if err != nil {
		return Entry{}, err
	}
	defer p.close()
	if p.info == nil {
		if !p.isDir() {
			return Entry{}, notFound(p.virtual)
		}
		return Entry{Path: p.virtual, IsDir: true, Mode: "0755"}, nil
	}
	e := f.space.describe(p.dir, p.base, p.virtual, p.info)
	if e.Symlink == "" {
		return e, nil
	}
	to, err := f.space.resolve(name, how{follow: true})
	if err != nil {
		return e, nil // it leads out: the link is all there is to tell
	}
	defer to.close()
	if to.info == nil {
		return e, nil // dangling
	}
	target := entry(p.virtual, to.info)
	target.Symlink = e.Symlink
	return target, nil
}

// describe is entry with the target of a symbolic link.
func (n *namespace) describe(dir *os.Root, base, virtual string, info fs.FileInfo) Entry {
	e := entry(virtual, info)
	if info.Mode()&fs.ModeSymlink != 0 {
		if target, err := dir.Readlink(base); err == nil {
			e.Symlink = n.mask.replace(target)
		}
		if e.Symlink == "" {
			e.Symlink = "?" // it changed under us; still say that it is a link
		}
	}
	return e
}

// folder opens the place as a folder to read. It returns nil for a place that the host does not have.
func (p *place) folder() (*os.Root, error) {
	if !p.isDir() {
		if p.info == nil {
			return nil, notFound(p.virtual)
		}
		return nil, notDirectory(p.virtual)
	}
	if p.dir == nil {
		return nil, nil
	}
	sub, err := openDir(p.dir, p.base)
	if err != nil {
		return nil, fail(err, p.virtual)
	}
	return sub, nil
}
