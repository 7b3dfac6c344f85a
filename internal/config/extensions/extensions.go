package extensions

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/skerry-sandbox/skerry/internal/platform/jsonedit"
	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	// MaxBytes is the most that one file may have.
	MaxBytes = 4 << 20
	// maxUsers is how many users' files are remembered in memory.
	maxUsers = 10_000
)

// Sections of a file whose members can be switched on and off.
const (
	SkillsSection  = "skills"
	PluginsSection = "plugins"
)

// Files are extensions_config.json and the files of the users beside it. All methods may be called at
// the same time.
type Files struct {
	path string // absolute

	mu    sync.Mutex
	all   *follower
	users map[sandbox.Owner]*follower
	both  map[sandbox.Owner]*State
}

// New follows the file at path, which need not be there. An empty path stands for a file that is never there and
// cannot be written.
func New(path string) (*Files, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("extensions: %w", err)
	}
	if path == "" {
		abs = ""
	}
	return &Files{path: abs, all: follow(abs), users: map[sandbox.Owner]*follower{}, both: map[sandbox.Owner]*State{}}, nil
}

// Path is the global file, "" when there is none.
func (f *Files) Path() string { return f.path }

// userPath is where a user's choices lie. The names were checked when the user came in; that is
// checked again, because they become a path.
func (f *Files) userPath(o sandbox.Owner) (string, error) {
	if err := errors.Join(sandbox.CheckOwnerName("tenant", o.Tenant), sandbox.CheckOwnerName("user", o.User)); err != nil {
		return "", err
	}
	return filepath.Join(strings.TrimSuffix(f.path, ".json")+".d", o.Tenant, o.User+".json"), nil
}

// State is what holds for one user: the global file, and the user's own, which wins. It does not change; as long
// as neither file does, State returns the same pointer.
type State struct {
	global, user *document
}

// Skill says whether a skill is switched on, and whether a file says so: one of which none speaks is on.
func (s *State) Skill(name string) (enabled, said bool) { return s.lookup(SkillsSection, name) }

// Plugin is Skill for a plugin.
func (s *State) Plugin(name string) (enabled, said bool) { return s.lookup(PluginsSection, name) }

func (s *State) lookup(section, name string) (enabled, said bool) {
	for _, d := range []*document{s.user, s.global} {
		if on, ok := d.switches[section][name]; ok {
			return on, true
		}
	}
	return true, false
}

// Raw returns the value of a section as it is in the user's file, or the global one when the owner is
// the zero Owner; nil when it is not there. Its ${…} are not expanded.
func (f *Files) Raw(o sandbox.Owner, section string) (json.RawMessage, error) {
	d, err := f.document(o)
	if err != nil {
		return nil, err
	}
	return d.sections[section], nil
}

// State returns what holds for a user now. Unavailable when a file is broken and was never whole since
// this process started: then nothing can be said to be allowed. A file that breaks later counts as it was.
func (f *Files) State(o sandbox.Owner) (*State, error) {
	global, err := f.document(sandbox.Owner{})
	if err != nil {
		return nil, err
	}
	user, err := f.document(o)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.both[o]; s != nil && s.global == global && s.user == user {
		return s, nil
	}
	if len(f.both) >= maxUsers {
		clear(f.both)
	}
	s := &State{global: global, user: user}
	f.both[o] = s
	return s, nil
}

// Problem says why the global file, as it is now, is not in force, or nil.
func (f *Files) Problem() error {
	if f.path == "" {
		return nil
	}
	_, err := f.all.Current()
	return err
}

// SetEnabled switches a member of a section on or off: for a user, or for all users when the owner is
// the zero Owner. All else in the file stays as it is, also the member's other keys.
func (f *Files) SetEnabled(ctx context.Context, o sandbox.Owner, section, name string, enabled bool) error {
	return f.Edit(ctx, o, func(text []byte) ([]byte, error) {
		return jsonedit.Set(text, []string{section, name}, "enabled", fmt.Append(nil, enabled))
	})
}

// Forget removes a member of a section: what was said of something that no longer exists.
func (f *Files) Forget(ctx context.Context, o sandbox.Owner, section, name string) error {
	return f.Edit(ctx, o, func(text []byte) ([]byte, error) {
		if len(bytes.TrimSpace(text)) == 0 {
			return nil, nil
		}
		out, found, err := jsonedit.Remove(text, []string{section}, name)
		if !found {
			out = nil
		}
		return out, err
	})
}

