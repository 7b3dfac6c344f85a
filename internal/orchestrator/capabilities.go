package orchestrator

import (
	"context"
	"errors"
	"slices"

	"github.com/skerry-sandbox/skerry/internal/policy"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills/mounted"
)

// Capabilities returns those that a thread was narrowed to, nil when it was not. While the thread has a sandbox, they are
// in memory.
func (r *Orchestrator) Capabilities(ctx context.Context, t sandbox.Thread) ([]string, error) {
	inst := r.live.Find(t)
	if inst == nil {
		return r.storedCapabilities(ctx, t)
	}
	inst.Narrow.Mu.Lock()
	defer inst.Narrow.Mu.Unlock()
	if !inst.Narrow.Known {
		only, err := r.storedCapabilities(ctx, t)
		if err != nil {
			return nil, err
		}
		inst.Narrow.Only, inst.Narrow.Known = only, true
	}
	return inst.Narrow.Only, nil
}

func (r *Orchestrator) storedCapabilities(ctx context.Context, t sandbox.Thread) ([]string, error) {
	info, err := r.o.Store.Thread(ctx, t)
	if err != nil && !errors.Is(err, sandbox.NotFound) { // a thread that is not there yet was narrowed to nothing
		return nil, err
	}
	return info.Capabilities, nil
}

// narrowCapabilities remembers what a thread is narrowed to, and tells a running sandbox. A caller gives no
// thread what it does not have itself.
func (r *Orchestrator) narrowCapabilities(ctx context.Context, c sandbox.Caller, t sandbox.Thread, only []string) error {
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
	info, err := r.threads.EnsureRecord(ctx, t)
	if err != nil {
		return err
	}
	if mounted.SameList(info.Capabilities, only) {
		return nil
	}
	info.Capabilities = only
	if err := r.o.Store.PutThread(ctx, info); err != nil {
		return err
	}
	if inst := r.live.Find(t); inst != nil {
		inst.Narrow.Mu.Lock()
		inst.Narrow.Only, inst.Narrow.Known = only, true
		inst.Narrow.Mu.Unlock()
	}
	r.o.Hub.Announce()
	return nil
}
