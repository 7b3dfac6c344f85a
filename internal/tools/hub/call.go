package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skerry-sandbox/skerry/internal/observe/tracing"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/excerpt"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/login"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/serverconfig"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/transport"
)

// Resolve returns the tool that ref names among those of the thread: by server and name, by its printed
// name, or as "server.name". It connects only to servers that the name can belong to. An error is
// NotFound, naming what looks alike, or Unavailable when the tool's server is.
func (h *Hub) Resolve(ctx context.Context, t sandbox.Thread, ref sandbox.ToolRef) (sandbox.Tool, error) {
	return h.ResolveAmong(ctx, t, ref, nil)
}

// ResolveAmong is Resolve for a caller who may know only of the tools that visible reports true of; a server is asked
// about as a tool without a name. nil: of all.
func (h *Hub) ResolveAmong(ctx context.Context, t sandbox.Thread, ref sandbox.ToolRef, visible func(sandbox.Tool) bool) (sandbox.Tool, error) {
	e, err := h.resolve(ctx, t, ref, visible)
	if err != nil {
		return sandbox.Tool{}, err
	}
	return e.tool.Tool, nil
}

func (h *Hub) resolve(ctx context.Context, t sandbox.Thread, ref sandbox.ToolRef, visible func(sandbox.Tool) bool) (entry, error) {
	if visible == nil {
		visible = everything
	}
	cfg := h.configOf(t.Owner)
	v := h.view(t)
	if e, ok := v.find(ref); ok {
		if !visible(e.tool.Tool) {
			return entry{}, notFound(cfg, v, ref, visible)
		}
		e.conn.touch()
		return e, nil
	}
	candidates := owners(cfg, ref)
	if err := h.contact(ctx, t, candidates); err != nil {
		return entry{}, err
	}
	v = h.view(t)
	if e, ok := v.find(ref); ok && visible(e.tool.Tool) {
		return e, nil
	}
	for _, s := range candidates {
		if err := h.whyNot(s, v, t); err != nil && visible(s.AsTool()) {
			return entry{}, err
		}
	}
	candidates = slices.DeleteFunc(candidates, func(s *serverconfig.Server) bool { return !visible(s.AsTool()) })
	if err := h.errQuarantined(candidates, t, ref); err != nil {
		return entry{}, err
	}
	return entry{}, notFound(cfg, v, ref, visible)
}

// whyNot says why the tools of a server are not known, or nil when they are.
func (h *Hub) whyNot(s *serverconfig.Server, v *view, t sandbox.Thread) error {
	if err := v.refused[s.Name]; err != nil {
		return configError(s.Name, err)
	}
	h.mu.Lock()
	c := h.conns[connKey{s.Name, serverconfig.ScopeOf(s.Scope, t)}]
	h.mu.Unlock()
	if v.servers[s.Name] {
		return nil
	}
	if c == nil { // contact has just tried to make it
		return h.errFull()
	}
	tools, _, err := c.known()
	if tools == nil && err == nil {
		err = sandbox.Errorf(sandbox.Unavailable, "the MCP server %q is still connecting", s.Name)
	}
	return err
}

// owners returns the servers that the tool of a name can belong to.
func owners(cfg *serverconfig.Set, ref sandbox.ToolRef) []*serverconfig.Server {
	name := ref.Printed
	if name == "" {
		name = ref.Name
	}
	var list []*serverconfig.Server
	for _, s := range cfg.Usable() {
		if s.Name == ref.Server || ref.Server == "" && (strings.HasPrefix(name, serverconfig.PrintedServer(s.Name)+"__") || strings.HasPrefix(name, s.Name+".")) {
			list = append(list, s)
		}
	}
	return list
}

func everything(sandbox.Tool) bool { return true }

// notFound names what looks alike, of what the caller may know of.
func notFound(cfg *serverconfig.Set, v *view, ref sandbox.ToolRef, visible func(sandbox.Tool) bool) error {
	want := ref.Printed
	if ref.Server != "" {
		want = ref.Server + "." + ref.Name
		s := cfg.ByName[ref.Server]
		switch {
		case s == nil || !s.IsEnabled() || !visible(s.AsTool()):
			return sandbox.Errorf(sandbox.NotFound, "there is no MCP server %.80q%s", ref.Server, orMaybe(nearest(ref.Server, serverNames(cfg, visible))))
		case s.Err != nil:
			return configError(s.Name, s.Err)
		}
	} else if want == "" {
		want = ref.Name
	}
	var names []string
	for printed, e := range v.byPrinted {
		if (ref.Server == "" || e.tool.Server == ref.Server) && visible(e.tool.Tool) {
			names = append(names, printed)
		}
	}
	like := ref.Printed
	if like == "" {
		like = serverconfig.PrintedName(ref.Server, ref.Name)
	}
	return sandbox.Errorf(sandbox.NotFound, "there is no tool %.200q%s", want, orMaybe(nearest(like, names)))
}