// Users lists the users of a tenant of whom there is a file, sorted.
func (f *Files) Users(tenant string) []string {
	if f.path == "" || sandbox.CheckOwnerName("tenant", tenant) != nil {
		return nil
	}
	entries, err := os.ReadDir(filepath.Join(strings.TrimSuffix(f.path, ".json")+".d", tenant))
	if err != nil {
		return nil // there is none
	}
	var users []string
	for _, e := range entries {
		if user, ok := strings.CutSuffix(e.Name(), ".json"); ok && sandbox.CheckOwnerName("user", user) == nil {
			users = append(users, user)
		}
	}
	return users
}

// Edit changes the user's file, or the global file for the zero Owner, under a lock between processes.
// change gets its text, nil when there is none, and returns the new text, or nil to leave it. Errors of
// change come back as they are. Conflict: the file is broken and must be mended by hand first; Unavailable:
// it cannot be read or written now.
func (f *Files) Edit(ctx context.Context, o sandbox.Owner, change func(text []byte) ([]byte, error)) error {
	path, err := f.path, error(nil)
	if o != (sandbox.Owner{}) {
		path, err = f.userPath(o)
	}
	if err != nil {
		return err
	}
	if f.path == "" {
		return sandbox.Errorf(sandbox.NotSupported, "this server has no extensions_config.json")
	}
	name := filepath.Base(f.path)
	var own error
	err = lockedfile.Edit(ctx, path, MaxBytes, func(text []byte) ([]byte, error) {
		if _, err := parse(text); err != nil {
			own = sandbox.Wrap(sandbox.Conflict, err, "%s is broken, mend it first: %s", name, err)
			return nil, own
		}
		var out []byte
		if out, own = change(text); own != nil || out == nil {
			return nil, own
		}
		if _, err := parse(out); err != nil {
			own = sandbox.Wrap(sandbox.Invalid, err, "%s would be wrong: %s", name, err)
		}
		return out, own
	})
	if err != nil && own == nil {
		return sandbox.Wrap(sandbox.Unavailable, err, "%s cannot be changed now", name)
	}
	return own
}

func (f *Files) document(o sandbox.Owner) (*document, error) {
	if f.path == "" {
		return nothing, nil
	}
	if o == (sandbox.Owner{}) {
		return f.all.current()
	}
	path, err := f.userPath(o)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	u := f.users[o]
	if u == nil {
		if len(f.users) >= maxUsers {
			clear(f.users)
		}
		u = follow(path)
		f.users[o] = u
	}
	f.mu.Unlock()
	return u.current()
}

// follower follows one file.
type follower struct{ lockedfile.Follower[*document] }

func follow(path string) *follower {
	return &follower{lockedfile.Follower[*document]{Path: path, Limit: MaxBytes, Parse: parse}}
}

// current returns the document in force: the last good one.
func (f *follower) current() (*document, error) {
	doc, err := f.Current()
	if doc == nil {
		return nil, sandbox.Wrap(sandbox.Unavailable, err, "%s is broken, mend it: %s", filepath.Base(f.Path), reason(err))
	}
	return doc, nil
}

// reason is err without host paths.
func reason(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err.Error()
	}
	return err.Error()
}

// document is what a file says. It does not change.
type document struct {
	sections map[string]json.RawMessage
	switches map[string]map[string]bool
}

var nothing = &document{}

// parse reads a file. An error names the place and the reason, never a value.
func parse(text []byte) (*document, error) {
	switch {
	case len(text) > MaxBytes:
		return nil, fmt.Errorf("more than %d bytes", MaxBytes)
	case len(bytes.TrimSpace(text)) == 0:
		return nothing, nil
	case !utf8.Valid(text):
		return nil, errors.New("not UTF-8")
	}
	top, err := jsonedit.Members(text, "")
	if err != nil {
		return nil, err
	}
	d := &document{sections: map[string]json.RawMessage{}, switches: map[string]map[string]bool{}}
	for _, m := range top.All {
		d.sections[m.Key] = m.Value(text)
		if m.Key != SkillsSection && m.Key != PluginsSection || string(m.Value(text)) == "null" {
			continue
		}
		members, err := m.Members(text, m.Key)
		if err != nil {
			return nil, err
		}
		d.switches[m.Key] = map[string]bool{}
		for _, one := range members.All {
			on, ok, err := enabled(one.Value(text))
			if err != nil {
				return nil, fmt.Errorf("%s.%.80q: want an object whose \"enabled\" is true or false", m.Key, one.Key)
			}
			if ok {
				d.switches[m.Key][one.Key] = on
			}
		}
	}
	return d, nil
}

// enabled reads {"enabled": …}, or a plain true or false.
func enabled(raw []byte) (on, ok bool, err error) {
	if err := json.Unmarshal(raw, &on); err == nil {
		return on, string(raw) != "null", nil
	}
	var v struct {
		Enabled *bool `json:"enabled"`
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return false, false, err
	}
	if v.Enabled == nil {
		return false, false, nil
	}
	return *v.Enabled, true, nil
}
