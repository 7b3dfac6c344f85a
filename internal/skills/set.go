package skills

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills/format"
)

// Set is all skills of one user at one moment, and the plugins that they come with. It does not change.
type Set struct {
	gen     uint64
	index   *index
	state   State
	plugins *Plugins

	skills  []sandbox.Skill // sorted by name
	members map[string]*Member
}

// Member is a skill with its files. It does not change.
type Member struct {
	Skill  sandbox.Skill
	dir    string // host folder
	key    string // of its contents
	files  []format.File
	plugin string // that it lies in, "" when none
	inside string // where, relative to the plugin
}

// Set returns the skills of a user as they are now. As long as nothing changes it is the same pointer.
// Unavailable when what is switched on cannot be known: then no user gets any.
func (l *Library) Set(o sandbox.Owner) (*Set, error) {
	now := time.Now()
	next := &Set{}
	f, err := l.index(o)
	if err != nil {
		return nil, err
	}
	if next.index, err = f.current(); err != nil {
		return nil, err
	}
	if next.state, err = l.o.State(o); err != nil {
		return nil, err
	}
	if l.o.Plugins != nil {
		if next.plugins, err = l.o.Plugins(o); err != nil {
			return nil, err
		}
	}
	next.gen = l.public.look(now, false)
	l.mu.Lock()
	known := l.sets[o]
	l.mu.Unlock()
	if known != nil && known.gen == next.gen && known.index == next.index && known.state == next.state && known.plugins == next.plugins {
		return known, nil
	}
	l.fill(next)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.sets) >= maxOwners {
		clear(l.sets)
	}
	l.sets[o] = next
	return next, nil
}

// fill puts the skills of all sources together. Who comes first has the name: the user's own, then those of
// plugins, by the plugin's name, then the public ones. A skill of a plugin that comes later is known as
// <plugin>:<skill>; any other is hidden. Both are findings.
func (l *Library) fill(s *Set) {
	s.members = map[string]*Member{}
	for name, r := range s.index.Skills {
		m := &Member{key: r.Digest}
		if e, err := l.store.get(r.Digest); err != nil {
			m.Skill = broken(name, "files-damaged", sandbox.TextOf(err)+"; install the skill anew")
			m.Skill.Category, m.Skill.Location, m.Skill.Digest = sandbox.CategoryCustom, location(sandbox.CategoryCustom, name), r.Digest
			l.o.Log.Error("skill cannot be read", "skill", name, "error", err)
		} else {
			m.Skill, m.dir, m.files = l.custom(name, e, r), e.dir, e.files
		}
		s.members[name] = m
	}
	for _, m := range l.pluginMembers(s.plugins) {
		s.add(m)
	}
	l.public.mu.Lock()
	for _, name := range l.public.names {
		s.add(l.publicMember(name, l.public.found[name]))
	}
	l.public.mu.Unlock()
	s.skills = make([]sandbox.Skill, 0, len(s.members))
	for name, m := range s.members {
		on, _ := s.state.Skill(name)
		m.Skill.Enabled = on && !m.Skill.Broken
		s.skills = append(s.skills, m.Skill)
	}
	slices.SortFunc(s.skills, func(a, b sandbox.Skill) int { return strings.Compare(a.Name, b.Name) })
}

// add puts a skill in, under another name or not at all when a loading skill has its name.
func (s *Set) add(m *Member) {
	first := s.members[m.Skill.Name]
	switch {
	case first == nil:
		s.members[m.Skill.Name] = m
	case m.plugin != "":
		say(first, "shadows", "a skill of the plugin %q has the same name; it is known as %q", m.plugin, m.plugin+":"+m.Skill.Name)
		say(m, "shadowed", "a skill of %q has the same name, so this one is known as %q", first.Skill.Category, m.plugin+":"+m.Skill.Name)
		m.Skill.Name = m.plugin + ":" + m.Skill.Name
		s.members[m.Skill.Name] = m
	case first.Skill.Broken && !m.Skill.Broken:
		// A skill that does not load hides no other.
		say(m, "shadows", "a skill of %q has the same name and does not load: %s", first.Skill.Category, firstError(first.Skill))
		s.members[m.Skill.Name] = m
	default:
		say(first, "shadows", "the %s skill of the same name is hidden", m.Skill.Category)
	}
}

func say(m *Member, rule, format string, args ...any) {
	m.Skill.Findings = joined(m.Skill.Findings, []sandbox.Finding{{Rule: rule, Severity: sandbox.SeverityWarning, Message: fmt.Sprintf(format, args...)}})
}

func firstError(sk sandbox.Skill) string {
	for _, f := range sk.Findings {
		if f.Severity == sandbox.SeverityError {
			return f.Message
		}
	}
	return "it says no reason"
}