func serverNames(cfg *serverconfig.Set, visible func(sandbox.Tool) bool) []string {
	var names []string
	for _, s := range cfg.List {
		if s.IsEnabled() && visible(s.AsTool()) {
			names = append(names, s.Name)
		}
	}
	return names
}

func orMaybe(near []string) string {
	if len(near) == 0 {
		return ""
	}
	return "; did you mean " + strings.Join(near, " or ") + "?"
}

// Call calls a tool of Resolve or Tools, on the thread's own connection. input is a JSON object;
// nothing stands for {}. A failure that the tool reports is a result with IsError and its text. An error
// is Invalid (with the wrong fields), NotFound, ToolFailed (the server answered with an error, or
// with too much), Timeout, Unavailable or CapacityExceeded. No call is made twice.
func (h *Hub) Call(ctx context.Context, t sandbox.Thread, tool sandbox.Tool, input []byte) (sandbox.ToolResult, error) {
	return h.CallWatched(ctx, t, tool, input, sandbox.ToolWatch{})
}

// CallWatched is Call with a listener to what the server says while the call runs. When ctx
// ends, the server is told that no caller waits for the call any more (notifications/cancelled).
func (h *Hub) CallWatched(ctx context.Context, t sandbox.Thread, tool sandbox.Tool, input []byte, watch sandbox.ToolWatch) (sandbox.ToolResult, error) {
	args, err := h.Arguments(ctx, t, tool, input)
	if err != nil {
		return sandbox.ToolResult{}, err
	}
	return h.CallChecked(ctx, t, tool, args, watch)
}

// Arguments returns the very bytes that a tool's server gets as arguments for an input. Errors are those of
// Resolve, and Invalid with the wrong fields.
func (h *Hub) Arguments(ctx context.Context, t sandbox.Thread, tool sandbox.Tool, input []byte) ([]byte, error) {
	e, err := h.resolve(ctx, t, sandbox.ToolRef{Server: tool.Server, Name: tool.Name}, nil)
	if err != nil {
		return nil, err
	}
	args, problem, err := e.tool.input.Check(e.tool.Printed, input)
	if err != nil {
		return nil, err
	}
	if problem != nil {
		h.o.Log.Debug("MCP server: arguments not checked, the schema is of no use", "tool", e.tool.Printed, "error", problem)
	}
	return args, nil
}

// CallChecked is CallWatched with arguments of Arguments, which are sent as they are.
func (h *Hub) CallChecked(ctx context.Context, t sandbox.Thread, tool sandbox.Tool, args []byte, watch sandbox.ToolWatch) (sandbox.ToolResult, error) {
	began := time.Now()
	e, err := h.resolve(ctx, t, sandbox.ToolRef{Server: tool.Server, Name: tool.Name}, nil)
	if err != nil {
		return sandbox.ToolResult{}, err
	}
	ctx, span := h.o.Tracer.Start(ctx, transport.MethodCall+" "+e.tool.Name, tracing.Client)
	defer span.End()
	res, err := e.conn.call(ctx, e.tool, args, watch)
	about(span, transport.MethodCall, tool.Server, args, err)
	span.Set("gen_ai.tool.name", e.tool.Name)
	span.SetInt("skerry.tool.output_bytes", int64(len(res.Result)))
	if res.IsError {
		span.FailedAs("tool_error")
	}
	res.Millis = time.Since(began).Milliseconds()
	return res, err
}

// errTooLate is the cause of a context whose call took too long.
var errTooLate = errors.New("the call took too long")

