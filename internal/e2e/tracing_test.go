package e2e

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// collector takes traces by OTLP over HTTP and keeps them.
type collector struct {
	*httptest.Server
	mu    sync.Mutex
	spans []*tracev1.Span
	raw   bytes.Buffer
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var req collectorv1.ExportTraceServiceRequest
		if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &req) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.raw.Write(body)
		for _, resource := range req.GetResourceSpans() {
			for _, scope := range resource.GetScopeSpans() {
				c.spans = append(c.spans, scope.GetSpans()...)
			}
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(c.Close)
	return c
}

// of returns the spans of a trace by their names.
func (c *collector) of(trace string) map[string]*tracev1.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := map[string]*tracev1.Span{}
	for _, s := range c.spans {
		if hex.EncodeToString(s.GetTraceId()) == trace {
			found[s.GetName()] = s
		}
	}
	return found
}

// echoServer is an MCP server whose tool says what it was told, and which notes the _meta of the calls.
func echoServer(t *testing.T) (url string, metas func() []mcp.Meta) {
	t.Helper()
	var mu sync.Mutex
	var seen []mcp.Meta
	srv := mcp.NewServer(&mcp.Implementation{Name: "echo", Version: "1"}, nil)
	srv.AddTool(&mcp.Tool{Name: "say", Description: "says it", InputSchema: json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"}}}`)},
		func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, req.Params.Meta)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "canary-result-7b1f"}}}, nil
		})
	ts := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return srv }, &mcp.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(ts.Close)
	return ts.URL, func() []mcp.Meta {
		mu.Lock()
		defer mu.Unlock()
		return append([]mcp.Meta{}, seen...)
	}
}

// TestOneTrace: from the caller's own span to the MCP server's _meta it is one trace with the right parents; its id is in the
// answer, the audit log and the log. What was run, written, asked and answered is in no span, no log line and no metric.
func TestOneTrace(t *testing.T) {
	t.Parallel()
	traces := newCollector(t)
	url, metas := echoServer(t)
	s := start(t, options{
		extensions: fmt.Sprintf(`{"mcpServers":{"echo":{"url":%q}}}`, url),
		env:        []string{"SKERRY_TRACING_ENDPOINT=" + traces.URL, "SKERRY_LOG_LEVEL=debug"},
	})
	const trace, caller = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	parent := map[string]string{"Traceparent": "00-" + trace + "-" + caller + "-01"}
	code := "print('canary-code-51c0')\nprint(call_mcp_tool('echo__say', {'text': 'canary-argument-09aa'}))"
	a := s.sendWith("POST", "/api/threads/t/execute_code", parent, map[string]any{"code": code, "language": "python"})
	if a.status != 200 || !strings.Contains(string(a.body), "canary-result-7b1f") || a.header.Get("X-Trace-Id") != trace {
		t.Fatalf("%d %v %s", a.status, a.header, a.body)
	}
	chain := []string{"POST /api/threads/:thread/execute_code", "execute_code", "skerry.sandbox.v1.SandboxService/Run", "interpreter", "bridge.call", "tools/call say"}
	eventually(t, "all spans arrive", func() bool {
		got := traces.of(trace)
		for _, name := range chain {
			if got[name] == nil {
				return false
			}
		}
		return true
	})
	got, above := traces.of(trace), caller
	for _, name := range chain {
		span := got[name]
		if p := hex.EncodeToString(span.GetParentSpanId()); p != above {
			t.Errorf("%s is below %s, not %s", name, p, above)
		}
		if span.GetEndTimeUnixNano() < span.GetStartTimeUnixNano() {
			t.Errorf("%s ends before it begins", name)
		}
		above = hex.EncodeToString(span.GetSpanId())
	}
	if acquired := got["sandbox.acquire"]; acquired == nil || !bytes.Equal(acquired.GetParentSpanId(), got["execute_code"].GetSpanId()) {
		t.Error("no span of the sandbox's start below the exec")
	}
	if m := metas(); len(m) != 1 || m[0]["traceparent"] != "00-"+trace+"-"+above+"-01" {
		t.Errorf("_meta: %v, want the span %s", m, above)
	}

	// The rest of the story, each with a text that is to stay where it belongs.
	s.ok("t", "echo canary-command-e88d")
	s.do("PUT", "/api/threads/t/files", map[string]any{"path": "/mnt/user-data/workspace/canary-name-3c4d", "content": "canary-content-77f0"})
	s.do("GET", "/api/threads/t/files?path=/mnt/user-data/workspace/canary-name-3c4d", nil)
	s.do("GET", "/api/threads/t/files/grep?path=/mnt/user-data/workspace&pattern=canary-pattern-2b2b", nil)
	s.do("POST", "/api/threads/t/tools/call", map[string]any{"tool": "echo__say", "input": map[string]any{"text": "canary-input-6a6a"}})
	s.do("POST", "/api/threads/t/tools/call", map[string]any{"tool": "echo__say", "input": map[string]any{"text": 7, "canary-field-8d8d": 1}})
	s.run("t", "exec", map[string]any{"command": "cat >&2; exit 3", "stdin": "canary-stdin-1e1e", "env": map[string]any{"K": "canary-env-4f4f"}})
	s.do("POST", "/api/threads/t/exec", map[string]any{"command": "canary-bad-aaaa", "cwd": "canary-cwd-bbbb"})
	s.run("t", "execute_code", map[string]any{"code": "raise Exception('canary-raise-cccc')", "language": "python"})

	var audit struct {
		Items []struct {
			Action  string
			TraceID string `json:"trace_id"`
		}
	}
	eventually(t, "the trace is in the records", func() bool {
		s.do("GET", "/api/audit?thread=t&limit=1000", nil).into(t, &audit)
		n := map[string]int{}
		for _, r := range audit.Items {
			if r.TraceID == trace {
				n[r.Action]++
			}
		}
		return n["execute_code"] == 2 && n["tool_call"] == 2
	})
	metrics := s.do("GET", "/metrics", nil)
	if metrics.status != 200 || !strings.Contains(string(metrics.body), `skerry_http_request_duration_seconds_count{method="POST",route="/api/threads/:thread/exec",status="2xx"}`) {
		t.Errorf("metrics: %d", metrics.status)
	}
	s.stop() // sends all spans
	if !strings.Contains(s.log.String(), "trace_id="+trace) {
		t.Error("the trace is not in the log")
	}
	traces.mu.Lock()
	defer traces.mu.Unlock()
	if len(traces.spans) < 20 {
		t.Errorf("only %d spans", len(traces.spans))
	}
	for what, text := range map[string]string{"the log": s.log.String(), "a metric": string(metrics.body), "a span": traces.raw.String()} {
		for line := range strings.SplitSeq(text, "\n") {
			if i := strings.Index(line, "canary-"); i >= 0 {
				t.Errorf("%s has contents: %.400q", what, line[max(0, i-200):])
			}
		}
	}
}
