package doctor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Space that a data folder should have free, in bytes, and the share of its inodes.
const (
	littleSpace = 2 << 30
	noSpace     = 64 << 20
	fewInodes   = 50 // of which at least one must be free
)

// Folder looks at a data folder, which need not be there yet.
func Folder(r *Report, dir string) {
	at, info, err := nearest(dir)
	if err != nil {
		r.Problem("", "mend that folder, or choose another one with --data", "%s cannot be reached: %s", dir, reason(err))
		return
	}
	if !info.IsDir() {
		r.Problem("", "move that file away, or choose another folder with --data", "%s is no folder", at)
		return
	}
	if unix.Access(at, unix.W_OK|unix.X_OK) != nil {
		r.Problem("", "mount it for writing, or choose another folder with --data", "%s cannot be written", at)
	}
	if at != dir {
		r.OK("", "%s is not there yet; `skerry serve` makes it", dir)
	} else {
		owner(r, dir, info)
		passage(r, dir)
	}
	space(r, at)
}

// nearest returns the folder itself, or the nearest above it that is there.
func nearest(dir string) (string, fs.FileInfo, error) {
	for {
		info, err := os.Stat(dir)
		if !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			return dir, info, err
		}
		dir = filepath.Dir(dir)
	}
}

func owner(r *Report, dir string, info fs.FileInfo) {
	st, ok := info.Sys().(*syscall.Stat_t)
	mode := info.Mode().Perm()
	switch {
	case ok && st.Uid != 0:
		r.Warn("owner", "chown root "+dir, "%s belongs to uid %d, which can exchange what is in it", dir, st.Uid)
	case mode&0o022 != 0:
		r.Warn("mode", "chmod 0711 "+dir, "%s has mode %04o: others can exchange what is in it", dir, mode)
	default:
		r.OK("", "%s belongs to root, mode %04o", dir, mode)
	}
}

// passage looks whether MCP servers and sandboxes, which have uids of their own, get to the folder.
func passage(r *Report, dir string) {
	for parent := filepath.Dir(dir); ; parent = filepath.Dir(parent) {
		if info, err := os.Stat(parent); err == nil && info.Mode().Perm()&0o001 == 0 {
			r.Warn("way", "chmod o+x "+parent+", or choose another folder with --data", "%s lets only its owner through: MCP servers, which run with other uids, do not reach their homes below it", parent)
		}
		if parent == filepath.Dir(parent) {
			return
		}
	}
}

func space(r *Report, dir string) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		r.Warn("space", "look whether the disk is in order", "how much is free cannot be read: %s", reason(err))
		return
	}
	free := int64(s.Bavail) * s.Bsize //nolint:gosec // sizes of disks are far below 2^63
	const fix = "make room, or choose a folder on another disk with --data"
	switch {
	case free < noSpace:
		r.Problem("space", fix, "%d MiB are free: hardly anything can be written", free>>20)
	case s.Files > 0 && s.Ffree < s.Files/fewInodes:
		r.Warn("space", fix, "%d of %d inodes are free", s.Ffree, s.Files)
	case free < littleSpace:
		r.Warn("space", fix, "%d MiB are free: one sandbox alone may use that much", free>>20)
	default:
		r.OK("space", "%d GiB are free", free>>30)
	}
}

// reason is an error of the system without the path, which is said already.
func reason(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}