func (c *conn) call(ctx context.Context, t *tool, args []byte, watch sandbox.ToolWatch) (sandbox.ToolResult, error) {
	terms := c.terms.Load()
	limit := terms.cfg.Timeout(t.Name, c.h.o.CallTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errTooLate)
	defer cancel()
	c.calls.Add(1)
	defer c.calls.Add(-1)
	leave, err := terms.enter(ctx, c.key.server, t)
	if err != nil {
		return sandbox.ToolResult{}, err
	}
	defer leave()
	c.touch()
	defer c.touch()
	for first := true; ; first = false {
		res, again, err := c.try(ctx, t, args, limit, watch)
		if err == nil || !again || !first {
			return res, err
		}
	}
}

// try makes one attempt at a call. again says that the server has seen nothing of it.
func (c *conn) try(ctx context.Context, t *tool, args []byte, limit time.Duration, watch sandbox.ToolWatch) (res sandbox.ToolResult, again bool, err error) {
	c.mu.Lock()
	allowed := c.breaker.allow(time.Now())
	c.mu.Unlock()
	if !allowed {
		return res, false, sandbox.Errorf(sandbox.Unavailable, "the MCP server %q failed %d times in a row; it is left alone for a while", c.key.server, breakAfter)
	}
	l, err := c.ensure(ctx)
	if err != nil {
		v := verdict{err: err, pass: true} // the back-off spares the server already
		if ctx.Err() != nil {
			v = c.tooLate(ctx, t, limit)
		}
		c.note(nil, v)
		return res, false, v.err
	}
	// A link that is closed takes its calls with it.
	callCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.ctx, cancel)()
	callCtx, seen := transport.WithCapture(callCtx)
	defer func() { l.calls.Remove(seen.Listener) }() // in a panic, too
	defer seen.Done()
	seen.Listener = l.calls.Add(watch)
	params := &mcp.CallToolParams{Name: t.Name, Arguments: json.RawMessage(args), Meta: l.watched(callCtx, seen.Listener)}
	c.h.o.Tracer.Meta(callCtx, params.Meta)
	if err := passOn(params, watch.Params, seen); err != nil {
		l.calls.Remove(seen.Listener)
		c.note(l, verdict{pass: true})
		return res, false, err
	}
	answer, err := l.session.CallTool(callCtx, params)
	l.calls.Remove(seen.Listener)
	if err != nil {
		v := c.judge(ctx, l, t, limit, seen.Look(), err)
		c.note(l, v)
		return res, v.again, withUpstreamError(l, err, v.err)
	}
	c.note(l, verdict{ok: true})
	res, err = resultOf(answer, seen.Look().Result, c.h.o.MaxResult)
	if err == nil {
		err = t.promised(res, c.h.o.Log)
	}
	res.Result, res.Raw = l.redact.JSON(res.Result), l.redact.JSON(res.Raw)
	if err != nil {
		err = sandbox.Wrap(sandbox.ToolFailed, redacted(l, err), "%s: %s", t.Printed, l.redact.Replace(reasonOf(err)))
	}
	return res, false, err
}

// protocolStateless is the first version in which each request says what it wants to hear.
const protocolStateless = "2026-07-28"

// watched returns the _meta of a call whose listener wants to hear of it, and asks a server of the old
// kind, which is asked once, for its log messages.
func (l *link) watched(ctx context.Context, c *transport.Listener) mcp.Meta {
	m := mcp.Meta{}
	if c.Watch.Progress != nil {
		m["progressToken"] = c.Token
	}
	if c.Watch.Log == nil {
		return m
	}
	init := l.session.InitializeResult()
	if init.ProtocolVersion >= protocolStateless {
		m[mcp.MetaKeyLogLevel] = "info" //nolint:staticcheck // deprecated, and what servers of this version understand
	} else if init.Capabilities != nil && init.Capabilities.Logging != nil { //nolint:staticcheck // as above
		l.logging.Do(func() {
			ctx, cancel := context.WithTimeout(ctx, discoverTimeout)
			defer cancel()
			if err := l.session.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Level: "info"}); err != nil { //nolint:staticcheck // as above
				l.log.Debug("MCP server: no log messages", "error", redacted(l, err))
			}
		})
	}
	return m
}

// verdict is what a failed call says about the server.
type verdict struct {
	err   error
	ok    bool // the server answered
	pass  bool // it says nothing about the server
	gone  bool // the link is of no use any more
	again bool // the call has not reached the server
}

