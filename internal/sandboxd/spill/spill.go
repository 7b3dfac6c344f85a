// Package spill writes the file with the whole of an output stream that is too long to be kept.
package spill

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// File gets the whole of an output stream. Its folder lies where code of the sandbox can write too. So os.Root walks
// the path, which no link leads out of, and an existing file is not touched. A File that could not be made, or not be
// written whole, is cut; nothing else fails.
type File struct {
	rootDir string
	dir     string
	name    string
	limit   uint64

	file    *os.File
	written uint64
	cut     bool
}

// New describes the file name of at most limit bytes in dir, which is absolute and below root, the folder that may be
// written. Nothing is made before Open.
func New(root, dir, name string, limit uint64) *File {
	return &File{rootDir: root, dir: filepath.Clean(dir), name: name, limit: limit}
}

// underRoot returns the path of dir relative to root, when it lies in it.
func underRoot(root, dir string) (string, bool) {
	if !filepath.IsAbs(dir) || strings.ContainsRune(dir, 0) {
		return "", false
	}
	rel, err := filepath.Rel(root, dir)
	if err != nil || !filepath.IsLocal(rel) {
		return "", false
	}
	return rel, true
}

// Open makes the file.
func (f *File) Open() {
	rel, ok := underRoot(f.rootDir, f.dir)
	if !ok {
		return
	}
	root, err := os.OpenRoot(f.rootDir)
	if err != nil {
		return
	}
	defer root.Close()
	if err := root.MkdirAll(rel, 0o700); err != nil {
		return
	}
	file, err := root.OpenFile(filepath.Join(rel, f.name), os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return
	}
	f.file = file
}

// Write appends p, as far as there is room.
func (f *File) Write(p []byte) {
	if f.file == nil || f.cut || len(p) == 0 {
		return
	}
	if uint64(len(p)) > f.limit-f.written {
		p = p[:f.limit-f.written]
		f.cut = true
	}
	n, err := f.file.Write(p)
	f.written += uint64(n)
	if err != nil { // disk full, say
		f.cut = true
	}
}

// Close returns the path, "" when there is no file, and whether the file lacks something.
func (f *File) Close() (path string, cut bool) {
	if f.file == nil {
		return "", true
	}
	if err := f.file.Close(); err != nil {
		f.cut = true
	}
	return filepath.Join(f.dir, f.name), f.cut
}
