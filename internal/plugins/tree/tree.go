package tree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills/archive"
)

// Limits bound one plugin.
func Limits() archive.Limits {
	return archive.Limits{ArchiveBytes: 64 << 20, Files: 16_384, Bytes: 128 << 20, Ratio: 200, Depth: 16, NameBytes: 255, PathBytes: 512, Executables: true}
}

// OpenRegular opens a file for reading that is one: a pipe in its place must not stop the server, nor a
// device do something.
func OpenRegular(root *os.Root, name string) (*os.File, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, sandbox.Errorf(sandbox.NotFound, "there is no file %.200q", name)
	}
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Invalid, err, "%.200q cannot be opened, or leaves the folder", name)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = sandbox.Errorf(sandbox.Invalid, "%.200q is not a regular file", name)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Copy copies the regular files of a folder, and links to files within root as these. left takes the first hundred
// names that it leaves out: links that leave root, devices.
func Copy(ctx context.Context, root *os.Root, folder string, to *archive.Folder, left *[]string) error {
	entries := 0
	err := fs.WalkDir(root.FS(), folder, func(p string, d fs.DirEntry, err error) error {
		name := strings.TrimPrefix(strings.TrimPrefix(p, folder), "/")
		if folder == "." {
			name = p
		}
		entries++
		switch {
		case err != nil && p == folder:
			return sandbox.Wrap(sandbox.NotFound, err, "there is no folder %.200q", folder)
		case err != nil:
			return err
		case entries > 4*Limits().Files:
			return sandbox.Errorf(sandbox.Invalid, "the folder has more than %d files and folders", 4*Limits().Files)
		case d.IsDir() && path.Base(p) == ".git" && p != folder:
			return fs.SkipDir
		case d.IsDir():
			return nil
		}
		f, err := OpenRegular(root, filepath.FromSlash(p))
		if err != nil { // a link that leaves, a device
			if len(*left) < 100 {
				*left = append(*left, name)
			}
			return nil
		}
		info, err := f.Stat()
		if err == nil {
			err = to.Add(ctx, name, info.Mode()&0o111 != 0, f)
		}
		return errors.Join(err, f.Close())
	})
	if err != nil {
		return fmt.Errorf("folder: %w", err)
	}
	return nil
}
