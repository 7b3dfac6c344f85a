package limits

import (
	"context"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// CodeToolCall returns what ToolCall does, for calls of code in sandboxes, which it counts by themselves too.
func CodeToolCall(g *Gate) func(ctx context.Context, c sandbox.Caller) error {
	return func(ctx context.Context, c sandbox.Caller) error {
		err := g.ToolCall(ctx, c)
		if err == nil && g != nil {
			g.count(c, countCodeTools, 1)
		}
		return err
	}
}

// CountResults counts the bytes of what tools answered, and of what the caller got in their place: the same, or what a
// program printed that called them.
func CountResults(g *Gate, c sandbox.Caller, answered, returned int64) {
	if g == nil {
		return
	}
	g.count(c, countResults, answered)
	g.count(c, countReturned, returned)
}
