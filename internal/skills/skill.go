package skills

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path"
	"path/filepath"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills/format"
)

// maxOwners is how many users are remembered in memory.
const maxOwners = 10_000

// State says what is switched on for one user. Values are compared with ==: as long as nothing changes, one user's is
// the same.
type State interface {
	// Skill says whether a skill is on, and whether anything was said about it.
	Skill(name string) (enabled, said bool)
}

// Plugin is a plugin that is enabled for a user, as far as skills and mounts are concerned.
type Plugin struct {
	Name    string
	Dir     string   // host folder, shown at /mnt/plugins/<Name>: owned by the server, files 0644 or 0755; it never changes
	Key     string   // names the contents of Dir, such as their digest
	Skills  []string // folders with a SKILL.md, relative to Dir, with slashes; "." is the plugin itself
	Trusted bool     // scripts of its skills may run without an approval
}

// Plugins are the plugins of one user, which do not change. As long as nothing does, one user's are the
// same pointer.
type Plugins struct {
	List []Plugin
}

// Options are what a Library works with. Plugins may be nil, the others are needed.
type Options struct {
	Dir     string // folder of the library: store/, spare/ and views/ in it
	Users   string // folder of the tenants: a user's own skills are listed in <Users>/<tenant>/users/<user>/skills.json
	Public  []Source
	State   func(sandbox.Owner) (State, error)
	Plugins func(sandbox.Owner) (*Plugins, error) // of the zero Owner: those of a user who has none of their own
	Log     *slog.Logger
}

// Library knows the skills of all users. All methods may be called at the same time, also by several
// processes that share its folders.
type Library struct {
	o      Options
	store  *store
	growth growth
	public *public

	mu        sync.Mutex
	indexes   map[sandbox.Owner]*indexFile
	sets      map[sandbox.Owner]*Set
	parsed    map[parsedKey]sandbox.Skill
	inPlugins map[string]*entry // by the key of a member
	everybody everybody
	changed   chan struct{} // closed and replaced when this process changes something
}

// parsedKey names what Parse makes of a skill.
type parsedKey struct{ digest, folder string }

// Open opens a library, in folders that it makes when they are not there, and reads the public skills.
func Open(o Options) (*Library, error) {
	st, err := openStore(filepath.Join(o.Dir, "store"))
	if err != nil {
		return nil, fmt.Errorf("skills: %w", err)
	}
	l := &Library{
		o: o, store: st, public: &public{sources: o.Public, store: st, log: o.Log},
		indexes: map[sandbox.Owner]*indexFile{}, sets: map[sandbox.Owner]*Set{}, parsed: map[parsedKey]sandbox.Skill{}, inPlugins: map[string]*entry{}, changed: make(chan struct{}),
	}
	l.public.look(time.Now(), true)
	return l, nil
}

// Changed returns a channel that is closed at the next change that this process makes.
func (l *Library) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// Notify closes the channel of Changed: what is switched on, or the plugins of a user, are others now.
func (l *Library) Notify() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.changed)
	l.changed = make(chan struct{})
}

// Refresh looks at all files of the public skills, when the last time is long enough ago.
func (l *Library) Refresh() { l.public.look(time.Now(), true) }

// Sweep removes from the store what no user has and no source any more.
func (l *Library) Sweep() error {
	used := map[string]bool{}
	lists, err := filepath.Glob(filepath.Join(l.o.Users, "*", "users", "*", "skills.json"))
	if err != nil {
		return fmt.Errorf("skills: %w", err)
	}
	for _, file := range lists {
		_, text, err := lockedfile.Read(file, maxIndexBytes)
		if err != nil {
			return fmt.Errorf("skills: %w", err)
		}
		x, err := parseIndex(text)
		if err != nil { // nothing may be removed as long as it is not known what is in use
			return fmt.Errorf("skills: %w", err)
		}
		for _, r := range x.Skills {
			used[r.Digest] = true
		}
	}
	l.public.mu.Lock()
	for _, s := range l.public.found {
		if s.entry != nil {
			used[s.entry.digest] = true
		}
	}
	l.public.mu.Unlock()
	now := time.Now()
	l.growth.forget(now)
	return l.store.sweep(now, func(digest string) bool { return used[digest] })
}

// parse returns what Parse makes of an entry's SKILL.md.
func (l *Library) parse(e *entry, folder string) sandbox.Skill {
	key := parsedKey{e.digest, folder}
	l.mu.Lock()
	sk, ok := l.parsed[key]
	l.mu.Unlock()
	if ok {
		return sk
	}
	if e.text == nil {
		sk = broken(folder, "no-skill-file", "there is no file SKILL.md")
	} else {
		sk, _, _ = format.Parse(folder, e.text) //nolint:errcheck // the skill says so itself
	}
	sk.Digest = e.digest
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.parsed) > 4*maxPublic {
		clear(l.parsed)
	}
	l.parsed[key] = sk
	return sk
}

func broken(name, rule, message string) sandbox.Skill {
	return sandbox.Skill{Name: name, Broken: true, Findings: []sandbox.Finding{{Rule: rule, Severity: sandbox.SeverityError, Message: message}}}
}

