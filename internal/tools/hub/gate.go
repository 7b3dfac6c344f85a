package hub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/serverconfig"
)

// maxWaiting is how many calls may wait for a place at one connection. More are refused at once.
const maxWaiting = 256

// terms are the parts of a server's configuration that can change under a live connection. They do not
// change themselves: a connection gets new ones. Calls in progress keep the terms that they began with.
type terms struct {
	cfg     *serverconfig.Server
	server  places
	tools   map[string]places // of the tools that have a limit of their own
	waiting atomic.Int32
}

// are reports whether these are the terms of a configuration.
func (t *terms) are(s *serverconfig.Server) bool { return bytes.Equal(t.cfg.Raw, s.Raw) }

// places holds a token for each call in progress.
type places chan struct{}

func newTerms(s *serverconfig.Server, fallback int) *terms {
	if s.Concurrency > 0 {
		fallback = s.Concurrency
	}
	t := &terms{cfg: s, server: make(places, fallback), tools: map[string]places{}}
	for name, c := range s.Tools {
		if c.Concurrency > 0 {
			t.tools[name] = make(places, c.Concurrency)
		}
	}
	return t
}

// enter takes a place for a call, that of its tool first: a call that waits for a busy tool keeps no
// other tool waiting. It waits until ctx ends. An error is CapacityExceeded, or Unavailable when the
// caller went away. leave frees the place.
func (t *terms) enter(ctx context.Context, server string, tool *tool) (leave func(), err error) {
	mine := t.tools[tool.Name]
	if mine != nil {
		if !t.take(ctx, mine) {
			return nil, t.full(ctx, "the tool "+tool.Printed, cap(mine))
		}
	}
	if !t.take(ctx, t.server) {
		if mine != nil {
			<-mine
		}
		return nil, t.full(ctx, fmt.Sprintf("the MCP server %q", server), cap(t.server))
	}
	return func() {
		<-t.server
		if mine != nil {
			<-mine
		}
	}, nil
}

func (t *terms) take(ctx context.Context, p places) bool {
	select {
	case p <- struct{}{}:
		return true
	default:
	}
	if t.waiting.Add(1) > maxWaiting {
		t.waiting.Add(-1)
		return false
	}
	defer t.waiting.Add(-1)
	select {
	case p <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// full says why a call got no place.
func (*terms) full(ctx context.Context, what string, most int) error {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return sandbox.Wrap(sandbox.Unavailable, ctx.Err(), "%s: the caller went away", what)
	case ctx.Err() != nil:
		return sandbox.Errorf(sandbox.CapacityExceeded, "%s is busy: %d calls at a time are its most, and none ended in this call's time", what, most)
	}
	return sandbox.Errorf(sandbox.CapacityExceeded, "%s is busy: %d calls at a time are its most, and %d wait", what, most, maxWaiting)
}
