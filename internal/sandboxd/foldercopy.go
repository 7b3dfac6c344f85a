package sandboxd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// copyKey is the file in a copy that says of what it is.
const copyKey = ".skerry-copy"

// copyStage begins the names of copies that are being made. What a process left behind is removed after staleCopy.
const (
	copyStage = ".skerry-copy-"
	staleCopy = time.Hour
)

// keepCopy makes a copy of a folder, unless there is one with the same key. Another process may do the same: a copy
// is made under a name of its own, and then renamed.
func keepCopy(c *sandbox.FolderCopy) error {
	if copied(c) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(c.To), 0o755); err != nil { //nolint:gosec // the sandbox has one user
		return err
	}
	sweepCopies(filepath.Dir(c.To))
	work, err := os.MkdirTemp(filepath.Dir(c.To), copyStage)
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	made, old := filepath.Join(work, "new"), filepath.Join(work, "old")
	if err := os.CopyFS(made, os.DirFS(c.From)); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(made, copyKey), []byte(c.Key), 0o600); err != nil {
		return err
	}
	for range 10 {
		if err := os.Rename(c.To, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.Rename(made, c.To); err == nil || copied(c) {
			return nil
		}
		if err := os.RemoveAll(old); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s is taken", c.To)
}

// copied reports whether the copy is there.
func copied(c *sandbox.FolderCopy) bool {
	key, err := os.ReadFile(filepath.Join(c.To, copyKey))
	return err == nil && string(key) == c.Key
}

// sweepCopies removes copies that were begun by a process that was killed.
func sweepCopies(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && strings.HasPrefix(e.Name(), copyStage) && time.Since(info.ModTime()) > staleCopy {
			_ = os.RemoveAll(filepath.Join(dir, e.Name())) // the next start tries again
		}
	}
}