// note draws the consequences.
func (c *conn) note(l *link, v verdict) {
	c.mu.Lock()
	tripped := false
	if v.pass {
		c.breaker.pass()
	} else {
		tripped = c.breaker.note(v.ok, time.Now())
	}
	c.mu.Unlock()
	if tripped {
		c.h.o.Log.Warn("MCP server: left alone for a while", "server", c.key.server, "failures", breakAfter, "error", v.err)
	}
	// A server that hangs is started anew after the break.
	if l != nil && (v.gone || tripped) {
		c.drop(l)
		if errors.Is(v.err, login.ErrNeeded) {
			c.wait(v.err)
		}
	}
}

// judge says what the failure of a call means.
func (c *conn) judge(ctx context.Context, l *link, t *tool, limit time.Duration, s transport.Seen, err error) verdict {
	text, answered := rpcErrorText(err)
	var rpc *jsonrpc.Error
	switch {
	case s.TooLarge, errors.As(err, &rpc) && rpc.Code == transport.CodeTooLarge:
		return verdict{ok: true, err: sandbox.Errorf(sandbox.ToolFailed, "%s: the result is larger than %d bytes, which is the limit", t.Printed, c.h.o.MaxResult)}
	case s.Login != nil:
		return verdict{pass: true, gone: s.Status == http.StatusUnauthorized, err: withoutSecrets(l, s.Login)}
	case s.Forgot && !answered, errors.Is(err, mcp.ErrSessionMissing): // the end of the link may overtake the SDK's error
		return verdict{pass: true, gone: true, again: true, err: sandbox.Wrap(sandbox.Unavailable, redacted(l, err), "the MCP server %q has forgotten the session", c.key.server)}
	case s.Status != 0:
		return verdict{ok: s.Status < 500 && s.Status != 429, gone: s.Status == 404, err: sandbox.Wrap(sandbox.ToolFailed, redacted(l, err), "%s: MCP Error (%d): %s", t.Printed, s.Status, l.redact.Replace(s.Message))}
	case answered:
		return verdict{ok: true, err: sandbox.Wrap(sandbox.ToolFailed, redacted(l, err), "%s: %s", t.Printed, l.redact.Replace(text))}
	case l.drips.Load():
		return verdict{gone: true, err: sandbox.Wrap(sandbox.Unavailable, redacted(l, err), "the MCP server %q was ended: one of its messages came in so slowly that no other got through", c.key.server)}
	case ctx.Err() != nil:
		v := c.tooLate(ctx, t, limit)
		// While one message drips in, no other one gets through: the server is started anew.
		v.gone = l.process != nil && !v.pass && l.process.Stuck(limit/2)
		return v
	case errors.Is(err, transport.ErrNotSent):
		return verdict{pass: true, gone: true, again: true, err: sandbox.Wrap(sandbox.Unavailable, redacted(l, err), "the MCP server %q has ended", c.key.server)}
	case l.remote != nil && !errors.Is(err, mcp.ErrConnectionClosed):
		return verdict{gone: true, err: sandbox.Wrap(sandbox.Unavailable, redacted(l, err), "the MCP server %q cannot be reached: %s", c.key.server, transport.NetworkError(err))}
	}
	return verdict{gone: true, err: sandbox.Wrap(sandbox.Unavailable, redacted(l, err), "the MCP server %q ended before it answered", c.key.server)}
}

// tooLate is the verdict on a call whose time is up, or whose caller has gone.
func (c *conn) tooLate(ctx context.Context, t *tool, limit time.Duration) verdict {
	if errors.Is(context.Cause(ctx), errTooLate) {
		return verdict{err: sandbox.Errorf(sandbox.Timeout, "%s: no answer within %s", t.Printed, limit)}
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return verdict{pass: true, err: sandbox.Wrap(sandbox.Timeout, ctx.Err(), "%s: no answer in the caller's time", t.Printed)}
	}
	return verdict{pass: true, err: sandbox.Wrap(sandbox.Unavailable, ctx.Err(), "%s: the caller went away", t.Printed)}
}

// codeRejected is the code by which the SDK says that it could not send a request.
const codeRejected = -32005

// rpcErrorText returns the text of an error that the server answered with.
func rpcErrorText(err error) (string, bool) {
	var rpc *jsonrpc.Error
	if !errors.As(err, &rpc) || rpc.Code == codeRejected && rpc.Message == "rejected by transport" {
		return "", false
	}
	return fmt.Sprintf("MCP Error (%d): %s", rpc.Code, excerpt.Line(rpc.Message)), true
}
