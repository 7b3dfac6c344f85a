package plugins

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"path/filepath"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	maxStateBytes = 16 << 20
	maxInstalled  = 500 // of one user, and of one tenant for all of its users
	// maxInstalledBytes is how many bytes their files have together.
	maxInstalledBytes = 4 << 30
	maxMarketplaces   = 50
	maxOwners         = 10_000
)

// state is what one file says: tenants/<tenant>/plugins.json for all users of a tenant, and
// tenants/<tenant>/users/<user>/plugins.json for one. It does not change.
type state struct {
	Plugins      map[string]record      `json:"plugins"`
	Marketplaces map[string]marketplace `json:"marketplaces,omitempty"`
}

// record is one installed plugin: where it came from, and which files it has.
type record struct {
	Digest      string               `json:"digest"`
	Bytes       int64                `json:"bytes,omitempty"` // of its files; 0 of one that a version up to 0.1 installed
	Source      sandbox.PluginSource `json:"source"`
	Entry       json.RawMessage      `json:"entry,omitempty"` // of the marketplace
	InstalledAt time.Time            `json:"installed_at"`
	InstalledBy string               `json:"installed_by"`
}

// marketplace is a marketplace that a user added.
type marketplace struct {
	Source  Source          `json:"source"` // what was asked for
	Commit  string          `json:"commit,omitempty"`
	SHA256  string          `json:"sha256,omitempty"`
	AddedAt time.Time       `json:"added_at"`
	List    json.RawMessage `json:"list"` // its marketplace.json
}

// stateFile follows one file.
type stateFile struct{ lockedfile.Follower[*state] }

var noState = &state{}

// current returns what the file says; the same pointer as long as it does. Unavailable when it is broken.
func (f *stateFile) current() (*state, error) {
	st, err := f.Current()
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Unavailable, err, "the list of installed plugins is broken; it must be mended by hand")
	}
	return st, nil
}

func parseState(text []byte) (*state, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return noState, nil
	}
	if len(text) > maxStateBytes {
		return nil, errors.New("too large")
	}
	var s state
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, err
	}
	return &s, nil
}

// stateFiles are the lists of all tenants and users.
type stateFiles struct {
	dir string

	mu     sync.Mutex
	byPath map[string]*stateFile
}

// of returns the two files that count for a user. The names were checked when the user came in; that is checked
// again, because they become paths.
func (s *stateFiles) of(o sandbox.Owner) (shared, own *stateFile, err error) {
	if err := errors.Join(sandbox.CheckOwnerName("tenant", o.Tenant), sandbox.CheckOwnerName("user", o.User)); err != nil {
		return nil, nil, err
	}
	base := filepath.Join(s.dir, "tenants", o.Tenant)
	return s.at(filepath.Join(base, "plugins.json")), s.at(filepath.Join(base, "users", o.User, "plugins.json")), nil
}

// current returns what the two files say. The zero Owner has none.
func (s *stateFiles) current(o sandbox.Owner) (shared, own *state, err error) {
	if o == (sandbox.Owner{}) {
		return noState, noState, nil
	}
	sharedFile, ownFile, err := s.of(o)
	if err != nil {
		return nil, nil, err
	}
	if shared, err = sharedFile.current(); err != nil {
		return nil, nil, err
	}
	own, err = ownFile.current()
	return shared, own, err
}

// used returns the digests of all plugins that a list names.
func (s *stateFiles) used() (map[string]bool, error) {
	used := map[string]bool{}
	for _, pattern := range []string{"tenants/*/plugins.json", "tenants/*/users/*/plugins.json"} {
		files, err := filepath.Glob(filepath.Join(s.dir, pattern))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			st, err := s.at(file).current()
			if err != nil {
				return nil, err // what it names is not known
			}
			for _, r := range st.Plugins {
				used[r.Digest] = true
			}
		}
	}
	return used, nil
}

func (s *stateFiles) at(path string) *stateFile {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.byPath[path]
	if f == nil {
		if len(s.byPath) >= maxOwners {
			clear(s.byPath)
		}
		f = &stateFile{lockedfile.Follower[*state]{Path: path, Limit: maxStateBytes, Parse: parseState}}
		s.byPath[path] = f
	}
	return f
}

// edit changes the file in one step.
func (f *stateFile) edit(ctx context.Context, change func(*state) error) error {
	var own error
	err := lockedfile.Edit(ctx, f.Path, maxStateBytes, func(text []byte) ([]byte, error) {
		st, err := parseState(text)
		if err != nil {
			own = sandbox.Wrap(sandbox.Unavailable, err, "the list of installed plugins is broken; it must be mended by hand")
			return nil, own
		}
		next := state{Plugins: map[string]record{}, Marketplaces: map[string]marketplace{}}
		maps.Copy(next.Plugins, st.Plugins)
		maps.Copy(next.Marketplaces, st.Marketplaces)
		if own = change(&next); own != nil {
			return nil, own
		}
		out, err := json.MarshalIndent(next, "", "  ")
		if err == nil && len(out) > maxStateBytes {
			own = sandbox.Errorf(sandbox.QuotaExceeded, "there is no room for more plugins and marketplaces")
			return nil, own
		}
		return out, err
	})
	if err != nil && own == nil {
		return sandbox.Wrap(sandbox.Unavailable, err, "the list of installed plugins cannot be changed now")
	}
	return own
}
