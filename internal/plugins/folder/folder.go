package folder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/plugins/tree"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills/archive"
)

// Installed is the folder of the plugins within Options.Dir, and within Options.FS.
const Installed = "installed"

const (
	maxPlugins = 500
	// A look at the stamps of all files may take a fiftieth of the time, or is made a second later. A folder that
	// takes more than a tenth of a second is looked at for a tenth of the time.
	lookShare = 50
	lookPause = time.Second
	slowShare = 10
	// staleAfter is how long the files of a changed plugin are kept: a sandbox or an MCP server may be starting with them.
	staleAfter = 10 * time.Minute
)

// Options say where plugins are. Keep and Log are needed.
type Options struct {
	// Dir is a folder on disk, whose changes are followed. A folder that is missing has no plugins.
	Dir string
	// FS is used when Dir is "", and is read once.
	FS fs.FS
	// Keep is a folder for the copies, which no other process uses. It is made when it is missing.
	Keep string
	Log  *slog.Logger
}

// Folder knows the plugins of one folder. All methods may be called at the same time.
type Folder struct {
	o     Options
	store *tree.Store

	mu      sync.Mutex
	list    *List
	stamps  map[string]lockedfile.Stamp // by folder
	next    time.Time                   // of the next look
	stale   map[string]time.Time        // digests of former plugins, and when they were replaced
	problem string                      // why the folder could not be read, when it was last told
}

// List is what the folder has at one moment. It does not change; as long as the folder does not, Current returns the
// same one.
type List struct {
	Plugins []Plugin // by Folder
}

// Plugin is one folder of installed/. It does not change.
type Plugin struct {
	Folder string // its name
	Dir    string // a copy of the folder; its files never change
	Digest string
	Bytes  int64
	Found  time.Time
	Err    error // why there is no copy; then Dir and Digest are ""
}

// Open reads the folder, and removes what a former process kept of plugins that are others now.
func Open(o Options) (*Folder, error) {
	if err := os.RemoveAll(filepath.Join(o.Keep, "stage")); err != nil {
		return nil, fmt.Errorf("plugins: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(o.Keep, "stage"), 0o711); err != nil {
		return nil, fmt.Errorf("plugins: %w", err)
	}
	st, err := tree.Open(filepath.Join(o.Keep, "store"))
	if err != nil {
		return nil, fmt.Errorf("plugins: %w", err)
	}
	if _, err := os.Stat(filepath.Join(o.Dir, Installed)); o.Dir != "" && err != nil {
		o.Log.Warn("the folder of plugins has none yet", "want", filepath.Join(o.Dir, Installed), "error", err)
	}
	f := &Folder{o: o, store: st, list: &List{}, stale: map[string]time.Time{}}
	f.look(time.Now())
	f.sweep(time.Now())
	return f, nil
}

// Current returns what the folder has now. A change is seen within a second.
func (f *Folder) Current() *List {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); f.o.Dir != "" && !now.Before(f.next) {
		f.look(now)
		cost := time.Since(now)
		f.next = time.Now().Add(min(lookShare*cost, max(lookPause, slowShare*cost)))
		if len(f.stale) > 0 {
			f.sweep(now)
		}
	}
	return f.list
}

// look copies the plugins that are new or have changed. f.mu is held, or f is new.
func (f *Folder) look(now time.Time) {
	names, err := f.names()
	f.tell(err)
	if err != nil { // what was there is in force until the folder can be read again
		return
	}
	if len(names) > maxPlugins {
		f.tell(fmt.Errorf("more than %d plugins; the rest is left out", maxPlugins))
		names = names[:maxPlugins]
	}
	known := map[string]Plugin{}
	for _, p := range f.list.Plugins {
		known[p.Folder] = p
	}
	next, stamps := &List{}, map[string]lockedfile.Stamp{}
	for _, name := range names {
		stamp := f.stamp(name)
		p, ok := known[name]
		if before, seen := f.stamps[name]; !ok || !seen || before != stamp {
			p = f.read(name, p, now)
		}
		if !stamp.Racy(now) { // else a later change may bear the same stamp
			stamps[name] = stamp
		}
		next.Plugins = append(next.Plugins, p)
	}
	f.stamps = stamps
	if slices.Equal(next.Plugins, f.list.Plugins) {
		return
	}
	for _, p := range f.list.Plugins {
		if p.Digest != "" {
			f.stale[p.Digest] = now
		}
	}
	f.list = next
}

