package hub

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skerry-sandbox/skerry/internal/observe/tracing"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/excerpt"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/serverconfig"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/transport"
)

// passing carries requests that are no tool calls.
type passing struct{ *conn }

// Limits of what servers offer besides tools.
const (
	maxItems     = 5000     // of one kind and server
	maxItem      = 64 << 10 // bytes of one
	maxItemBytes = 4 << 20  // bytes of all of one kind and server
	listTime     = 10 * time.Second
	maxErrorData = 16 << 10
)

// question is a request to a server; ask returns the answer as the SDK reads it.
type question struct {
	method string
	ask    func(context.Context, *mcp.ClientSession) (any, error)
}

// Upstream lists the resources, resource templates or prompts of the thread's servers, side by side, in
// the order of the servers' names. With a server it lists those of this one, and its failure is the
// error; else a server that fails, or has none, is missing in the answer and disturbs nothing else.
func (h *Hub) Upstream(ctx context.Context, t sandbox.Thread, kind sandbox.UpstreamKind, server string) ([]sandbox.UpstreamItem, error) {
	if server != "" {
		c, err := h.upstreamConn(ctx, t, server)
		if err != nil {
			return nil, err
		}
		return passing{c}.items(ctx, kind)
	}
	v, err := h.tools(ctx, t)
	if err != nil {
		return nil, err
	}
	servers := slices.SortedFunc(slices.Values(h.configOf(t.Owner).Usable()), serverconfig.Compare)
	lists := make([][]sandbox.UpstreamItem, len(servers))
	var wg sync.WaitGroup
	for i, s := range servers {
		c, err := h.connOf(s, t)
		if err != nil || v.refused[s.Name] != nil {
			continue
		}
		wg.Go(func() {
			if lists[i], err = (passing{c}).items(ctx, kind); err != nil {
				h.o.Log.Debug("MCP server: not listed", "server", s.Name, "what", string(kind), "error", err)
			}
		})
	}
	wg.Wait()
	return slices.Concat(lists...), nil
}

// Ask sends a request to one of the thread's servers and returns its result as the server wrote it. An
// error is NotFound, ToolFailed (caused by a sandbox.UpstreamError when the server answered with one),
// Timeout, Unavailable, CapacityExceeded, or Invalid when the parameters are not those of the method.
func (h *Hub) Ask(ctx context.Context, t sandbox.Thread, r sandbox.UpstreamRequest) (json.RawMessage, error) {
	ctx, span := h.o.Tracer.Start(ctx, r.Method, tracing.Client)
	defer span.End()
	answer, err := h.ask(ctx, t, r)
	about(span, r.Method, r.Server, r.Params, err)
	return answer, err
}

func (h *Hub) ask(ctx context.Context, t sandbox.Thread, r sandbox.UpstreamRequest) (json.RawMessage, error) {
	q, err := newQuestion(r.Method, h.withTrace(ctx, r.Params))
	if err != nil {
		return nil, err
	}
	c, err := h.upstreamConn(ctx, t, r.Server)
	if err != nil {
		return nil, err
	}
	return passing{c}.ask(ctx, q)
}

// upstreamConn returns the thread's connection to a server by its name.
func (h *Hub) upstreamConn(ctx context.Context, t sandbox.Thread, name string) (*conn, error) {
	cfg := h.configOf(t.Owner)
	s := cfg.ByName[name]
	if s == nil || !s.IsEnabled() || s.Err != nil {
		return nil, notFound(cfg, h.view(t), sandbox.ToolRef{Server: name}, everything)
	}
	if err := h.contact(ctx, t, []*serverconfig.Server{s}); err != nil {
		return nil, err
	}
	if err := h.view(t).refused[name]; err != nil {
		return nil, configError(name, err)
	}
	return h.connOf(s, t)
}

func newQuestion(method string, params json.RawMessage) (question, error) {
	switch method {
	case "resources/read":
		return typed(method, params, (*mcp.ClientSession).ReadResource)
	case "prompts/get":
		return typed(method, params, (*mcp.ClientSession).GetPrompt)
	case "completion/complete":
		return typed(method, params, (*mcp.ClientSession).Complete)
	}
	return question{}, sandbox.Errorf(sandbox.NotSupported, "the method %.80q is not passed on", method)
}

