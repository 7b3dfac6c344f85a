package events

import (
	"context"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// endsBuffer lets a watch go on while its reader is busy with a burst.
const endsBuffer = 64

// Ends reports the ends of sandboxes to one caller of Watch, also ends while the engine was away. Only the
// goroutine of that watch uses it.
type Ends struct {
	reports chan driver.Event
	alive   map[sandbox.ID]bool // nil before the first connection
	oom     map[sandbox.ID]bool // of which the engine said so before their end
}

// NewEnds knows no sandbox yet.
func NewEnds() *Ends {
	return &Ends{reports: make(chan driver.Event, endsBuffer), oom: make(map[sandbox.ID]bool)}
}

// Started notes that a sandbox runs.
func (e *Ends) Started(id sandbox.ID) { e.alive[id] = true }

// Alive reports whether a sandbox ran when the engine spoke of it last.
func (e *Ends) Alive(id sandbox.ID) bool { return e.alive[id] }

// OutOfMemory notes that the engine said so of a sandbox.
func (e *Ends) OutOfMemory(id sandbox.ID) { e.oom[id] = true }

// WasOutOfMemory reports whether the engine said so.
func (e *Ends) WasOutOfMemory(id sandbox.ID) bool { return e.oom[id] }

// Report tells of the end of a sandbox.
func (e *Ends) Report(ctx context.Context, id sandbox.ID, oom bool) {
	delete(e.alive, id)
	delete(e.oom, id)
	select {
	case e.reports <- driver.Event{ID: id, State: sandbox.Lost, OOM: oom}:
	case <-ctx.Done():
	}
}

// Compare reports what ran when the last connection was lost, and does not now.
func (e *Ends) Compare(ctx context.Context, now []sandbox.Instance) {
	alive := make(map[sandbox.ID]bool)
	ended := make(map[sandbox.ID]sandbox.Instance)
	for _, i := range now {
		if i.State == sandbox.Lost {
			ended[i.ID] = i
		} else {
			alive[i.ID] = true
		}
	}
	before := e.alive
	e.alive = alive
	for id := range before {
		if !alive[id] {
			e.Report(ctx, id, ended[id].OOMKilled)
		}
	}
}

// Watch connects to an engine, and follows it until ctx or closing ends; see Follow. The channel has what ends reports.
func Watch[S any](ctx, closing context.Context, ends *Ends, follow func(context.Context, S), connect func(context.Context) (S, error), failed func(error)) (<-chan driver.Event, error) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(closing, cancel)
	s, err := connect(ctx)
	if err != nil {
		cancel()
		stop()
		return nil, err
	}
	go func() {
		defer close(ends.reports)
		defer cancel()
		defer stop()
		Follow(ctx, s, follow, connect, failed)
	}()
	return ends.reports, nil
}
