package secrets

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/platform/every"
	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// What the operator of the machine sets, in files and variables, is for all tenants. Values are read when they
// are asked for, and not kept: a file that is replaced, as Kubernetes does by a link, counts at once.

const maxFiles = 1000

// operator returns a value of the file or the variable of a name.
func (s *Service) operator(name string) (value string, ok bool, err error) {
	if s.o.Dir != "" {
		stamp, text, err := lockedfile.Read(filepath.Join(s.o.Dir, name), MaxBytes+2)
		switch {
		case err != nil:
			return "", false, sandbox.Wrap(sandbox.Unavailable, err, "the file of the secret %q cannot be read", name)
		case stamp != (lockedfile.Stamp{}):
			return strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r"), true, nil
		}
	}
	if slices.Contains(s.o.Env, name) {
		value, ok = s.o.Lookup(name)
	}
	return value, ok, nil
}

// operators lists what there is in files and variables.
func (s *Service) operators() []Info {
	var list []Info
	for _, name := range s.files() {
		list = append(list, Info{Name: name, Scope: ScopeTenant, Source: "file", Exec: slices.Contains(s.o.Exec, name)})
	}
	for _, name := range s.o.Env {
		if _, ok := s.o.Lookup(name); ok {
			list = append(list, Info{Name: name, Scope: ScopeTenant, Source: "env", Exec: slices.Contains(s.o.Exec, name)})
		}
	}
	return list
}

// files returns the names of the files that are secrets: not the hidden ones, in which Kubernetes has its own.
func (s *Service) files() []string {
	if s.o.Dir == "" {
		return nil
	}
	entries, err := os.ReadDir(s.o.Dir)
	if err != nil {
		s.o.Log.Warn("secrets.dir cannot be read", "error", err)
		return nil
	}
	var names []string
	for _, e := range entries {
		if CheckName(e.Name()) != nil || len(names) == maxFiles {
			continue
		}
		if info, err := os.Stat(filepath.Join(s.o.Dir, e.Name())); err == nil && info.Mode().IsRegular() {
			names = append(names, e.Name())
		}
	}
	return names
}

// followEvery is how often changes of other servers, and of files, are looked for.
const followEvery = time.Second

// follower tells of changes.
type follower struct {
	s      *Service
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu   sync.Mutex
	tell []func()
	seen string
}

func (f *follower) start(s *Service) {
	ctx, cancel := context.WithCancel(context.Background())
	f.s, f.cancel = s, cancel
	f.seen = f.version(ctx)
	f.wg.Go(func() {
		for range every.Tick(ctx, followEvery) {
			if v := f.version(ctx); v != "" && f.isNew(v) {
				f.changed()
			}
		}
	})
}

func (f *follower) close() {
	f.cancel()
	f.wg.Wait()
}

func (f *follower) isNew(version string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	fresh := version != f.seen
	f.seen = version
	return fresh
}

// version is the same as long as nothing changes; "" when that is not known now.
func (f *follower) version(ctx context.Context) string {
	v, err := f.s.o.Store.SecretVersion(ctx)
	if err != nil {
		return ""
	}
	for _, name := range f.s.files() {
		stamp, err := lockedfile.Stat(filepath.Join(f.s.o.Dir, name))
		v += fmt.Sprint(" ", name, stamp, err)
	}
	return "v" + v
}

// changed tells all who want to know.
func (f *follower) changed() {
	f.mu.Lock()
	tell := slices.Clone(f.tell)
	f.mu.Unlock()
	for _, t := range tell {
		t()
	}
}

// OnChange has f called after a change, by this server at once, by others and of files within a second. It must not
// block.
func (s *Service) OnChange(f func()) {
	s.follow.mu.Lock()
	defer s.follow.mu.Unlock()
	s.follow.tell = append(s.follow.tell, f)
}
