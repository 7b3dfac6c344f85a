package main

import (
	"context"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// toolCalls measures whole runs of TypeScript that call a tool once and 50 times. Beside them it measures as
// many calls of a plain MCP client, and a run that calls nothing.
func toolCalls(ctx context.Context, b *bench) error {
	session, err := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil).Connect(ctx, &mcp.StreamableClientTransport{Endpoint: b.echo}, nil)
	if err != nil {
		return err
	}
	defer session.Close()
	for _, n := range []int{1, 50} {
		text := fmt.Sprintf("for (let i = 0; i < %d; i++) await callMCPTool(%q, { text: 'hello' });", n, "echo__echo")
		name := fmt.Sprintf("TypeScript with %d tool calls", n)
		if n == 1 {
			name = "TypeScript with 1 tool call"
		}
		times, err := b.alternate(name,
			side{name: "ours", do: func() error { _, err := b.code("typescript", text); return err }},
			side{name: "client", do: func() error {
				for range n {
					res, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"text": "hello"}})
					if err != nil || res.IsError {
						return fmt.Errorf("the tool answered with an error: %w", err)
					}
				}
				return nil
			}},
			side{name: "start", do: func() error { _, err := b.code("typescript", printTS); return err }},
		)
		if err != nil {
			return err
		}
		ours, client, start := sampled(name, times[0]), sampled("the same calls, MCP client", times[1]), sampled("", times[2])
		b.row("ms", ours, &client, cost, bar{}, "")
		allowed := sample{Name: fmt.Sprintf("those + %d × 1 ms + a start", n), N: min(client.N, start.N), P50: client.P50 + float64(n) + start.P50, P99: client.P99 + float64(n) + start.P99}
		limit := bar{}
		if n == 50 {
			limit.atMost = 1
		}
		b.row("ms", ours, &allowed, cost, limit, "")
	}
	return nil
}
