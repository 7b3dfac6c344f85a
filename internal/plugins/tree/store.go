package tree

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills"
	"github.com/skerry-sandbox/skerry/internal/skills/format"
)

// Store keeps the folders of plugins, each named after the digest of its files: regular files 0644 or 0755,
// folders 0755, owned by the server. A folder appears whole, by one rename, and never changes.
type Store struct {
	dir string

	mu       sync.Mutex
	verified map[string]bool // digests whose files this process has looked at
}

// Open opens the store in a folder, which it makes when it is missing.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, err
	}
	return &Store{dir: dir, verified: map[string]bool{}}, nil
}

func (s *Store) path(digest string) string {
	return filepath.Join(s.dir, strings.TrimPrefix(digest, "sha256:"))
}

// Get returns the folder of a digest. NotFound. Internal when its files differ from the installed ones. The
// store checks this when this process first sees the folder.
func (s *Store) Get(digest string) (string, error) {
	if !format.CheckDigest(digest) {
		return "", sandbox.Errorf(sandbox.Internal, "the digest of the plugin is none")
	}
	dir := s.path(digest)
	s.mu.Lock()
	known := s.verified[digest]
	s.mu.Unlock()
	if known {
		return dir, nil
	}
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", sandbox.Errorf(sandbox.NotFound, "the plugin's files are gone; install it again")
	}
	if err != nil {
		return "", sandbox.Wrap(sandbox.Internal, err, "the plugin's files cannot be read")
	}
	defer root.Close() //nolint:errcheck // closing it writes nothing
	files, err := filesOf(root)
	switch {
	case err != nil:
		return "", sandbox.Wrap(sandbox.Internal, err, "the plugin's files cannot be read")
	case format.DigestOf(files) != digest:
		return "", sandbox.Errorf(sandbox.Internal, "the plugin's files are not those that were installed; install it again")
	}
	if err := skills.SetModes(root, files); err != nil {
		return "", sandbox.Wrap(sandbox.Internal, err, "the modes of the plugin's files cannot be set")
	}
	s.keep(digest, true)
	return dir, nil
}

func (s *Store) keep(digest string, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if on {
		s.verified[digest] = true
	} else {
		delete(s.verified, digest)
	}
}

// Add takes a folder, whose modes are those of the store, as that of its digest.
func (s *Store) Add(dir, digest string) error {
	to := s.path(digest)
	if is, err := Digest(to); err == nil && is == digest {
		s.keep(digest, true)
		return nil
	}
	if err := os.RemoveAll(to); err != nil { // what is left of a damaged one
		return err
	}
	if err := os.Rename(dir, to); err != nil {
		return err
	}
	s.keep(digest, true)
	return lockedfile.SyncDir(s.dir)
}

// Sweep removes what is not among used.
func (s *Store) Sweep(used map[string]bool) error {
	list, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range list {
		if digest := "sha256:" + e.Name(); format.CheckDigest(digest) && !used[digest] {
			s.keep(digest, false)
			errs = append(errs, os.RemoveAll(filepath.Join(s.dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// Digest returns the digest of all regular files of a folder, as format.Digest does of a skill.
func Digest(dir string) (string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer root.Close() //nolint:errcheck // it was read
	files, err := filesOf(root)
	if err != nil {
		return "", err
	}
	return format.DigestOf(files), nil
}

// filesOf returns all regular files of a folder, sorted by path.
func filesOf(root *os.Root) ([]format.File, error) {
	var files []format.File
	err := fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		if len(files) > Limits().Files {
			return fmt.Errorf("more than %d files", Limits().Files)
		}
		f, err := hashFile(root, p)
		files = append(files, f)
		return err
	})
	slices.SortFunc(files, func(a, b format.File) int { return strings.Compare(a.Path, b.Path) })
	return files, err
}

func hashFile(root *os.Root, p string) (format.File, error) {
	f, err := OpenRegular(root, p)
	if err != nil {
		return format.File{}, err
	}
	defer f.Close() //nolint:errcheck // it was read
	info, err := f.Stat()
	if err != nil {
		return format.File{}, err
	}
	sum := sha256.New()
	n, err := io.Copy(sum, f)
	return format.File{SkillFile: sandbox.SkillFile{Path: p, Bytes: n, Digest: "sha256:" + hex.EncodeToString(sum.Sum(nil))}, Exec: info.Mode()&0o111 != 0}, err
}
