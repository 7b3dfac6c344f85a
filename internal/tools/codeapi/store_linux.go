package codeapi

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	tempPrefix = ".new-"
	tempAge    = time.Hour           // an unfinished tree of that age has no writer
	treeAge    = 30 * 24 * time.Hour // a tree that was not used for so long is made again when needed
	maxTrees   = 1000                // remembered in memory
	maxTargets = 10_000              // remembered in memory, before removed ones are forgotten
)

// Store keeps generated trees on disk, each under the hash of its contents, and makes sandboxes their
// folders as hard links to them. Several processes may use one folder. All methods may be called at
// the same time.
type Store struct {
	dir string

	writing sync.Mutex // one tree at a time

	mu      sync.Mutex
	trees   map[string]string // hash of a tool set -> name of its tree
	targets map[string]*target
}

// NewStore opens the store in dir, which it makes when there is none. It removes what an earlier process
// left half-written, and what was not used for 30 days.
func NewStore(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("codeapi: %w", err)
	}
	s := &Store{dir: dir, trees: map[string]string{}, targets: map[string]*target{}}
	if err := s.sweep(time.Now()); err != nil {
		return nil, fmt.Errorf("codeapi: %w", err)
	}
	return s, nil
}

func (s *Store) sweep(now time.Time) error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			continue // another process removed it
		}
		age := now.Sub(info.ModTime())
		if age > treeAge || strings.HasPrefix(e.Name(), tempPrefix) && age > tempAge {
			if err := os.RemoveAll(filepath.Join(s.dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// Materialize makes targetDir/servers, targetDir/skills and targetDir/helpers hold the wrappers of the set. Each of the
// three is exchanged in one step, so that a reader finds the old tree or the new one and never a part;
// the old one stays readable, for those in the midst of it, until the next change. Files are 0444,
// folders 0755. What is already there costs three stats. It makes targetDir when there is none, uses
// names beginning with "<targetDir>.stage-" beside it, and leaves other files in it alone. Calls for
// one target wait for each other. An empty set.Hash is computed. An error is Invalid or Internal, and
// leaves the target with a whole tree, the old or the new one, under either name.
func (s *Store) Materialize(set sandbox.ToolSet, targetDir string) error {
	return s.MaterializeFor("", set, targetDir)
}

// storeTenant is the tenant of a server without tenants.
const storeTenant = "default"

// MaterializeFor is Materialize for a sandbox of a tenant. Hard links share an inode, by which code sees who opens a
// file or locks it: so the trees of two tenants have no file in common.
func (s *Store) MaterializeFor(tenant string, set sandbox.ToolSet, targetDir string) error {
	suffix := ""
	if tenant != "" && tenant != storeTenant {
		sum := sha256.Sum256([]byte(tenant))
		suffix = "." + hex.EncodeToString(sum[:8])
	}
	hash := set.Hash
	if hash == "" {
		var err error
		if hash, err = hashOf(slices.Concat(set.Tools, set.Skills)); err != nil {
			return sandbox.Wrap(sandbox.Internal, err, "the tool set cannot be hashed")
		}
	}
	targetDir = filepath.Clean(targetDir)
	t := s.target(targetDir)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.holds(hash + suffix) {
		return nil
	}
	tree, err := s.tree(set, hash, suffix)
	if err != nil {
		return err
	}
	if err := t.fill(tree); err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the code API cannot be written")
	}
	t.remember(hash + suffix)
	return nil
}

// target returns the target's state. Targets come and go with sandboxes: from time to time those whose
// folder is gone are forgotten.
func (s *Store) target(dir string) *target {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.targets[dir]
	if t == nil {
		if len(s.targets) >= maxTargets {
			maps.DeleteFunc(s.targets, func(dir string, t *target) bool {
				if !t.mu.TryLock() {
					return false
				}
				defer t.mu.Unlock()
				_, err := os.Lstat(dir)
				return t.hash != "" && errors.Is(err, fs.ErrNotExist)
			})
		}
		t = &target{dir: dir}
		s.targets[dir] = t
	}
	return t
}

// tree returns the folder with the tree of a set, made when it is not there. suffix is that of the tenant.
func (s *Store) tree(set sandbox.ToolSet, hash, suffix string) (string, error) {
	s.mu.Lock()
	name := s.trees[hash+suffix]
	s.mu.Unlock()
	if name != "" {
		path := filepath.Join(s.dir, name)
		if _, err := os.Lstat(path); err == nil {
			return path, nil
		}
	}
	files, err := Generate(set)
	if err != nil {
		return "", err
	}
	name = nameOf(files) + suffix
	if err := s.write(name, files); err != nil {
		return "", sandbox.Wrap(sandbox.Internal, err, "the code API cannot be written")
	}
	s.mu.Lock()
	if len(s.trees) >= maxTrees {
		clear(s.trees)
	}
	s.trees[hash+suffix] = name
	s.mu.Unlock()
	return filepath.Join(s.dir, name), nil
}

// write makes the tree called name, unless it is there and whole: a power cut may leave files empty
// whose folder already has its name.
func (s *Store) write(name string, files map[string][]byte) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	path := filepath.Join(s.dir, name)
	if whole(path, files) {
		now := time.Now()
		return os.Chtimes(path, now, now)
	}
	temp, err := os.MkdirTemp(s.dir, tempPrefix)
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	fresh := filepath.Join(temp, "tree")
	for _, rel := range slices.Sorted(maps.Keys(files)) {
		if err := writeFile(filepath.Join(fresh, filepath.FromSlash(rel)), files[rel]); err != nil {
			return err
		}
	}
	if err := openFolders(fresh); err != nil {
		return err
	}
	err = os.Rename(fresh, path)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, unix.ENOTEMPTY) {
		if whole(path, files) {
			return nil // another process was faster
		}
		// What stands under the name is broken: it goes, together with temp.
		if err := os.Rename(path, filepath.Join(temp, "broken")); err != nil {
			return err
		}
		err = os.Rename(fresh, path)
	}
	return err
}

func writeFile(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, text, 0o444); err != nil {
		return err
	}
	return os.Chmod(path, 0o444) // whatever the umask
}

// openFolders makes all folders readable by every uid, whatever the umask.
func openFolders(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return os.Chmod(path, 0o755)
	})
}

func whole(path string, files map[string][]byte) bool {
	for rel, text := range files {
		have, err := os.ReadFile(filepath.Join(path, filepath.FromSlash(rel)))
		if err != nil || !bytes.Equal(have, text) {
			return false
		}
	}
	return true
}

// nameOf hashes a tree. The lengths keep two trees apart whose texts join to the same bytes.
func nameOf(files map[string][]byte) string {
	h := sha256.New()
	for _, path := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(h, "%d %s %d\n", len(path), path, len(files[path]))
		h.Write(files[path])
	}
	return hex.EncodeToString(h.Sum(nil))
}
