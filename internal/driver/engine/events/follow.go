package events

import (
	"context"
	"time"

	"github.com/skerry-sandbox/skerry/internal/platform/retry"
)

// The pauses between attempts to reach an engine that is away.
const (
	ReconnectFirst = 100 * time.Millisecond
	ReconnectMost  = 2 * time.Second
)

// Follow calls follow with a connection to an engine until ctx ends, and connects again whenever follow returns.
func Follow[S any](ctx context.Context, s S, follow func(context.Context, S), connect func(context.Context) (S, error), failed func(error)) {
	for {
		follow(ctx, s)
		pauses := retry.Doubling(ReconnectFirst, ReconnectMost)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pauses.NextBackOff()):
			}
			var err error
			if s, err = connect(ctx); err == nil {
				break
			}
			failed(err)
		}
	}
}
