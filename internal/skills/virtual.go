package skills

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Bounds of virtual skills: a thread may have few of them, because each is in its prompt, and all threads
// together what memory and store bear.
const (
	maxVirtual      = 50       // of a thread
	maxVirtualBytes = 16 << 20 // of a thread
	maxVirtualAll   = 10_000
)

// Virtuals are the skills that threads have of their own, in memory: they are gone when the process ends.
// Their files are in the library's store as long as they are used, so that sandboxes can see them. All
// methods may be called at the same time.
type Virtuals struct {
	make func(o sandbox.Owner, name string, files map[string][]byte) (*Member, error)

	mu    sync.Mutex
	all   map[sandbox.Thread]map[string]*virtual
	count int
}

type virtual struct {
	member *Member // nil while it is being made
	bytes  int
}

// NewVirtuals makes an empty set, of skills that lib makes.
func NewVirtuals(lib *Library) *Virtuals {
	return &Virtuals{make: lib.Virtual, all: map[sandbox.Thread]map[string]*virtual{}}
}

// Add adds a skill to a thread. Invalid: the name, a text or a path is wrong; Conflict: the thread has a
// virtual skill of that name; QuotaExceeded: it has too many.
func (v *Virtuals) Add(t sandbox.Thread, sk sandbox.VirtualSkill) (Skill, error) {
	if err := CheckName(sk.Name); err != nil {
		return Skill{}, err
	}
	files, size, err := virtualFiles(sk)
	if err != nil {
		return Skill{}, err
	}
	if err := v.reserve(t, sk.Name, size); err != nil {
		return Skill{}, err
	}
	m, err := v.make(t.Owner, sk.Name, files)
	v.mu.Lock()
	defer v.mu.Unlock()
	mine, still := v.all[t][sk.Name]
	if err != nil {
		v.drop(t, sk.Name)
		return Skill{}, err
	}
	if !still { // the thread was deleted meanwhile
		return Skill{}, sandbox.Errorf(sandbox.NotFound, "there is no thread %q", t.ID)
	}
	m.Skill.Trusted = true // a caller that adds a skill to a thread can run anything in it
	mine.member = m
	return m.Skill, nil
}

// reserve takes the name, so that two calls for one do not both make it.
func (v *Virtuals) reserve(t sandbox.Thread, name string, size int) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	own := v.all[t]
	if own[name] != nil {
		return sandbox.Errorf(sandbox.Conflict, "this thread has a virtual skill %q already; delete it first", name)
	}
	total := size
	for _, other := range own {
		total += other.bytes
	}
	if len(own) >= maxVirtual || total > maxVirtualBytes {
		return sandbox.Errorf(sandbox.QuotaExceeded, "a thread has at most %d virtual skills of at most %d bytes together", maxVirtual, maxVirtualBytes)
	}
	if v.count >= maxVirtualAll {
		return sandbox.Errorf(sandbox.CapacityExceeded, "this server has %d virtual skills, its most", maxVirtualAll)
	}
	if own == nil {
		own = map[string]*virtual{}
		v.all[t] = own
	}
	own[name] = &virtual{bytes: size}
	v.count++
	return nil
}

// virtualFiles writes the SKILL.md of a virtual skill, and returns it with its other files.
func virtualFiles(sk sandbox.VirtualSkill) (files map[string][]byte, size int, err error) {
	if strings.TrimSpace(sk.Description) == "" {
		return nil, 0, sandbox.Errorf(sandbox.Invalid, "description: says when to use the skill, and cannot be empty")
	}
	head, err := yaml.Marshal(struct {
		Name        string `yaml:"name"`
		Description string `yaml:"description"`
	}{sk.Name, sk.Description})
	if err != nil {
		return nil, 0, sandbox.Wrap(sandbox.Invalid, err, "description: cannot be written as YAML")
	}
	text := bytes.Join([][]byte{[]byte("---\n"), head, []byte("---\n\n"), []byte(sk.Body)}, nil)
	files = map[string][]byte{fileName: text}
	size = len(text)
	if len(sk.Files) >= MaxFiles {
		return nil, 0, sandbox.Errorf(sandbox.Invalid, "files: at most %d", MaxFiles-1)
	}
	for p, content := range sk.Files {
		if strings.EqualFold(p, fileName) {
			return nil, 0, sandbox.Errorf(sandbox.Invalid, "files: %s is made of name, description and body", fileName)
		}
		files[p] = []byte(content)
		size += len(p) + len(content)
	}
	if size > MaxBytes {
		return nil, 0, sandbox.Errorf(sandbox.Invalid, "a skill has at most %d bytes", MaxBytes)
	}
	return files, size, nil
}

// Remove takes a skill away. NotFound when the thread has no virtual skill of that name.
func (v *Virtuals) Remove(t sandbox.Thread, name string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if mine := v.all[t][name]; mine == nil || mine.member == nil {
		return sandbox.Errorf(sandbox.NotFound, "this thread has no virtual skill %.80q", name)
	}
	v.drop(t, name)
	return nil
}

// drop takes one away; the caller holds the lock.
func (v *Virtuals) drop(t sandbox.Thread, name string) {
	if v.all[t][name] == nil {
		return
	}
	delete(v.all[t], name)
	v.count--
	if len(v.all[t]) == 0 {
		delete(v.all, t)
	}
}

// Forget takes all skills of a thread that no longer exists.
func (v *Virtuals) Forget(t sandbox.Thread) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.count -= len(v.all[t])
	delete(v.all, t)
}

// Of returns the virtual skills of a thread, sorted by name.
func (v *Virtuals) Of(t sandbox.Thread) []*Member {
	v.mu.Lock()
	defer v.mu.Unlock()
	var list []*Member
	for _, mine := range v.all[t] {
		if mine.member != nil {
			list = append(list, mine.member)
		}
	}
	slices.SortFunc(list, func(a, b *Member) int { return strings.Compare(a.Skill.Name, b.Skill.Name) })
	return list
}

// Keep marks the files of all virtual skills as used, so that no server sweeps them: no list names them.
func (v *Virtuals) Keep(now time.Time) error {
	v.mu.Lock()
	dirs := map[string]bool{}
	for _, own := range v.all {
		for _, mine := range own {
			if mine.member != nil {
				dirs[mine.member.dir] = true
			}
		}
	}
	v.mu.Unlock()
	for dir := range dirs {
		if err := os.Chtimes(dir, now, now); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
