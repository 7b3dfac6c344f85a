package skills

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills/format"
)

// store keeps skills on disk, each in a folder named after its digest: regular files 0644 or 0755,
// folders 0755, owned by the server. A folder appears whole and durable, by one rename, and never changes.
// Several processes may use one store.
type store struct {
	dir string

	mu      sync.Mutex
	entries map[string]*entry // by digest, of entries that this process verified
}

// entry is one skill of the store. It does not change.
type entry struct {
	digest string
	dir    string
	files  []format.File
	text   []byte // SKILL.md, nil when it has none
}

const (
	stagePrefix = ".new-"
	// stageAge is the age at which an unfinished folder has no owner; it is also how long an unreferenced folder is
	// kept, because a process may be about to.
	stageAge = time.Hour
	fileName = "SKILL.md"
)

func openStore(dir string) (*store, error) {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, err
	}
	return &store{dir: dir, entries: map[string]*entry{}}, nil
}

func (s *store) path(digest string) string {
	return filepath.Join(s.dir, strings.TrimPrefix(digest, format.DigestPrefix))
}

// get returns an entry, verified when this process sees it for the first time. NotFound: there is none; Internal:
// its files are not those of its digest.
func (s *store) get(digest string) (*entry, error) {
	s.mu.Lock()
	e := s.entries[digest]
	s.mu.Unlock()
	if e != nil {
		return e, nil
	}
	if !format.CheckDigest(digest) {
		return nil, sandbox.Errorf(sandbox.Internal, "the digest of the skill is none")
	}
	e, err := readEntry(s.path(digest))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, sandbox.Errorf(sandbox.NotFound, "the skill's files are gone")
	case err != nil:
		return nil, err
	case e.digest != digest:
		return nil, sandbox.Errorf(sandbox.Internal, "the skill's files are not those that were installed")
	}
	if err := e.setModes(); err != nil {
		return nil, err
	}
	s.keep(e)
	return e, nil
}

func (s *store) keep(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries[e.digest] = e
}

// readEntry reads all of a skill's folder and computes its digest.
func readEntry(dir string) (*entry, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // it was read
	e := &entry{dir: dir}
	if e.files, err = format.Files(root.FS()); err != nil {
		return nil, err
	}
	e.digest = format.DigestOf(e.files)
	e.text, err = readText(root.FS())
	return e, err
}

// setModes is for a folder that a version up to 0.1 has made: copies of its files could not be changed.
func (e *entry) setModes() error {
	root, err := os.OpenRoot(e.dir)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // closing it writes nothing
	return SetModes(root, e.files)
}

// SetModes makes the modes of files, and of the folders that they are in, what they are in a store, whatever the umask.
func SetModes(root *os.Root, files []format.File) error {
	set := func(name string, mode fs.FileMode) error {
		info, err := root.Lstat(name)
		if err != nil || info.Mode().Perm() == mode {
			return err
		}
		return root.Chmod(name, mode)
	}
	seen := map[string]bool{".": true}
	if err := set(".", 0o755); err != nil {
		return err
	}
	for _, f := range files {
		if err := set(f.Path, sandbox.SkillFileMode(f.Exec)); err != nil {
			return err
		}
		for dir := path.Dir(f.Path); !seen[dir]; dir = path.Dir(dir) {
			seen[dir] = true
			if err := set(dir, 0o755); err != nil {
				return err
			}
		}
	}
	return nil
}