// AddOptions say what is kept with a skill that a user gets.
type AddOptions struct {
	Source   string            // where it comes from, for people and lock files, without secrets
	Trusted  bool              // its scripts may run without an approval
	Findings []sandbox.Finding // of checks other than Parse; the first 20 are kept
}

// Add makes a folder a skill of a user, under this name. Its regular files are copied into the store,
// and all of it appears at once or not at all. Invalid: the name, SKILL.md or a limit is wrong;
// Conflict: the user has a skill of that name, also when another call is making it right now; QuotaExceeded: the user has too many.
func (l *Library) Add(ctx context.Context, o sandbox.Owner, name string, fsys fs.FS, a AddOptions) (sandbox.Skill, error) {
	add := func(all map[string]record, r record) error {
		if _, ok := all[name]; ok {
			return sandbox.Errorf(sandbox.Conflict, "you have a skill %q already; delete it first", name)
		}
		return addRecord(all, name, r)
	}
	e, r, err := l.take(name, fsys, a, func(r record) error { return l.fits(o, r, add) })
	if err != nil {
		return sandbox.Skill{}, err
	}
	err = l.change(ctx, o, func(all map[string]record) error { return add(all, r) })
	return l.custom(name, e, r), err
}

// fits reports what a change of the list of a user's skills would answer now, and counts the bytes of one that would do.
func (l *Library) fits(o sandbox.Owner, r record, change func(map[string]record, record) error) error {
	f, err := l.index(o)
	if err != nil {
		return err
	}
	x, err := f.current()
	if err != nil {
		return err
	}
	all := maps.Clone(x.Skills)
	if all == nil {
		all = map[string]record{}
	}
	if err := change(all, r); err != nil {
		return err
	}
	return l.growth.take(o, r.Bytes, time.Now())
}

// take puts a skill into the store. It has no user yet. What is refused, also by fits, leaves nothing in the store:
// nobody's quota counts what has no user.
func (l *Library) take(name string, fsys fs.FS, a AddOptions, fits func(record) error) (*entry, record, error) {
	if err := format.CheckName(name); err != nil {
		return nil, record{}, err
	}
	st, err := l.store.stage(fsys)
	if err != nil {
		return nil, record{}, format.Unreadable(err)
	}
	r, err := recordOf(name, st.entry, a)
	if err == nil {
		err = fits(r)
	}
	if err != nil {
		return nil, record{}, errors.Join(err, st.discard())
	}
	if err := l.store.commit(st); err != nil {
		return nil, record{}, format.Unreadable(err)
	}
	return st.entry, r, nil
}

// recordOf is what the list of a user says of a skill.
func recordOf(name string, e *entry, a AddOptions) (record, error) {
	if e.text == nil {
		return record{}, sandbox.Errorf(sandbox.Invalid, "the skill %q has no SKILL.md", name)
	}
	if _, _, err := format.Parse(name, e.text); err != nil {
		return record{}, err
	}
	r := record{Digest: e.digest, Added: time.Now().UTC(), Source: a.Source, Trusted: a.Trusted, Findings: a.Findings[:min(len(a.Findings), maxKept)]}
	for _, f := range e.files {
		r.Bytes += f.Bytes
	}
	return r, nil
}

func addRecord(all map[string]record, name string, r record) error {
	total := r.Bytes
	for n, other := range all {
		if n != name {
			total += other.Bytes
		}
	}
	if _, ok := all[name]; !ok && len(all) >= maxCustom || total > maxCustomBytes {
		return sandbox.Errorf(sandbox.QuotaExceeded, "a user has at most %d skills of at most %d bytes together", maxCustom, maxCustomBytes)
	}
	all[name] = r
	return nil
}

// change edits the list of a user's skills and tells all listeners.
func (l *Library) change(ctx context.Context, o sandbox.Owner, edit func(map[string]record) error) error {
	f, err := l.index(o)
	if err != nil {
		return err
	}
	if err := f.edit(ctx, edit); err != nil {
		return err
	}
	l.Notify()
	return nil
}

func noCustom(name string) error {
	return sandbox.Errorf(sandbox.NotFound, "you have no skill %.80q of your own", name)
}

// Remove takes one of the user's own skills away. NotFound when it is none.
func (l *Library) Remove(ctx context.Context, o sandbox.Owner, name string) error {
	return l.change(ctx, o, func(all map[string]record) error {
		if _, ok := all[name]; !ok {
			return noCustom(name)
		}
		delete(all, name)
		return nil
	})
}

// Text returns the SKILL.md of one of the user's own skills as it is. NotFound when it is none.
func (l *Library) Text(o sandbox.Owner, name string) ([]byte, error) {
	e, _, err := l.own(o, name)
	if err != nil {
		return nil, err
	}
	return bytes.Clone(e.text), nil
}

func (l *Library) own(o sandbox.Owner, name string) (*entry, record, error) {
	f, err := l.index(o)
	if err != nil {
		return nil, record{}, err
	}
	x, err := f.current()
	if err != nil {
		return nil, record{}, err
	}
	r, ok := x.Skills[name]
	if !ok {
		return nil, record{}, noCustom(name)
	}
	e, err := l.store.get(r.Digest)
	return e, r, err
}

