// Package keyfile says whether a file is a fit place for a private key.
package keyfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Outside refuses a file in the data folder, also by way of links. Sandboxes' folders are there, and a
// backup of it would hold the key with what it locks. Neither need exist.
func Outside(path, data string) error {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) { // it will be made there
		dir, err = filepath.Dir(path), nil
	}
	if err != nil {
		return err
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		dir = filepath.Dir(real)
	}
	real, err := filepath.EvalSymlinks(data)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if rel, err := filepath.Rel(real, dir); err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
		return fmt.Errorf("%s lies in the data folder %s, where the key would be kept with what it is for; name a file outside of it", path, data)
	}
	return nil
}

// Private refuses a file that others than this process's user, and root, can read or put another in the place of. A link
// to it may have any owner.
func Private(path string) error {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	for _, c := range []struct {
		path string
		bits fs.FileMode
		want string
	}{
		{path, 0o077, "others than the server can read it: chmod 600 it"},
		{filepath.Dir(path), 0o022, "others can write to its folder, and so replace it: chmod 755 the folder"},
	} {
		info, err := os.Stat(c.path)
		if err != nil {
			return err
		}
		if err := owned(c.path, info); err != nil {
			return err
		}
		if info.Mode().Perm()&c.bits != 0 && info.Mode()&fs.ModeSticky == 0 {
			return fmt.Errorf("%s: %s", path, c.want)
		}
	}
	return nil
}
