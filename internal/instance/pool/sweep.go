package pool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/instance/hooks"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace"
)

// Root holds a folder for each sandbox that waits, "<sandbox>.<replica>", in the form of those of a user's threads. It is
// there before anything else of the sandbox is, and as long as no claim names it: so it says whose the run folder and the
// container are after a crash. No tenant's name begins with a dot.
type Root string

// RootIn is the folder in a data folder.
func RootIn(dataDir string) Root {
	return Root(filepath.Join(dataDir, "tenants", ".pool", "users", "pool", "threads"))
}

func (r Root) folder(id sandbox.ID, replica string) string {
	return filepath.Join(string(r), string(id)+"."+replica)
}

// Folder is one of them.
type Folder struct {
	Path    string
	ID      sandbox.ID
	Replica string // that made it
}

// List lists what waits, or waited, on any server.
func (r Root) List() ([]Folder, error) {
	entries, err := os.ReadDir(string(r))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("pool: %w", err)
	}
	var list []Folder
	for _, e := range entries {
		id, replica, ok := strings.Cut(e.Name(), ".")
		if ok && len(id) == len(sandbox.NewID()) {
			list = append(list, Folder{Path: filepath.Join(string(r), e.Name()), ID: sandbox.ID(id), Replica: replica})
		}
	}
	return list, nil
}

// Sweep removes what servers that ended had waiting, and what this one could not remove before. What a claim names is left to
// the server that takes that over.
func (p *Pool) Sweep() {
	folders, err := p.o.Root.List()
	if err != nil {
		p.o.Log.Warn("pool not swept", "error", err)
		return
	}
	folders = slices.DeleteFunc(folders, func(f Folder) bool { return !p.stale(f) })
	if len(folders) == 0 {
		return
	}
	claims, err := p.o.Records.All() // last: who could claim one of these now?
	if err != nil {
		p.o.Log.Error("claims not read", "error", err)
		return
	}
	claimed := map[sandbox.ID]bool{}
	for _, c := range claims {
		claimed[c.Sandbox] = true
	}
	for _, f := range folders {
		if p.ctx.Err() != nil {
			return
		}
		if !claimed[f.ID] {
			p.o.Reaper.Note(sandbox.Thread{}, f.ID, "a sandbox that waited in the pool of a server that ended", p.reap(f))
		}
	}
}

// stale reports whether no server hands a sandbox out any more. Of ours the folder is looked at last: a sandbox that is not known
// any more because a thread has it has moved before.
func (p *Pool) stale(f Folder) bool {
	if f.Replica != p.o.Peers.ID() {
		return !p.o.Peers.Alive(f.Replica)
	}
	if p.inventory.isKnown(f.ID) {
		return false
	}
	_, err := os.Lstat(f.Path)
	return err == nil
}

func (p *Pool) reap(f Folder) error {
	ctx, cancel := context.WithTimeout(p.ctx, hooks.RemoveTimeout)
	defer cancel()
	uid, err := workspace.UID(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		uid, err = 0, nil // another server is removing it, or had begun to
	}
	if err != nil {
		return err
	}
	if err := p.o.Driver.Remove(ctx, f.ID); err != nil {
		return err
	}
	p.o.Reaper.ClearAway(f.ID)
	return p.o.Folders.Drop(f.Path, uid)
}