func (l *Library) publicMember(name string, p *publicSkill) *Member {
	m := &Member{}
	if p.entry != nil {
		m.Skill, m.dir, m.key, m.files = l.parse(p.entry, name), p.entry.dir, p.entry.digest, p.entry.files
	} else {
		m.Skill = broken(name, "files", sandbox.TextOf(format.Unreadable(p.err)))
	}
	from := l.o.Public[p.source]
	m.Skill.Category, m.Skill.Location, m.Skill.Trusted = sandbox.CategoryPublic, location(sandbox.CategoryPublic, name), !from.Untrusted
	m.Skill.Defaults, m.Skill.Findings = from.Defaults, joined(m.Skill.Findings, from.Findings)
	if p.hidden > 0 {
		say(m, "shadows", "%d skills of other public folders have the same name and are hidden", p.hidden)
	}
	return m
}

// pluginMembers returns the skills of plugins by the names of both.
func (l *Library) pluginMembers(plugins *Plugins) []*Member {
	if plugins == nil {
		return nil
	}
	list := slices.SortedFunc(slices.Values(plugins.List), func(a, b Plugin) int { return strings.Compare(a.Name, b.Name) })
	var all []*Member
	for _, p := range list {
		folders := slices.Clone(p.Skills)
		slices.SortFunc(folders, func(a, b string) int {
			return cmp.Or(strings.Compare(path.Base(a), path.Base(b)), strings.Compare(a, b))
		})
		for _, folder := range folders {
			if m := l.pluginMember(p, folder); m != nil {
				all = append(all, m)
			}
		}
	}
	return all
}

// pluginMember reads a skill of a plugin; nil when the folder cannot be one.
func (l *Library) pluginMember(p Plugin, folder string) *Member {
	if !filepath.IsLocal(folder) || path.Clean(folder) != folder {
		l.o.Log.Error("a plugin names a folder that is none", "plugin", p.Name)
		return nil
	}
	name := path.Base(folder)
	if folder == "." {
		name = p.Name
	}
	m := &Member{dir: filepath.Join(p.Dir, filepath.FromSlash(folder)), key: p.Key + " " + folder, plugin: p.Name, inside: folder}
	e, err := l.pluginEntry(m.key, m.dir)
	if err != nil {
		m.Skill = broken(name, "files", sandbox.TextOf(format.Unreadable(err)))
	} else {
		m.Skill, m.files = l.parse(e, name), e.files
	}
	m.Skill.Category, m.Skill.Trusted = sandbox.PluginCategory+p.Name, p.Trusted
	m.Skill.Location = path.Join(sandbox.PluginsDir, p.Name, folder, fileName)
	return m
}

// pluginEntry reads a skill's folder in a plugin once: it never changes.
func (l *Library) pluginEntry(key, dir string) (*entry, error) {
	l.mu.Lock()
	e := l.inPlugins[key]
	l.mu.Unlock()
	if e != nil && e.dir == dir {
		return e, nil
	}
	e, err := readEntry(dir)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.inPlugins) > 4*maxPublic {
		clear(l.inPlugins)
	}
	l.inPlugins[key] = e
	return e, nil
}

// List returns all skills, sorted by name, also skills that are off or do not load. Callers must not change
// it.
func (s *Set) List() []sandbox.Skill { return s.skills }

// Get returns a skill. A skill of a plugin is also found as <plugin>:<skill>. NotFound when there is none.
func (s *Set) Get(name string) (sandbox.Skill, error) {
	if m := lookup(s.members, name); m != nil {
		return m.Skill, nil
	}
	return sandbox.Skill{}, sandbox.Errorf(sandbox.NotFound, "there is no skill %.80q", name)
}

// Open opens the folder of a skill for reading; the caller closes it. NotFound when there is none of that name.
func (s *Set) Open(name string) (*os.Root, error) {
	m := lookup(s.members, name)
	if m == nil {
		return nil, sandbox.Errorf(sandbox.NotFound, "there is no skill %.80q", name)
	}
	root, err := os.OpenRoot(m.dir)
	if err != nil {
		return nil, format.Unreadable(err)
	}
	return root, nil
}

// Text returns the SKILL.md of a skill, on or off, at most format.MaxTextBytes and one byte of it. NotFound when there is none
// of that name, or its files cannot be read.
func (s *Set) Text(name string) ([]byte, error) {
	m := lookup(s.members, name)
	if m == nil || m.dir == "" {
		return nil, sandbox.Errorf(sandbox.NotFound, "there is no text of a skill %.80q", name)
	}
	return m.read(fileName, format.MaxTextBytes+1)
}

