package hub

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/breaker"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/excerpt"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/login"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/transport"
)

// exchange is one question to a server with its answer.
type exchange interface {
	// prepare completes the question for a link. An error says that it cannot be sent.
	prepare(ctx context.Context, l *link, seen *transport.Capture) error
	// send sends it, and keeps the answer. seen is that of prepare.
	send(ctx context.Context, l *link, seen *transport.Capture) error
}

// request is what errors say about an exchange, and its limits.
type request struct {
	server string
	what   *tool
	limit  time.Duration
	most   int // bytes of a result
	// private: the connection serves one user, so what its server says is nobody else's
	private bool
}

// do makes an exchange under the terms of the connection. It is made again when the server has seen
// nothing of the first attempt.
func (c *conn) do(ctx context.Context, what *tool, e exchange) error {
	terms := c.terms.Load()
	r := request{c.key.server, what, terms.cfg.Timeout(what.Name, c.o.CallTimeout), c.o.MaxResult, c.key.scope.User != ""}
	ctx, cancel := context.WithTimeoutCause(ctx, r.limit, errTooLate)
	defer cancel()
	c.calls.Add(1)
	defer c.calls.Add(-1)
	leave, err := terms.enter(ctx, c.key.server, what)
	if err != nil {
		return sandbox.NotStarted(err)
	}
	defer leave()
	c.touch()
	defer c.touch()
	for first := true; ; first = false {
		again, err := c.once(ctx, r, e)
		if err == nil || !again || !first {
			return err
		}
	}
}

// once makes one attempt at an exchange. again says that the server has seen nothing of it.
func (c *conn) once(ctx context.Context, r request, e exchange) (again bool, err error) {
	c.mu.Lock()
	allowed := c.breaker.Allow(time.Now())
	c.mu.Unlock()
	if !allowed {
		return false, sandbox.Errorf(sandbox.Unavailable, "the MCP server %q failed %d times in a row; it is left alone for a while", c.key.server, breaker.After)
	}
	l, err := c.ensure(ctx)
	if err != nil {
		v := verdict{err: err, pass: true} // the back-off spares the server already
		if ctx.Err() != nil {
			v = r.tooLate(ctx)
		}
		c.note(nil, v)
		return false, v.err
	}
	// A link that is closed takes its requests with it.
	sendCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.ctx, cancel)()
	sendCtx, seen := transport.WithCapture(sendCtx)
	defer seen.Done()
	if err := e.prepare(sendCtx, l, seen); err != nil {
		c.note(l, verdict{pass: true})
		return false, err
	}
	if err := e.send(sendCtx, l, seen); err != nil {
		v := r.judge(ctx, l, seen.Look(), err)
		c.note(l, v)
		return v.again, withUpstreamError(l, err, v.err)
	}
	c.note(l, verdict{ok: true})
	return false, nil
}

// errTooLate is the cause of a context whose call took too long.
var errTooLate = errors.New("the call took too long")

// protocolStateless is the first version in which each request says what it wants to hear.
const protocolStateless = "2026-07-28"

// watched returns the _meta of a call whose listener wants to hear of it. It asks a server of the old kind
// for its log messages, once.
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
		c.breaker.Pass()
	} else {
		tripped = c.breaker.Note(v.ok, time.Now())
	}
	c.mu.Unlock()
	if tripped {
		c.o.Log.Warn("MCP server: left alone for a while", "server", c.key.server, "failures", breaker.After, "error", v.err)
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
func (r request) judge(ctx context.Context, l *link, s transport.Seen, err error) verdict {
	text, answered := rpcErrorText(err)
	var rpc *jsonrpc.Error
	switch {
	case s.Failed != nil:
		return verdict{pass: true, err: sandbox.Retell(s.Failed, "%s: %s", r.what.Printed, excerpt.Detail(s.Failed))}
	case s.TooLarge, errors.As(err, &rpc) && rpc.Code == transport.CodeTooLarge:
		return verdict{ok: true, err: sandbox.Errorf(sandbox.ToolFailed, "%s: the result is larger than %d bytes, which is the limit", r.what.Printed, r.most)}
	case s.Login != nil:
		return verdict{pass: true, gone: s.Status == http.StatusUnauthorized, err: withoutSecrets(l, s.Login)}
	case s.Forgot && !answered, errors.Is(err, mcp.ErrSessionMissing): // the end of the link may overtake the SDK's error
		return verdict{pass: true, gone: true, again: true, err: sandbox.Wrap(sandbox.Unavailable, redacted(l, err), "the MCP server %q has forgotten the session", r.server)}
	case s.Status != 0:
		return verdict{ok: s.Status < 500 && s.Status != 429, gone: s.Status == 404, err: sandbox.Wrap(sandbox.ToolFailed, redacted(l, err), "%s: MCP Error (%d): %s", r.what.Printed, s.Status, l.redact.Replace(s.Message))}
	case answered:
		return verdict{ok: true, err: sandbox.Wrap(sandbox.ToolFailed, redacted(l, err), "%s: %s", r.what.Printed, l.redact.Replace(text))}
	case l.drips.Load():
		return verdict{gone: true, err: sandbox.Wrap(sandbox.Unavailable, redacted(l, err), "the MCP server %q was ended: one of its messages came in so slowly that no other got through", r.server)}
	case ctx.Err() != nil:
		v := r.tooLate(ctx)
		// While one message drips in, no other one gets through: the server is started anew.
		v.gone = l.process != nil && !v.pass && l.process.Stuck(r.limit/2)
		return v
	case errors.Is(err, transport.ErrNotSent):
		return verdict{pass: true, gone: true, again: true, err: sandbox.Wrap(sandbox.Unavailable, redacted(l, err), "the MCP server %q has ended", r.server)}
	case l.remote != nil && !errors.Is(err, mcp.ErrConnectionClosed):
		return verdict{gone: true, err: sandbox.Wrap(sandbox.Unavailable, redacted(l, err), "the MCP server %q cannot be reached: %s", r.server, transport.NetworkError(err))}
	}
	return verdict{gone: true, err: sandbox.Wrap(sandbox.Unavailable, redacted(l, err), "the MCP server %q ended before it answered%s", r.server, l.why(r.private))}
}

// tooLate is the verdict on a call whose time is up, or whose caller has gone.
func (r request) tooLate(ctx context.Context) verdict {
	if errors.Is(context.Cause(ctx), errTooLate) {
		return verdict{err: sandbox.Errorf(sandbox.Timeout, "%s: no answer within %s", r.what.Printed, r.limit)}
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return verdict{pass: true, err: sandbox.Wrap(sandbox.Timeout, ctx.Err(), "%s: no answer in the caller's time", r.what.Printed)}
	}
	return verdict{pass: true, err: sandbox.Wrap(sandbox.Unavailable, ctx.Err(), "%s: the caller went away", r.what.Printed)}
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
