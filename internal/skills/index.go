package skills

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills/format"
)

// Limits of one user's skills.
const (
	maxCustom      = 10_000
	maxCustomBytes = 1 << 30
	maxIndexBytes  = 32 << 20
	// maxKept is how many findings of an install are kept with a skill.
	maxKept = 20
)

// index is the skills.json of a user: which skills of the store are the user's own.
type index struct {
	Version int               `json:"version"` // 1
	Skills  map[string]record `json:"skills"`  // by name
}

// record is one skill of a user.
type record struct {
	Digest   string            `json:"digest"`
	Bytes    int64             `json:"bytes"`
	Added    time.Time         `json:"added_at"`
	Source   string            `json:"source,omitempty"`
	Trusted  bool              `json:"trusted"`
	Findings []sandbox.Finding `json:"findings,omitempty"`
}

var emptyIndex = &index{Version: 1}

func parseIndex(text []byte) (*index, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return emptyIndex, nil
	}
	if len(text) > maxIndexBytes {
		return nil, errors.New("the list of skills is too large")
	}
	var x index
	if err := json.Unmarshal(text, &x); err != nil {
		return nil, fmt.Errorf("the list of skills: %w", err)
	}
	if x.Version != 1 {
		return nil, fmt.Errorf("the list of skills has version %d, want 1", x.Version)
	}
	for name := range x.Skills {
		if format.CheckName(name) != nil {
			delete(x.Skills, name)
		}
	}
	return &x, nil
}

// indexFile follows the index of one user. As long as it does not change, current returns the same pointer.
type indexFile struct{ lockedfile.Follower[*index] }

func (f *indexFile) current() (*index, error) {
	x, err := f.Current()
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Unavailable, err, "the list of your skills cannot be read")
	}
	return x, nil
}

// edit changes the index while no other process does.
func (f *indexFile) edit(ctx context.Context, change func(map[string]record) error) error {
	var own error
	err := lockedfile.Edit(ctx, f.Path, maxIndexBytes, func(text []byte) ([]byte, error) {
		x, err := parseIndex(text)
		if err != nil {
			return nil, err
		}
		if x.Skills == nil {
			x = &index{Version: 1, Skills: map[string]record{}}
		}
		if own = change(x.Skills); own != nil {
			return nil, own
		}
		return json.MarshalIndent(x, "", " ")
	})
	if err != nil && own == nil {
		return sandbox.Wrap(sandbox.Unavailable, err, "the list of your skills cannot be changed now")
	}
	return own
}

// index returns the index of a user.
func (l *Library) index(o sandbox.Owner) (*indexFile, error) {
	if err := errors.Join(sandbox.CheckOwnerName("tenant", o.Tenant), sandbox.CheckOwnerName("user", o.User)); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.indexes[o]
	if f == nil {
		if len(l.indexes) >= maxOwners {
			clear(l.indexes)
		}
		f = &indexFile{lockedfile.Follower[*index]{
			Path:  filepath.Join(l.o.Users, o.Tenant, "users", o.User, "skills.json"),
			Limit: maxIndexBytes, Parse: parseIndex,
		}}
		l.indexes[o] = f
	}
	return f, nil
}
