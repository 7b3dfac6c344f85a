package source

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills/format"
)

// Lock is a skills.lock.json: the very skills that were installed.
type Lock struct {
	Version int      `json:"version"`
	Skills  []Locked `json:"skills"` // sorted by name
}

// Locked is one skill of a Lock.
type Locked struct {
	Name   string    `json:"name"`
	Source string    `json:"source"`
	Digest string    `json:"digest"`
	Time   time.Time `json:"installed_at"` // UTC, of the install of this digest
}

const (
	lockVersion  = 1
	maxLockBytes = 4 << 20
)

// ReadLock reads a lock file. NotFound: it is not there.
func ReadLock(file string) (Lock, error) {
	raw, err := readFile(file, maxLockBytes)
	if err != nil {
		return Lock{}, err
	}
	var l Lock
	if err := json.Unmarshal(raw, &l); err != nil {
		return Lock{}, sandbox.Errorf(sandbox.Invalid, "%s is not JSON: %s", filepath.Base(file), err)
	}
	if l.Version != lockVersion {
		return Lock{}, sandbox.Errorf(sandbox.Invalid, "%s is of version %d, and this program knows %d", filepath.Base(file), l.Version, lockVersion)
	}
	seen := map[string]bool{}
	for i, s := range l.Skills {
		if s.Name == "" || seen[s.Name] || !format.CheckDigest(s.Digest) {
			return Lock{}, sandbox.Errorf(sandbox.Invalid, "%s: skills[%d] has no name, a name that is there twice, or no digest", filepath.Base(file), i)
		}
		seen[s.Name] = true
	}
	return l, nil
}

// With returns a lock of these skills. A skill that was there with the same source and digest keeps its time.
func (l Lock) With(skills []Skill, now time.Time) Lock {
	next := Lock{Version: lockVersion, Skills: []Locked{}}
	for _, s := range skills {
		locked := Locked{Name: s.Name, Source: s.Source, Digest: s.Digest, Time: now.UTC().Truncate(time.Second)}
		for _, old := range l.Skills {
			if old.Name == s.Name && old.Source == s.Source && old.Digest == s.Digest {
				locked.Time = old.Time
			}
		}
		next.Skills = append(next.Skills, locked)
	}
	slices.SortFunc(next.Skills, func(a, b Locked) int { return strings.Compare(a.Name, b.Name) })
	return next
}

// Check compares what the sources have now with the lock. Conflict names each difference.
func (l Lock) Check(skills []Skill) error {
	var differ []string
	now := map[string]Skill{}
	for _, s := range skills {
		now[s.Name] = s
	}
	for _, want := range l.Skills {
		got, ok := now[want.Name]
		switch {
		case !ok:
			differ = append(differ, fmt.Sprintf("%s is locked, but no source has it", want.Name))
		case got.Source != want.Source:
			differ = append(differ, fmt.Sprintf("%s is locked to %s, but comes from %s", want.Name, want.Source, got.Source))
		case got.Digest != want.Digest:
			differ = append(differ, fmt.Sprintf("%s from %s is locked to %s, but is %s now", want.Name, want.Source, want.Digest, got.Digest))
		}
		delete(now, want.Name)
	}
	for _, s := range skills {
		if _, left := now[s.Name]; left {
			differ = append(differ, fmt.Sprintf("%s from %s is not locked", s.Name, s.Source))
		}
	}
	if len(differ) > 0 {
		return sandbox.Errorf(sandbox.Conflict, "the skills are not those of the lock file:\n  %s", strings.Join(differ, "\n  "))
	}
	return nil
}

// Write writes the lock, whole or not at all.
func (l Lock) Write(file string) error {
	raw, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}
	if err := lockedfile.ReplaceAs(file, append(raw, '\n'), 0o644); err != nil {
		return sandbox.Wrap(sandbox.Invalid, err, "%s cannot be written", filepath.Base(file))
	}
	return nil
}
