package start

import (
	"context"
	"errors"
	"slices"

	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/policy"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills/mounted"
	"github.com/skerry-sandbox/skerry/internal/store"
	"github.com/skerry-sandbox/skerry/internal/workspace/threads"
)

// announcer tells all who list tools that they may have changed.
type announcer interface{ Announce() }

// Narrowing is the capabilities that threads were narrowed to.
type Narrowing struct {
	live  *instance.Map
	store *store.Store
}

// NewNarrowing returns the narrowing of the threads of a store; live are the instances of this server.
func NewNarrowing(live *instance.Map, s *store.Store) *Narrowing {
	return &Narrowing{live: live, store: s}
}

// narrower narrows threads.
type narrower struct {
	*Narrowing
	hub     announcer
	threads *threads.Threads
}

// Capabilities returns the capabilities that a thread was narrowed to, nil when it was not. While the thread
// has a sandbox, they are in memory.
func (n *Narrowing) Capabilities(ctx context.Context, t sandbox.Thread) ([]string, error) {
	inst := n.live.Find(t)
	if inst == nil {
		return n.stored(ctx, t)
	}
	inst.Narrow.Mu.Lock()
	defer inst.Narrow.Mu.Unlock()
	if !inst.Narrow.Known {
		only, err := n.stored(ctx, t)
		if err != nil {
			return nil, err
		}
		inst.Narrow.Only, inst.Narrow.Known = only, true
	}
	return inst.Narrow.Only, nil
}

func (n *Narrowing) stored(ctx context.Context, t sandbox.Thread) ([]string, error) {
	info, err := n.store.Thread(ctx, t)
	if err != nil && !errors.Is(err, sandbox.NotFound) { // a thread that is not there yet was narrowed to nothing
		return nil, err
	}
	return info.Capabilities, nil
}

// narrow remembers what a thread is narrowed to, and tells a running sandbox. A caller cannot grant a thread
// what it does not have itself.
func (n *narrower) narrow(ctx context.Context, c sandbox.Caller, t sandbox.Thread, only []string) error {
	if only == nil {
		return nil
	}
	if slices.Contains(only, sandbox.AllCapabilities) {
		only = nil
	} else {
		names, err := sandbox.CheckCapabilities(only)
		if err != nil {
			return err
		}
		only = append([]string{}, names...) // never nil: an empty list is not none
		for _, name := range only {
			if !policy.Holds(c, name) {
				return sandbox.Errorf(sandbox.Forbidden, "capabilities: you have not %q yourself", name)
			}
		}
	}
	same := false
	_, err := n.threads.ChangeRecord(ctx, t, func(info *sandbox.ThreadInfo) {
		same = mounted.SameList(info.Capabilities, only)
		info.Capabilities = only
	})
	n.forget(t) // also after an error, which leaves open what the store has
	if err != nil || same {
		return err
	}
	n.hub.Announce()
	return nil
}

// forget has the capabilities of a thread read from the store again. Two requests that narrow it at once may come
// here in another order than their writes did.
func (n *narrower) forget(t sandbox.Thread) {
	if inst := n.live.Find(t); inst != nil {
		inst.Narrow.Mu.Lock()
		inst.Narrow.Only, inst.Narrow.Known = nil, false
		inst.Narrow.Mu.Unlock()
	}
}
