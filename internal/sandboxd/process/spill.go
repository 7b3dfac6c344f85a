package process

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// spill is the file that gets the whole of an output stream that was too long. Its folder lies where code of
// the sandbox can write too. So os.Root walks the path, which no link leads out of, and an existing file is
// not touched.
type spill struct {
	rootDir string // the folder that may be written, such as /mnt/user-data
	dir     string // below it, absolute
	name    string
	limit   uint64

	file    *os.File
	written uint64
	cut     bool
}

// underRoot returns the path of dir relative to root, when it lies in it.
func underRoot(root, dir string) (string, bool) {
	if !filepath.IsAbs(dir) || strings.ContainsRune(dir, 0) {
		return "", false
	}
	rel, err := filepath.Rel(root, filepath.Clean(dir))
	if err != nil || !filepath.IsLocal(rel) {
		return "", false
	}
	return rel, true
}

func (s *spill) open() {
	rel, ok := underRoot(s.rootDir, s.dir)
	if !ok {
		return
	}
	root, err := os.OpenRoot(s.rootDir)
	if err != nil {
		return
	}
	defer root.Close()
	if err := root.MkdirAll(rel, 0o700); err != nil {
		return
	}
	f, err := root.OpenFile(filepath.Join(rel, s.name), os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return
	}
	s.file = f
}

func (s *spill) write(p []byte) {
	if s.file == nil || s.cut || len(p) == 0 {
		return
	}
	if uint64(len(p)) > s.limit-s.written {
		p = p[:s.limit-s.written]
		s.cut = true
	}
	n, err := s.file.Write(p)
	s.written += uint64(n)
	if err != nil { // disk full, say
		s.cut = true
	}
}

func (s *spill) close() (path string, cut bool) {
	if s.file == nil {
		return "", true
	}
	if err := s.file.Close(); err != nil {
		s.cut = true
	}
	return filepath.Join(s.dir, s.name), s.cut
}