func lookup(members map[string]*Member, name string) *Member {
	if m := members[name]; m != nil {
		return m
	}
	if plugin, short, ok := strings.Cut(name, ":"); ok {
		if m := members[short]; m != nil && m.plugin == plugin {
			return m
		}
	}
	if i := strings.LastIndexByte(name, ':'); i > 0 { // of an MCP server
		if m := members[sandbox.ServerSkillFolder(name[:i], name[i+1:])]; m != nil && m.Skill.Category == sandbox.ServerCategory+name[:i] {
			return m
		}
	}
	return nil
}

// View is what one thread has of a Set: the skills that are on, and what its sandbox shows of them. It does not change.
type View struct {
	skills  []sandbox.Skill // sorted by name
	members map[string]*Member
	trees   []Tree // sorted by path

	once sync.Once
	hash string
}

// Tree is a folder that a sandbox shows.
type Tree struct {
	Path    string        // relative to /mnt, with slashes: "skills/public/pdf", "plugins/sales"
	Dir     string        // host folder
	Key     string        // names the contents
	Without []string      // paths in it that are left out, sorted
	files   []format.File // when they are known
	// doubtful says that a former process made what is there.
	doubtful bool
}

// View returns the view of a thread that has all skills that are on, or only the named ones. It also has
// virtual skills of its own, which hide others of their name.
func (s *Set) View(only []string, virtual []*Member) *View {
	v := &View{members: map[string]*Member{}}
	allowed := map[string]bool{}
	for _, name := range only {
		if m := lookup(s.members, name); m != nil {
			name = m.Skill.Name
		}
		allowed[name] = true
	}
	for _, m := range virtual {
		v.members[m.Skill.Name] = m
	}
	without := map[string][]string{}
	for name, m := range s.members {
		if m.Skill.Enabled && (only == nil || allowed[name]) && v.members[name] == nil {
			v.members[name] = m
		} else if m.plugin != "" {
			without[m.plugin] = append(without[m.plugin], m.inside)
		}
	}
	for _, m := range virtual {
		v.skills = append(v.skills, m.Skill)
	}
	for _, m := range v.members {
		if !slices.Contains(virtual, m) {
			v.skills = append(v.skills, m.Skill)
		}
		if m.plugin == "" {
			v.trees = append(v.trees, Tree{Path: strings.TrimPrefix(path.Dir(m.Skill.Location), path.Dir(sandbox.SkillsDir)+"/"), Dir: m.dir, Key: m.key, files: m.files})
		}
	}
	if s.plugins != nil {
		for _, p := range s.plugins.List {
			hidden := slices.Sorted(slices.Values(without[p.Name]))
			if slices.Contains(hidden, ".") { // the plugin as a whole is a skill, which is off
				continue
			}
			v.trees = append(v.trees, Tree{Path: path.Join("plugins", p.Name), Dir: p.Dir, Key: fmt.Sprintf("%s %q", p.Key, hidden), Without: hidden})
		}
	}
	InOrder(v.skills)
	slices.SortFunc(v.trees, func(a, b Tree) int { return strings.Compare(a.Path, b.Path) })
	return v
}