func typed[P, R any](method string, params json.RawMessage, ask func(*mcp.ClientSession, context.Context, *P) (*R, error)) (question, error) {
	var p P
	if err := json.Unmarshal(params, &p); err != nil {
		return question{}, sandbox.Wrap(sandbox.Invalid, err, "the parameters are not those of %s", method)
	}
	return question{method, func(ctx context.Context, s *mcp.ClientSession) (any, error) { return ask(s, ctx, &p) }}, nil
}

// ask sends one request under the terms of a call. It is sent again when the server has seen nothing of
// the first attempt.
func (c passing) ask(ctx context.Context, q question) (json.RawMessage, error) {
	terms := c.terms.Load()
	limit := terms.cfg.Timeout("", c.h.o.CallTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errTooLate)
	defer cancel()
	c.calls.Add(1)
	defer c.calls.Add(-1)
	what := &tool{Tool: sandbox.Tool{Server: c.key.server, Printed: c.key.server + " " + q.method}}
	leave, err := terms.enter(ctx, c.key.server, what)
	if err != nil {
		return nil, err
	}
	defer leave()
	c.touch()
	defer c.touch()
	for first := true; ; first = false {
		raw, again, err := c.askOnce(ctx, q, what, limit)
		if err == nil || !again || !first {
			return raw, err
		}
	}
}

func (c passing) askOnce(ctx context.Context, q question, what *tool, limit time.Duration) (raw json.RawMessage, again bool, err error) {
	c.mu.Lock()
	allowed := c.breaker.allow(time.Now())
	c.mu.Unlock()
	if !allowed {
		return nil, false, sandbox.Errorf(sandbox.Unavailable, "the MCP server %q failed %d times in a row; it is left alone for a while", c.key.server, breakAfter)
	}
	l, err := c.ensure(ctx)
	if err != nil {
		v := verdict{err: err, pass: true}
		if ctx.Err() != nil {
			v = c.tooLate(ctx, what, limit)
		}
		c.note(nil, v)
		return nil, false, v.err
	}
	askCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.ctx, cancel)()
	askCtx, seen := transport.WithCapture(askCtx)
	defer seen.Done()
	seen.Whole = true
	answer, err := q.ask(askCtx, l.session)
	if err != nil {
		v := c.judge(ctx, l, what, limit, seen.Look(), err)
		c.note(l, v)
		return nil, v.again, withUpstreamError(l, err, v.err)
	}
	c.note(l, verdict{ok: true})
	if raw = seen.Look().Result; len(raw) == 0 {
		if raw, err = json.Marshal(answer); err != nil {
			return nil, false, sandbox.Wrap(sandbox.ToolFailed, err, "%s: the answer cannot be read", what.Printed)
		}
	}
	return l.redact.JSON(raw), false, nil
}

// inputRequired is the type of a result that asks the client for input.
const inputRequired = "input_required"

// passOn completes the parameters of a call by those of a client's request, and has its result captured
// as it is.
func passOn(params *mcp.CallToolParams, more json.RawMessage, seen *transport.Capture) error {
	if more == nil {
		return nil
	}
	var p mcp.CallToolParams
	if err := json.Unmarshal(more, &p); err != nil {
		return sandbox.Wrap(sandbox.Invalid, err, "the parameters of the request cannot be read")
	}
	seen.Whole = true
	params.InputResponses, params.RequestState = p.InputResponses, p.RequestState
	for k, v := range p.Meta {
		if _, ours := params.Meta[k]; !ours {
			params.Meta[k] = v
		}
	}
	return nil
}

