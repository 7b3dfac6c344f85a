package hub

import (
	"context"
	"encoding/json"

	"github.com/skerry-sandbox/skerry/internal/observe/tracing"
)

// about says on a span what a request to an MCP server was: names and sizes.
func about(s *tracing.Span, method, server string, params []byte, err error) {
	s.Set("mcp.method.name", method)
	s.Set("skerry.mcp.server", server)
	s.SetInt("skerry.mcp.request_bytes", int64(len(params)))
	s.Failed(err)
}

// withTrace names the trace of a context in the _meta of a request's parameters. Parameters that it cannot
// read stay as they are.
func withTrace(ctx context.Context, tracer *tracing.Tracer, params json.RawMessage) json.RawMessage {
	if tracer == nil {
		return params
	}
	var members map[string]json.RawMessage
	meta := map[string]any{}
	if json.Unmarshal(params, &members) != nil || members == nil {
		return params
	}
	if raw, ok := members["_meta"]; ok && json.Unmarshal(raw, &meta) != nil {
		return params
	}
	tracer.Meta(ctx, meta)
	var err error
	if members["_meta"], err = json.Marshal(meta); err != nil {
		return params
	}
	whole, err := json.Marshal(members)
	if err != nil {
		return params
	}
	return whole
}