// readText returns SKILL.md, at most one byte more than it may have, or nil when there is none.
func readText(fsys fs.FS) ([]byte, error) {
	f, err := fsys.Open(fileName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was read
	return io.ReadAll(io.LimitReader(f, format.MaxTextBytes+1))
}

// staged is a copy of a skill that is not in the store yet.
type staged struct {
	*entry
	temp string // the folder above it; "" when the store has the skill already
}

// stage copies the regular files of a skill. Its digest is that of what was written.
func (s *store) stage(fsys fs.FS) (*staged, error) {
	files, err := format.Files(fsys)
	if err != nil {
		return nil, err
	}
	if e, err := s.get(format.DigestOf(files)); err == nil {
		now := time.Now()
		return &staged{entry: e}, os.Chtimes(e.dir, now, now) // so that no sweep takes it now
	}
	temp, err := os.MkdirTemp(s.dir, stagePrefix)
	if err != nil {
		return nil, err
	}
	st := &staged{entry: &entry{dir: filepath.Join(temp, "skill")}, temp: temp}
	if err := st.fill(fsys, files); err != nil {
		return nil, errors.Join(err, os.RemoveAll(temp))
	}
	return st, nil
}

func (st *staged) fill(fsys fs.FS, files []format.File) error {
	if err := os.Mkdir(st.dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(st.dir)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // nothing is written by closing it
	total := int64(0)
	for _, f := range files {
		if dir := path.Dir(f.Path); dir != "." {
			if err := root.MkdirAll(dir, 0o755); err != nil {
				return err
			}
		}
		got, err := copyFile(root, fsys, f, format.MaxBytes-total)
		if err != nil {
			return err
		}
		total += got.Bytes
		st.files = append(st.files, got)
	}
	if err := SetModes(root, st.files); err != nil {
		return err
	}
	st.digest = format.DigestOf(st.files)
	st.text, err = readText(root.FS())
	return err
}

func copyFile(to *os.Root, fsys fs.FS, f format.File, limit int64) (format.File, error) {
	in, err := fsys.Open(f.Path)
	if err != nil {
		return f, err
	}
	defer in.Close() //nolint:errcheck // it was read
	out, err := to.OpenFile(f.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return f, err
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(out, sum), io.LimitReader(in, limit+1))
	if err == nil && n > limit {
		err = sandbox.Errorf(sandbox.Invalid, "a skill has at most %d bytes", format.MaxBytes)
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return f, err
	}
	f.Bytes, f.Digest = n, format.DigestText(sum.Sum(nil))
	return f, nil
}

// commit moves staged skills into the store, durably: their bytes are on disk before their names are.
func (s *store) commit(list ...*staged) (err error) {
	dir, err := os.Open(s.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	fresh := false
	for _, st := range list {
		fresh = fresh || st.temp != ""
	}
	if !fresh {
		return nil
	}
	// One call for all files of all skills: syncing each of them takes minutes for thousands.
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	for _, st := range list {
		if st.temp == "" {
			continue
		}
		if err := s.move(st); err != nil {
			return err
		}
	}
	return dir.Sync()
}

func (s *store) move(st *staged) error {
	target := s.path(st.digest)
	err := os.Rename(st.dir, target)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, unix.ENOTEMPTY) {
		// Another was faster, or what stands there is damaged: then it goes, together with temp.
		if _, e := s.get(st.digest); e != nil {
			err = errors.Join(os.Rename(target, filepath.Join(st.temp, "damaged")), os.Rename(st.dir, target))
		} else {
			err = nil
		}
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(st.temp))
	}
	st.entry.dir = target
	s.keep(st.entry)
	return os.RemoveAll(st.temp)
}

// discard removes a copy that does not come into the store.
func (st *staged) discard() error {
	if st.temp == "" {
		return nil
	}
	return os.RemoveAll(st.temp)
}

// sweep removes what a former process left unfinished, and what nothing refers to.
func (s *store) sweep(now time.Time, used func(digest string) bool) error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		digest := format.DigestPrefix + e.Name()
		info, err := e.Info()
		if err != nil || now.Sub(info.ModTime()) < stageAge || format.CheckDigest(digest) && used(digest) {
			continue
		}
		s.mu.Lock()
		delete(s.entries, digest)
		s.mu.Unlock()
		if err := os.RemoveAll(filepath.Join(s.dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}