// tell logs a problem of the folder when it is another one than before.
func (f *Folder) tell(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != f.problem {
		f.o.Log.Error("the folder of plugins is not read whole", "error", err)
	}
	f.problem = text
}

// names lists the folders that may be plugins, sorted.
func (f *Folder) names() ([]string, error) {
	var list []fs.DirEntry
	var err error
	if f.o.Dir != "" {
		list, err = os.ReadDir(filepath.Join(f.o.Dir, Installed))
	} else {
		list, err = fs.ReadDir(f.o.FS, Installed)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var names []string
	for _, e := range list {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		names = append(names, e.Name())
	}
	return names, nil
}

// stamp looks at the files of a plugin without reading them.
func (f *Folder) stamp(name string) (latest lockedfile.Stamp) {
	if f.o.Dir == "" {
		return latest
	}
	entries := 0
	// What cannot be read is said when it is copied.
	_ = filepath.WalkDir(filepath.Join(f.o.Dir, Installed, name), func(_ string, d fs.DirEntry, err error) error { //nolint:errcheck // see above
		if entries++; err != nil || entries > 4*tree.Limits().Files {
			return fs.SkipAll
		}
		if info, err := d.Info(); err == nil {
			latest = latest.Later(lockedfile.StampOf(info))
		}
		return nil
	})
	return latest
}

// read copies a plugin. It returns the former one when its files are the same, or fail for the same reason.
func (f *Folder) read(name string, former Plugin, now time.Time) Plugin {
	p := Plugin{Folder: name, Found: now}
	if err := f.copy(&p); err != nil {
		p.Err = fmt.Errorf("%s: %w", name, err)
	}
	switch {
	case p.Err == nil && former.Err == nil && former.Digest == p.Digest:
		return former
	case p.Err != nil && former.Err != nil && former.Err.Error() == p.Err.Error():
		return former
	case p.Err != nil:
		p.Dir, p.Digest, p.Bytes = "", "", 0
		f.o.Log.Warn("a plugin of the folder is left out", "plugin", name, "error", p.Err)
	}
	return p
}

func (f *Folder) copy(p *Plugin) (err error) {
	to, err := archive.NewFolder(filepath.Join(f.o.Keep, "stage"), tree.Limits())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(to.Dir())) }()
	err = f.fill(to, p.Folder)
	staged, closed := to.Done()
	if err = errors.Join(err, closed); err != nil {
		return err
	}
	if staged.Files == 0 {
		return sandbox.Errorf(sandbox.Invalid, "the folder %.200q is empty", p.Folder)
	}
	p.Bytes = staged.Bytes
	if p.Digest, err = tree.Digest(staged.Dir); err != nil {
		return err
	}
	if err := f.store.Add(staged.Dir, p.Digest); err != nil {
		return err
	}
	p.Dir, err = f.store.Get(p.Digest)
	return err
}

func (f *Folder) fill(to *archive.Folder, name string) error {
	ctx := context.Background()
	if f.o.Dir != "" {
		root, err := os.OpenRoot(filepath.Join(f.o.Dir, Installed, name))
		if err != nil {
			return err
		}
		defer root.Close() //nolint:errcheck // it was read
		var left []string
		return tree.Copy(ctx, root, ".", to, &left)
	}
	sub, err := fs.Sub(f.o.FS, path.Join(Installed, name))
	if err != nil {
		return err
	}
	return fs.WalkDir(sub, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		file, err := sub.Open(p)
		if err != nil {
			return err
		}
		return errors.Join(to.Add(ctx, p, false, file), file.Close())
	})
}

// sweep removes the copies of former plugins that were replaced long enough ago.
func (f *Folder) sweep(now time.Time) {
	used := map[string]bool{}
	for _, p := range f.list.Plugins {
		used[p.Digest] = true
		delete(f.stale, p.Digest)
	}
	due := len(f.stale) == 0 // of a former process
	for digest, since := range f.stale {
		if now.Sub(since) < staleAfter {
			used[digest] = true
			continue
		}
		delete(f.stale, digest)
		due = true
	}
	if !due {
		return
	}
	if err := f.store.Sweep(used); err != nil {
		f.o.Log.Warn("files of former plugins stay behind", "error", err)
	}
}