// SetText replaces the SKILL.md of one of the user's own skills and keeps its other files. NotFound when it
// is none; Invalid when the text cannot be loaded; Conflict when the skill was changed meanwhile.
func (l *Library) SetText(ctx context.Context, o sandbox.Owner, name string, text []byte) (sandbox.Skill, error) {
	before, old, err := l.own(o, name)
	if err != nil {
		return sandbox.Skill{}, err
	}
	if _, _, err := format.Parse(name, text); err != nil {
		return sandbox.Skill{}, err
	}
	root, err := os.OpenRoot(before.dir)
	if err != nil {
		return sandbox.Skill{}, format.Unreadable(err)
	}
	defer root.Close() //nolint:errcheck // it was read
	e, r, err := l.take(name, edited{root.FS(), text}, AddOptions{Source: old.Source, Trusted: old.Trusted, Findings: old.Findings}, func(r record) error {
		return l.fits(o, r, func(all map[string]record, r record) error { return addRecord(all, name, r) })
	})
	if err != nil {
		return sandbox.Skill{}, err
	}
	err = l.change(ctx, o, func(all map[string]record) error {
		now, ok := all[name]
		switch {
		case !ok:
			return noCustom(name)
		case now.Digest != old.Digest:
			return sandbox.Errorf(sandbox.Conflict, "the skill %q was changed meanwhile; read it again", name)
		}
		r.Added = now.Added
		return addRecord(all, name, r)
	})
	return l.custom(name, e, r), err
}

// custom is a skill of a user as the list shows it.
func (l *Library) custom(name string, e *entry, r record) sandbox.Skill {
	sk := l.parse(e, name)
	sk.Findings = joined(sk.Findings, r.Findings)
	sk.Category, sk.Location, sk.Trusted, sk.Enabled = sandbox.CategoryCustom, location(sandbox.CategoryCustom, name), r.Trusted, !sk.Broken
	return sk
}

func location(category, name string) string {
	return path.Join(sandbox.SkillsDir, category, name, fileName)
}

// joined returns two lists as a new one.
func joined(a, b []sandbox.Finding) []sandbox.Finding {
	return append(a[:len(a):len(a)], b...)
}

// Virtual makes a skill of files in memory, for one thread: see Set.View. SKILL.md must be one of the files. Invalid
// when the name, SKILL.md or a limit is wrong.
func (l *Library) Virtual(o sandbox.Owner, name string, files map[string][]byte) (*Member, error) {
	temp, err := os.MkdirTemp(l.store.dir, stagePrefix)
	if err != nil {
		return nil, format.Unreadable(err)
	}
	defer os.RemoveAll(temp)
	root, err := os.OpenRoot(temp)
	if err != nil {
		return nil, format.Unreadable(err)
	}
	defer root.Close() //nolint:errcheck // take has read it
	if err := writeFiles(root, files); err != nil {
		return nil, format.Unreadable(err)
	}
	e, r, err := l.take(name, root.FS(), AddOptions{}, func(r record) error { return l.growth.take(o, r.Bytes, time.Now()) })
	if err != nil {
		return nil, err
	}
	sk := l.custom(name, e, r)
	sk.Category, sk.Location = sandbox.CategoryVirtual, location(sandbox.CategoryVirtual, name)
	return &Member{Skill: sk, dir: e.dir, key: e.digest, files: e.files}, nil
}

func writeFiles(root *os.Root, files map[string][]byte) error {
	if len(files) > format.MaxFiles {
		return sandbox.Errorf(sandbox.Invalid, "a skill has at most %d files", format.MaxFiles)
	}
	for p, data := range files {
		if !fs.ValidPath(p) || p == "." || format.CheckPath(p) != nil {
			return sandbox.Errorf(sandbox.Invalid, "%.200q: give a path relative to the skill, such as scripts/run.py", p)
		}
		if err := root.MkdirAll(path.Dir(p), 0o755); err != nil {
			return sandbox.Wrap(sandbox.Invalid, err, "%.200q cannot be made: another file is in its way", p)
		}
		if err := root.WriteFile(p, data, sandbox.SkillFileMode(bytes.HasPrefix(data, []byte("#!")))); err != nil {
			return sandbox.Wrap(sandbox.Invalid, err, "%.200q cannot be written: another file is in its way", p)
		}
	}
	return nil
}

// edited is the files of a skill with another SKILL.md.
type edited struct {
	fs.FS
	text []byte
}

// Open implements fs.FS.
func (e edited) Open(name string) (fs.File, error) {
	f, err := e.FS.Open(name)
	if err != nil || name != fileName {
		return f, err
	}
	return editedFile{f, bytes.NewReader(e.text)}, nil
}

// editedFile is a file with other contents.
type editedFile struct {
	fs.File
	text *bytes.Reader
}

func (f editedFile) Read(p []byte) (int, error) { return f.text.Read(p) }
