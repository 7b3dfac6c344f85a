package codeapi

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/platform/rename"
)

const stageMark = ".stage-"

// topFolders are exchanged one by one. The helpers come first: new wrappers may need new ones.
var topFolders = [...]string{"helpers", "servers", "skills"}

// target is the folder of one sandbox. mu is held while it is looked at or changed.
type target struct {
	dir string

	mu     sync.Mutex
	hash   string // of the tool set whose tree is there
	inodes [len(topFolders)]uint64
}

// holds reports whether the tree of the set is there: the tree that was put there, and not another one
// under the same name since.
func (t *target) holds(hash string) bool {
	if t.hash != hash {
		return false
	}
	inodes, err := t.look()
	return err == nil && inodes == t.inodes
}

func (t *target) look() (inodes [len(topFolders)]uint64, err error) {
	for i, name := range topFolders {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(t.dir, name), &st); err != nil {
			return inodes, err
		}
		inodes[i] = st.Ino
	}
	return inodes, nil
}

func (t *target) remember(hash string) {
	t.hash = hash
	inodes, err := t.look()
	if err != nil {
		t.hash = ""
	}
	t.inodes = inodes
}

// fill puts the tree into the target. The stage lies beside the target, where the sandbox does not
// see it; afterwards it holds the old tree, and the next fill removes it.
func (t *target) fill(tree string) error {
	t.hash = ""
	old, err := filepath.Glob(escapeGlob(t.dir) + stageMark + "*")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(t.dir, 0o755); err != nil {
		return err
	}
	stage, err := os.MkdirTemp(filepath.Dir(t.dir), filepath.Base(t.dir)+stageMark)
	if err != nil {
		return err
	}
	err = t.exchange(tree, stage)
	if err != nil {
		old = append(old, stage)
	}
	for _, path := range old {
		err = errors.Join(err, os.RemoveAll(path))
	}
	return err
}

func (t *target) exchange(tree, stage string) error {
	for _, name := range topFolders {
		if err := linkTree(filepath.Join(tree, name), filepath.Join(stage, name)); err != nil {
			return err
		}
	}
	for _, name := range topFolders {
		if err := swap(filepath.Join(stage, name), filepath.Join(t.dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// swap exchanges two folders, in one step where the file system can. When there is none at to, from moves there.
func swap(from, to string) error {
	err := rename.Exchange(from, to)
	if errors.Is(err, unix.ENOENT) {
		return os.Rename(from, to)
	}
	if err != nil {
		return &os.LinkError{Op: "exchange", Old: from, New: to, Err: err}
	}
	return nil
}

// linkTree makes to a folder of the same files as from.
func linkTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		dest := to + strings.TrimPrefix(path, from)
		if !d.IsDir() {
			return linkFile(path, dest)
		}
		if err := os.Mkdir(dest, 0o755); err != nil {
			return err
		}
		return os.Chmod(dest, 0o755) // whatever the umask
	})
}

// linkFile makes a hard link, or a copy where there can be none: on another file system, with too many
// links, or where links are not permitted.
func linkFile(from, to string) error {
	err := os.Link(from, to)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EXDEV), errors.Is(err, syscall.EMLINK), errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EOPNOTSUPP):
		text, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		return writeFile(to, text)
	}
	return err
}

func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}