// withUpstreamError makes the server's own error the cause of what callers are told.
func withUpstreamError(l *link, err, told error) error {
	var rpc *jsonrpc.Error
	if _, answered := rpcErrorText(err); !answered || !errors.As(err, &rpc) || rpc.Code == transport.CodeTooLarge {
		return told
	}
	own := &sandbox.UpstreamError{Code: rpc.Code, Message: l.redact.Replace(excerpt.Line(rpc.Message))}
	if len(rpc.Data) > 0 && len(rpc.Data) <= maxErrorData {
		own.Data = json.RawMessage(l.redact.Replace(string(rpc.Data)))
		if !json.Valid(own.Data) {
			own.Data = nil
		}
	}
	return &sandbox.Error{Kind: sandbox.ToolFailed, Detail: excerpt.Detail(told), Err: own}
}

// items lists what the server offers of a kind, page by page. What is too large is left out.
func (c passing) items(ctx context.Context, kind sandbox.UpstreamKind) ([]sandbox.UpstreamItem, error) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	var all []sandbox.UpstreamItem
	seen := map[string]bool{}
	bytesLeft, cursor := maxItemBytes, ""
	for range maxPages {
		raw, err := c.ask(ctx, listQuestion(kind, cursor))
		if err != nil {
			return nil, err
		}
		page, next, err := readPage(raw, kind)
		if err != nil {
			return nil, sandbox.Wrap(sandbox.ToolFailed, err, "the MCP server %q: its list of %s cannot be read", c.key.server, kind)
		}
		for _, it := range page {
			if bytesLeft -= len(it.Raw); bytesLeft < 0 || len(all) == maxItems {
				return all, nil
			}
			if it.Name == "" || len(it.Raw) > maxItem || seen[it.Name] {
				continue
			}
			seen[it.Name] = true
			it.Server = c.key.server
			if kind == sandbox.UpstreamPrompts {
				it.Printed = serverconfig.PrintedName(c.key.server, it.Name)
			}
			all = append(all, it)
		}
		if next == "" || next == cursor {
			break
		}
		cursor = next
	}
	return all, nil
}

// listQuestion asks for a page. A server that does not claim to have any is not asked.
func listQuestion(kind sandbox.UpstreamKind, cursor string) question {
	method := map[sandbox.UpstreamKind]string{
		sandbox.UpstreamResources: "resources/list", sandbox.UpstreamTemplates: "resources/templates/list", sandbox.UpstreamPrompts: "prompts/list",
	}[kind]
	return question{method, func(ctx context.Context, s *mcp.ClientSession) (any, error) {
		caps := s.InitializeResult().Capabilities
		switch {
		case kind == sandbox.UpstreamPrompts && (caps == nil || caps.Prompts != nil):
			return s.ListPrompts(ctx, &mcp.ListPromptsParams{Cursor: cursor})
		case kind == sandbox.UpstreamPrompts, caps != nil && caps.Resources == nil:
			return map[string]any{}, nil
		case kind == sandbox.UpstreamTemplates:
			res, err := s.ListResourceTemplates(ctx, &mcp.ListResourceTemplatesParams{Cursor: cursor})
			if text, ok := rpcErrorText(err); ok && strings.Contains(text, "-32601") { // many have resources and no templates
				return map[string]any{}, nil
			}
			return res, err
		}
		return s.ListResources(ctx, &mcp.ListResourcesParams{Cursor: cursor})
	}}
}

func readPage(raw json.RawMessage, kind sandbox.UpstreamKind) (page []sandbox.UpstreamItem, next string, err error) {
	var answer struct {
		Resources, ResourceTemplates, Prompts []json.RawMessage
		NextCursor                            string
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return nil, "", err
	}
	list := answer.Resources
	switch kind {
	case sandbox.UpstreamTemplates:
		list = answer.ResourceTemplates
	case sandbox.UpstreamPrompts:
		list = answer.Prompts
	}
	for _, r := range list {
		var it struct{ URI, URITemplate, Name string }
		if json.Unmarshal(r, &it) != nil {
			continue
		}
		name := map[sandbox.UpstreamKind]string{
			sandbox.UpstreamResources: it.URI, sandbox.UpstreamTemplates: it.URITemplate, sandbox.UpstreamPrompts: it.Name,
		}[kind]
		page = append(page, sandbox.UpstreamItem{Name: name, Raw: r})
	}
	return page, answer.NextCursor, nil
}
