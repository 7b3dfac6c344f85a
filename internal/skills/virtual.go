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
	"github.com/skerry-sandbox/skerry/internal/skills/format"
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
	last  int // place that was given
}

type virtual struct {
	member *Member // nil while it is being made
	bytes  int
	place  int // among the skills of all threads, by which they are listed
}

// NewVirtuals makes an empty set, of skills that lib makes.
func NewVirtuals(lib *Library) *Virtuals {
	return &Virtuals{make: lib.Virtual, all: map[sandbox.Thread]map[string]*virtual{}}
}

// Add adds a skill to a thread. Invalid: the name, a text or a path is wrong; Conflict: the thread has a
// virtual skill of that name, or another call is adding it; QuotaExceeded: it has too many.
func (v *Virtuals) Add(t sandbox.Thread, sk sandbox.VirtualSkill) (sandbox.Skill, error) {
	if err := format.CheckName(sk.Name); err != nil {
		return sandbox.Skill{}, err
	}
	files, size, err := virtualFiles(sk)
	if err != nil {
		return sandbox.Skill{}, err
	}
	if err := v.reserve(t, sk, size); err != nil {
		return sandbox.Skill{}, err
	}
	m, err := v.make(t.Owner, sk.Name, files)
	v.mu.Lock()
	defer v.mu.Unlock()
	made := v.all[t][placeOf(sk.Name)]
	v.drop(t, placeOf(sk.Name))
	switch {
	case err != nil:
		return sandbox.Skill{}, err
	case made == nil: // the thread was deleted meanwhile
		return sandbox.Skill{}, sandbox.Errorf(sandbox.NotFound, "there is no thread %q", t.ID)
	}
	m.Skill.Trusted = true // a caller that adds a skill to a thread can run anything in it
	if sk.Server != "" {
		m.Skill.Trusted, m.Skill.Category = false, sandbox.ServerCategory+sk.Server
	}
	made.member = m
	if old := v.all[t][sk.Name]; old != nil { // one that comes back stays where it was
		made.place = old.place
	} else {
		v.last++
		made.place = v.last
	}
	v.drop(t, sk.Name)
	v.put(t, sk.Name, made)
	return m.Skill, nil
}

// placeOf is where a skill is counted while it is being made: beside the skill of its name that it will
// replace.
func placeOf(name string) string { return name + "/" }

// reserve takes the place of a skill, so that two calls for one name do not both make it.
func (v *Virtuals) reserve(t sandbox.Thread, sk sandbox.VirtualSkill, size int) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	own := v.all[t]
	old := own[sk.Name]
	if own[placeOf(sk.Name)] != nil || old != nil && !sk.Replace {
		return sandbox.Errorf(sandbox.Conflict, "this thread has a virtual skill %q already; delete it first, or ask to replace it", sk.Name)
	}
	total, count := size, 0
	for _, other := range own {
		if other != old {
			total += other.bytes
			count++
		}
	}
	if count >= maxVirtual || total > maxVirtualBytes {
		return sandbox.Errorf(sandbox.QuotaExceeded, "a thread has at most %d virtual skills of at most %d bytes together", maxVirtual, maxVirtualBytes)
	}
	if v.count >= maxVirtualAll {
		return sandbox.Errorf(sandbox.CapacityExceeded, "this server has %d virtual skills, its most", maxVirtualAll)
	}
	v.put(t, placeOf(sk.Name), &virtual{bytes: size})
	return nil
}

// put puts one in; the caller holds the lock.
func (v *Virtuals) put(t sandbox.Thread, name string, sk *virtual) {
	if v.all[t] == nil {
		v.all[t] = map[string]*virtual{}
	}
	v.all[t][name] = sk
	v.count++
}

// virtualFiles returns the files of a virtual skill. It writes SKILL.md, unless that is one of them.
func virtualFiles(sk sandbox.VirtualSkill) (files map[string][]byte, size int, err error) {
	files = map[string][]byte{}
	if _, written := sk.Files[fileName]; !written || sk.Description != "" || sk.Body != "" {
		if files[fileName], err = virtualText(sk); err != nil {
			return nil, 0, err
		}
	}
	if len(files)+len(sk.Files) > format.MaxFiles {
		return nil, 0, sandbox.Errorf(sandbox.Invalid, "files: at most %d with %s", format.MaxFiles, fileName)
	}
	size = len(files[fileName])
	for p, content := range sk.Files {
		if strings.EqualFold(p, fileName) && (p != fileName || files[p] != nil) {
			return nil, 0, sandbox.Errorf(sandbox.Invalid, "files: %s is made of description and body; leave them out to send it whole, under this very name", fileName)
		}
		files[p] = []byte(content)
		size += len(p) + len(content)
	}
	if size > format.MaxBytes {
		return nil, 0, sandbox.Errorf(sandbox.Invalid, "a skill has at most %d bytes", format.MaxBytes)
	}
	return files, size, nil
}

// virtualText is the SKILL.md of a skill that has none among its files.
func virtualText(sk sandbox.VirtualSkill) ([]byte, error) {
	if strings.TrimSpace(sk.Description) == "" {
		return nil, sandbox.Errorf(sandbox.Invalid, "description: says when to use the skill, and cannot be empty without a %s in files", fileName)
	}
	head, err := yaml.Marshal(struct {
		Name        string `yaml:"name"`
		Description string `yaml:"description"`
	}{sk.Name, sk.Description})
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Invalid, err, "description: cannot be written as YAML")
	}
	return bytes.Join([][]byte{[]byte("---\n"), head, []byte("---\n\n"), []byte(sk.Body)}, nil), nil
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

// Of returns the virtual skills of a thread, in the order in which it was given them.
func (v *Virtuals) Of(t sandbox.Thread) []*Member {
	v.mu.Lock()
	defer v.mu.Unlock()
	var own []*virtual
	for _, mine := range v.all[t] {
		if mine.member != nil {
			own = append(own, mine)
		}
	}
	slices.SortFunc(own, func(a, b *virtual) int { return a.place - b.place })
	list := make([]*Member, 0, len(own))
	for _, mine := range own {
		list = append(list, mine.member)
	}
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
