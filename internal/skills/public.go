package skills

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills/format"
)

const (
	// maxPublic is how many folders of a source are looked at.
	maxPublic = 20_000
	// A look at the names and SKILL.md of all public skills may take a fiftieth of the time, or is made
	// after lookPause; one at all of their files, a hundredth, at most once in deepPause.
	lookShare = 50
	lookPause = time.Second
	deepShare = 100
	deepPause = 5 * time.Second
	// importers is how many skills are copied side by side.
	importers = 4
)

// Source is a folder whose folders are skills for all users.
type Source struct {
	// Dir is a folder on disk. Changes of names and of a SKILL.md are seen at the next look, changes of
	// other files within seconds. A missing folder has no skills.
	Dir string
	// FS is used when Dir is "", and is read once.
	FS fs.FS
	// Untrusted makes scripts of its skills want an approval.
	Untrusted bool
	// Defaults are those of its skills' scripts; nil: nothing.
	Defaults *sandbox.ScriptDefaults
	// Findings are about each of its skills.
	Findings []sandbox.Finding
}

// public follows the sources. The skills of the first one win.
type public struct {
	sources []Source
	store   *store
	log     *slog.Logger

	mu    sync.Mutex
	gen   uint64 // moves when skills do
	dirs  []lockedfile.Stamp
	found map[string]*publicSkill // by folder
	names []string                // sorted
	next  time.Time               // of the next look at all
	deep  time.Time               // of the next look at all files
}

// publicSkill is what was found in a folder.
type publicSkill struct {
	source int
	stamp  publicStamp
	racy   bool
	entry  *entry
	err    error // instead of entry
	hidden int   // of later sources, with the same name
}

type publicStamp struct{ dir, file, deepest lockedfile.Stamp }

// look updates found when it is time to, or when a source has another skill. gen moves when anything is
// new.
func (p *public) look(now time.Time, deep bool) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	dirs := make([]lockedfile.Stamp, len(p.sources))
	for i, s := range p.sources {
		if s.Dir != "" {
			dirs[i], _ = lockedfile.Stat(s.Dir) //nolint:errcheck // the zero stamp: it is not there
		}
	}
	deep = deep && now.After(p.deep)
	if p.found != nil && now.Before(p.next) && slices.Equal(dirs, p.dirs) && !deep {
		return p.gen
	}
	began := time.Now()
	p.scan(now, deep)
	cost := time.Since(began)
	p.dirs, p.next = dirs, now.Add(min(cost*lookShare, lookPause))
	if slices.ContainsFunc(dirs, func(s lockedfile.Stamp) bool { return s.Racy(now) }) {
		p.next = now
	}
	if deep {
		p.deep = now.Add(min(max(cost*deepShare, deepPause), 6*deepPause))
	}
	return p.gen
}

// scan reads what is new or has changed.
func (p *public) scan(now time.Time, deep bool) {
	found := map[string]*publicSkill{}
	var fresh []string
	for i, s := range p.sources {
		for _, name := range p.folders(s) {
			if first := found[name]; first != nil {
				first.hidden++
				continue
			}
			known := p.found[name]
			stamp := s.stamp(name, deep || known == nil)
			if known != nil && !deep {
				stamp.deepest = known.stamp.deepest
			}
			next := &publicSkill{source: i, stamp: stamp, racy: s.Dir != "" && (stamp.dir.Racy(now) || stamp.file.Racy(now) || stamp.deepest.Racy(now))}
			if known != nil && known.source == i && known.stamp == stamp && !known.racy {
				next.entry, next.err = known.entry, known.err
			} else {
				fresh = append(fresh, name)
			}
			found[name] = next
		}
	}
	p.read(found, fresh)
	changed := p.found == nil || len(found) != len(p.found)
	for name, s := range found {
		known := p.found[name]
		changed = changed || known == nil || known.entry != s.entry || (known.err == nil) != (s.err == nil) || known.hidden != s.hidden
	}
	p.found = found
	if changed {
		p.gen++
		p.names = p.names[:0:0]
		for name := range found {
			p.names = append(p.names, name)
		}
		slices.Sort(p.names)
	}
}

// folders returns the names of a source's folders that may be skills.
func (p *public) folders(s Source) []string {
	var list []fs.DirEntry
	var err error
	if s.Dir != "" {
		list, err = os.ReadDir(s.Dir)
	} else {
		list, err = fs.ReadDir(s.FS, ".")
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.log.Error("public skills not listed", "error", err)
	}
	var names []string
	for _, e := range list {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") || e.Name() == "node_modules" {
			continue
		}
		if len(names) == maxPublic {
			p.log.Error("too many public skills; the rest is left out", "limit", maxPublic)
			break
		}
		names = append(names, e.Name())
	}
	return names
}

// stamp looks at a folder of a source without reading its files.
func (s Source) stamp(name string, deep bool) publicStamp {
	if s.Dir == "" {
		return publicStamp{}
	}
	dir := filepath.Join(s.Dir, name)
	of := func(path string) lockedfile.Stamp {
		info, err := os.Lstat(path)
		if err != nil {
			return lockedfile.Stamp{}
		}
		return lockedfile.StampOf(info)
	}
	st := publicStamp{dir: of(dir), file: of(filepath.Join(dir, fileName))}
	if !deep {
		return st
	}
	entries := 0
	// What cannot be read is said when it is imported.
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error { //nolint:errcheck // see above
		if entries++; err != nil || entries > format.MaxEntries {
			return fs.SkipAll
		}
		if info, err := d.Info(); err == nil {
			st.deepest = st.deepest.Later(lockedfile.StampOf(info))
		}
		return nil
	})
	return st
}

// read copies new skills into the store.
func (p *public) read(found map[string]*publicSkill, names []string) {
	var wg sync.WaitGroup
	free := make(chan struct{}, importers)
	all := make([]*staged, len(names))
	for i, name := range names {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			all[i], found[name].err = p.stage(p.sources[found[name].source], name)
		})
	}
	wg.Wait()
	var good []*staged
	for i, name := range names {
		if found[name].err != nil {
			p.log.Warn("public skill left out", "skill", name, "error", found[name].err)
			continue
		}
		good = append(good, all[i])
		found[name].entry = all[i].entry
	}
	if err := p.store.commit(good...); err != nil {
		p.log.Error("public skills not stored", "error", err)
		for _, name := range names {
			if f := found[name]; f.err == nil && f.entry != nil && p.store.path(f.entry.digest) != f.entry.dir {
				f.entry, f.err, f.racy = nil, sandbox.Wrap(sandbox.Internal, err, "the skill cannot be stored"), true
			}
		}
	}
}

func (p *public) stage(s Source, name string) (*staged, error) {
	if err := format.CheckName(name); err != nil {
		return nil, err
	}
	if s.Dir == "" {
		sub, err := fs.Sub(s.FS, name)
		if err != nil {
			return nil, err
		}
		return p.store.stage(sub)
	}
	root, err := os.OpenRoot(filepath.Join(s.Dir, name))
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // it was read
	return p.store.stage(root.FS())
}