// InOrder sorts skills of a thread: first those that it was given, in their order, then all others by name.
func InOrder(list []sandbox.Skill) {
	given := func(s sandbox.Skill) int {
		if s.Category == sandbox.CategoryVirtual {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(list, func(a, b sandbox.Skill) int {
		if given(a) == 0 && given(b) == 0 {
			return 0
		}
		return cmp.Or(given(a)-given(b), strings.Compare(a.Name, b.Name))
	})
}

// NoView is the view of a thread whose skills are not known.
func NoView() *View { return &View{} }

// List returns the skills of the thread, as InOrder sorts them. Callers must not change it.
func (v *View) List() []sandbox.Skill { return v.skills }

// Trees are the folders that the thread's sandbox shows, sorted by path. Callers must not change it.
func (v *View) Trees() []Tree { return v.trees }

func (v *View) find(name string) (*Member, error) {
	if m := lookup(v.members, name); m != nil {
		return m, nil
	}
	return nil, sandbox.Errorf(sandbox.NotFound, "there is no skill %.80q", name)
}

// Get returns a skill of the thread. NotFound when it has none of that name.
func (v *View) Get(name string) (sandbox.Skill, error) {
	m, err := v.find(name)
	if err != nil {
		return sandbox.Skill{}, err
	}
	return m.Skill, nil
}

// Manifest returns a skill with the digests of its files, which callers must not change. NotFound when the
// thread has no such skill.
func (v *View) Manifest(name string) (sandbox.SkillManifest, error) {
	m, err := v.find(name)
	if err != nil {
		return sandbox.SkillManifest{}, err
	}
	out := sandbox.SkillManifest{Name: m.Skill.Name, Description: m.Skill.Description, Location: m.Skill.Location, Frontmatter: m.Skill.Frontmatter}
	for _, f := range m.files {
		out.Files = append(out.Files, f.SkillFile)
	}
	return out, nil
}

// ReadFile returns one file of a skill, path relative to its folder. NotFound: the thread has no such skill, or it no
// such file.
func (v *View) ReadFile(name, file string) ([]byte, error) {
	m, err := v.find(name)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(m.files, func(f format.File) bool { return f.Path == file }) {
		return nil, sandbox.Errorf(sandbox.NotFound, "skill %q has no file %.200q", name, file)
	}
	return m.read(file, format.MaxBytes)
}

func (m *Member) read(file string, limit int64) ([]byte, error) {
	root, err := os.OpenRoot(m.dir)
	if err != nil {
		return nil, format.Unreadable(err)
	}
	defer root.Close() //nolint:errcheck // it was read
	f, err := root.Open(filepath.FromSlash(file))
	if err != nil {
		return nil, format.Unreadable(err)
	}
	defer f.Close() //nolint:errcheck // it was read
	data, err := io.ReadAll(io.LimitReader(f, limit))
	if err != nil {
		return nil, format.Unreadable(err)
	}
	return data, nil
}

// maxShebang is Linux's own limit of a #! line (BINPRM_BUF_SIZE).
const maxShebang = 256

// Argv is the command line, inside a sandbox, of a script of a skill. NotFound: no such skill or
// script; Invalid: the path leaves the skill; NotSupported: nothing says what runs it.
func (v *View) Argv(name, script string) ([]string, error) {
	m, err := v.find(name)
	if err != nil {
		return nil, err
	}
	if !filepath.IsLocal(script) {
		return nil, sandbox.Errorf(sandbox.Invalid, "script %.200q: give a path relative to the skill, such as scripts/run.py", script)
	}
	script = path.Clean(filepath.ToSlash(script))
	if !slices.ContainsFunc(m.files, func(f format.File) bool { return f.Path == script }) {
		return nil, sandbox.Errorf(sandbox.NotFound, "skill %q has no script %.200q", name, script)
	}
	head, err := m.read(script, maxShebang)
	if err != nil {
		return nil, err
	}
	argv, err := format.Interpreter(string(head), script)
	if err != nil {
		return nil, err
	}
	return append(argv, path.Join(path.Dir(m.Skill.Location), script)), nil
}

// runModule runs a Python module of the folder $1: what is beside it in the skill can be imported, as when the skill's
// folder is the working one. PYTHONPATH keeps what the exec has.
const runModule = `PYTHONPATH="$1${PYTHONPATH:+:$PYTHONPATH}" && export PYTHONPATH && shift && exec python3 -m "$@"`

// ModuleArgv is the command line, inside a sandbox, of a Python module of a skill. NotFound: no such skill or module.
func (v *View) ModuleArgv(name, module string) ([]string, error) {
	m, err := v.find(name)
	if err != nil {
		return nil, err
	}
	base := strings.ReplaceAll(module, ".", "/")
	if !slices.ContainsFunc(m.files, func(f format.File) bool { return f.Path == base+".py" || f.Path == base+"/__main__.py" }) {
		return nil, sandbox.Errorf(sandbox.NotFound, "skill %q has no module %.200q: there is neither %[3]s.py nor %[3]s/__main__.py", name, module, base)
	}
	return []string{"sh", "-c", runModule, "sh", path.Dir(m.Skill.Location), module}, nil
}

// Everybody returns the view of a user who has nothing of their own and said nothing: all public skills that load, and
// the plugins that come with the server.
func (l *Library) Everybody() *View {
	s := &Set{gen: l.public.look(time.Now(), false), index: emptyIndex, state: allOn{}}
	if l.o.Plugins != nil {
		var err error
		if s.plugins, err = l.o.Plugins(sandbox.Owner{}); err != nil {
			s.plugins = nil // users see them all the same, a moment later
		}
	}
	l.mu.Lock()
	known := l.everybody
	l.mu.Unlock()
	if known.view != nil && known.gen == s.gen && known.plugins == s.plugins {
		return known.view
	}
	l.fill(s)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.everybody = everybody{s.gen, s.plugins, s.View(nil, nil)}
	return l.everybody.view
}

type everybody struct {
	gen     uint64
	plugins *Plugins
	view    *View
}

// allOn is the State in which nothing was said.
type allOn struct{}

// Skill implements State.
func (allOn) Skill(string) (enabled, said bool) { return true, false }
