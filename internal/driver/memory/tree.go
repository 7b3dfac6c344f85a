package memory

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// like makes to what from is: a file, a link, a folder with all that is in it, or nothing. path is what both are called
// inside. What it is not about stays as it is: mounts that lie in it, and files of other kinds are left out.
func (c copier) like(from, to, path string) (changed bool, err error) {
	info, err := os.Lstat(from)
	if errors.Is(err, fs.ErrNotExist) {
		return vanish(to)
	}
	if err != nil {
		return false, err
	}
	switch {
	case info.IsDir():
		return c.likeFolder(info, from, to, path)
	case info.Mode()&fs.ModeSymlink != 0:
		return c.link(from, to)
	case info.Mode().IsRegular():
		return c.file(info, from, to)
	}
	return vanish(to)
}

func vanish(path string) (changed bool, err error) {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return true, os.RemoveAll(path)
}

func (c copier) likeFolder(info fs.FileInfo, from, to, path string) (changed bool, err error) {
	if c.aside != "" && path != c.top && filepath.Dir(path) == c.top {
		return c.exchange(from, to, path)
	}
	if path != c.top {
		if changed, err = c.folder(info, to); err != nil {
			return changed, err
		}
	}
	names := map[string]bool{}
	entries, err := os.ReadDir(from)
	if errors.Is(err, fs.ErrNotExist) {
		return vanish(to)
	}
	if err != nil {
		return changed, err
	}
	for _, e := range entries {
		names[e.Name()] = true
		below := filepath.Join(path, e.Name())
		if c.skip(below) {
			continue
		}
		did, err := c.like(filepath.Join(from, e.Name()), filepath.Join(to, e.Name()), below)
		changed = changed || did
		if err != nil {
			return changed, err
		}
	}
	have, err := os.ReadDir(to)
	if err != nil {
		return changed, err
	}
	for _, e := range have {
		if names[e.Name()] || c.skip(filepath.Join(path, e.Name())) {
			continue
		}
		changed = true
		if err := os.RemoveAll(filepath.Join(to, e.Name())); err != nil {
			return changed, err
		}
	}
	return changed, nil
}

// exchange makes a folder aside and puts it in the place of the old one, in one step, when they differ.
func (c copier) exchange(from, to, path string) (changed bool, err error) {
	if err := os.RemoveAll(c.aside); err != nil {
		return false, err
	}
	whole := c
	whole.aside, whole.top = "", ""
	if _, err := os.Lstat(to); err == nil {
		if err := os.CopyFS(c.aside, os.DirFS(to)); err != nil {
			return false, err
		}
	}
	changed, err = whole.like(from, c.aside, path)
	if err != nil || !changed {
		return false, err
	}
	err = unix.Renameat2(unix.AT_FDCWD, c.aside, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EEXIST) {
		err = unix.Renameat2(unix.AT_FDCWD, c.aside, unix.AT_FDCWD, to, unix.RENAME_EXCHANGE)
	}
	return true, err
}

// folder makes to a folder as another one is.
func (c copier) folder(like fs.FileInfo, to string) (changed bool, err error) {
	now, err := os.Lstat(to)
	if err == nil && !now.IsDir() {
		if err := os.Remove(to); err != nil {
			return false, err
		}
		now = nil
	}
	if now == nil || err != nil {
		changed = true
		if err := os.Mkdir(to, 0o700); err != nil {
			return true, err
		}
	}
	if now == nil || now.Mode().Perm() != like.Mode().Perm() {
		changed = true
		if err := os.Chmod(to, like.Mode().Perm()); err != nil {
			return true, err
		}
	}
	return changed, c.chown(to)
}

func (c copier) chown(path string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	return os.Lchown(path, c.uid, c.uid)
}

func (c copier) link(from, to string) (changed bool, err error) {
	target, err := os.Readlink(from)
	if err != nil {
		return false, err
	}
	if now, err := os.Readlink(to); err == nil && now == target {
		return false, nil
	}
	fresh := to + ".fresh"
	if err := os.Symlink(target, fresh); err != nil {
		return true, err
	}
	return true, c.put(fresh, to)
}

func (c copier) file(info fs.FileInfo, from, to string) (changed bool, err error) {
	text, err := os.ReadFile(from)
	if errors.Is(err, fs.ErrNotExist) {
		return vanish(to)
	}
	if err != nil {
		return false, err
	}
	if now, err := os.Lstat(to); err == nil && now.Mode() == info.Mode() {
		if old, err := os.ReadFile(to); err == nil && bytes.Equal(old, text) {
			return false, nil
		}
	}
	fresh := to + ".fresh"
	if err := os.WriteFile(fresh, text, 0o600); err != nil {
		return true, err
	}
	if err := errors.Join(os.Chmod(fresh, info.Mode().Perm()), os.Chtimes(fresh, info.ModTime(), info.ModTime())); err != nil {
		return true, err
	}
	return true, c.put(fresh, to)
}

// put moves a new file or link to where it belongs.
func (c copier) put(fresh, to string) error {
	if err := c.chown(fresh); err != nil {
		return err
	}
	if now, err := os.Lstat(to); err == nil && now.IsDir() {
		if err := os.RemoveAll(to); err != nil {
			return err
		}
	}
	return os.Rename(fresh, to)
}
