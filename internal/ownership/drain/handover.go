package drain

import (
	"context"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/lifecycle"
	"github.com/skerry-sandbox/skerry/internal/platform/deadline"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	// handOverParallel is how many threads are handed over side by side.
	handOverParallel = 8
	// lastEntryBefore is how long before the end of a drain a busy sandbox takes its last exec. Later execs
	// wait until it is handed over, so that the drain ends no short one.
	lastEntryBefore = 5 * time.Second
)

// Target returns a replica that takes new work, "" when there is none.
func (s *Drain) Target(ctx context.Context) string { return s.targets.One(ctx) }

// LastEntry returns when busy sandboxes take their last exec; zero: at any time, or no drain has begun.
func (s *Drain) LastEntry() time.Time {
	if d := s.draining.Load(); d != nil {
		return d.until
	}
	return time.Time{}
}

// lastEntry is when sandboxes take the last exec in a drain that ends with ctx.
func (s *Drain) lastEntry(ctx context.Context) time.Time {
	end, ok := ctx.Deadline()
	if !ok {
		return time.Time{}
	}
	return end.Add(-min(lastEntryBefore, time.Until(end)/4))
}

// PassOn returns the replica to which work goes that any server could do, while this one stops: "" when it does not,
// or there is none.
func (s *Drain) PassOn(ctx context.Context) string {
	if d := s.draining.Load(); d == nil || !d.passOn {
		return ""
	}
	return s.targets.One(ctx)
}

// Stopping ends when this server begins to stop: streams without an end must not keep threads here.
func (s *Drain) Stopping() context.Context { return s.stopping }

// AwaitHandOver lets a request wait whose thread is being handed over just now. A request late in a drain
// waits, too, when the thread is to be handed over first.
func (s *Drain) AwaitHandOver(ctx context.Context, t sandbox.Thread) error {
	d := s.draining.Load()
	if d == nil || !d.passOn {
		return nil
	}
	ended, going := s.owners.Ending(t)
	if ended == nil || !going && (d.until.IsZero() || time.Now().Before(d.until)) {
		return nil
	}
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return sandbox.Wrap(sandbox.Unavailable, ctx.Err(), "this server is stopping and still runs something of the thread; try again")
	}
}

// handOverAll hands over what can be now, and returns how many threads are left. When no server takes them, they
// stay: the next server adopts what is left of this one.
func (s *Drain) handOverAll(ctx context.Context) (left int) {
	d := s.draining.Load()
	if d == nil || !d.passOn || s.targets.One(ctx) == "" {
		return 0
	}
	var wg sync.WaitGroup
	free := make(chan struct{}, handOverParallel)
	for _, inst := range s.live.All() {
		if !s.freeForHandOver(inst) {
			continue
		}
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			s.handOverInstance(ctx, inst)
			d.handed.Add(1)
		})
	}
	wg.Wait()
	return len(s.live.All())
}

// freeForHandOver takes an instance out of use when nothing uses it: no exec comes any more, and no request joins its ownership.
func (s *Drain) freeForHandOver(inst *instance.Instance) bool {
	if !inst.IsReady() || inst.Owned() == nil || inst.Main != nil { // a second one ends with the thread's own
		return false
	}
	return s.owners.BeginHandOver(inst.Owned(), inst.StopIdle)
}

// handOverInstance releases a thread with its sandbox. When it cannot write the owner record, the thread
// stays this server's until the server ends.
func (s *Drain) handOverInstance(ctx context.Context, inst *instance.Instance) {
	s.teardown.EndSeconds(inst)
	ctx, cancel := deadline.Detached(ctx, lifecycle.CleanupTimeout)
	defer cancel()
	err := s.owners.HandOver(ctx, inst.Owned(), inst.ID, func() { _ = s.hooks.Undo(ctx, inst, true) })
	if err != nil {
		s.log.Error("thread not handed over in order; another server takes it when this one has ended", "thread", inst.Thread.String(), "error", err)
	}
	s.teardown.Leave(inst)
}
