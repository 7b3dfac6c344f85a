package mcp

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skerry-sandbox/skerry/internal/observe/tracing"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// scoped is what the methods and tools of one scope work with.
type scoped struct {
	o       Options
	scope   *Scope
	session *session // nil in the era without sessions
}

// request is what the log knows of a client's request.
type request struct {
	caller sandbox.Caller
	id     string
}

type requestKey struct{}

func requestOf(ctx context.Context) request {
	q, ok := ctx.Value(requestKey{}).(request)
	if !ok {
		panic("mcp: a context without its request")
	}
	return q
}

// within returns the context of a request.
func (m *scoped) within(ctx context.Context, q request) context.Context {
	return m.o.Host.Enter(context.WithValue(ctx, requestKey{}, q), q.caller, m.scope.Thread)
}

// enter returns the context in which a request is handled: with the caller as this request found it, and
// ended by the end of the session.
func (m *scoped) enter(ctx context.Context, extra *sdk.RequestExtra) (context.Context, context.CancelFunc) {
	// The request that began a session is long over; this one's parts that the log shows are enough.
	q := request{caller: m.scope.Caller}
	if extra != nil {
		q.id = extra.Header.Get("X-Request-Id")
	}
	q.caller.RequestID = q.id
	if extra != nil && m.o.Tracer != nil {
		ctx = m.o.Tracer.From(ctx, extra.Header)
		q.caller.TraceID = tracing.LinkOf(ctx).TraceID()
	}
	ctx, cancel := context.WithCancel(m.within(ctx, q))
	if m.session == nil {
		return ctx, cancel
	}
	stop := context.AfterFunc(m.session.calls, cancel)
	return ctx, func() { stop(); cancel() }
}

func (m *scoped) failed(ctx context.Context, err error) *sdk.CallToolResult {
	code, detail := m.o.Host.Describe(ctx, err)
	return toolText(code+": "+detail, true)
}

func (m *scoped) caller(ctx context.Context) sandbox.Caller { return requestOf(ctx).caller }

// era completes a result for the era of the request. cached says that the protocol wants to know how long
// it may be kept: what a thread sees is for that thread alone, and may change at any time.
func (m *scoped) era(r *rawResult, cached bool) *rawResult {
	if !m.scope.modern {
		delete(r.members, "resultType")
		return r
	}
	r.setMissing("resultType", `"complete"`)
	if cached {
		r.setMissing("ttlMs", "0")
		r.members["cacheScope"] = json.RawMessage(`"private"`)
	}
	return r
}

// wireError is what a client is told of an error that is not a tool's: the server's own, when it answered
// with one.
func (m *scoped) wireError(ctx context.Context, err error) error {
	var own *sandbox.UpstreamError
	if errors.As(err, &own) {
		code := own.Code
		if code == codeLegacyNotFound && m.scope.modern {
			code = jsonrpc.CodeInvalidParams // as the protocol says since then
		}
		return &jsonrpc.Error{Code: code, Message: own.Message, Data: own.Data}
	}
	kind, detail := m.o.Host.Describe(ctx, err)
	code := int64(jsonrpc.CodeInternalError)
	switch sandbox.Kind(kind) {
	case sandbox.NotFound, sandbox.Invalid, sandbox.Forbidden, sandbox.NotSupported:
		code = jsonrpc.CodeInvalidParams
	}
	data, _ := json.Marshal(map[string]string{"code": kind}) // of two strings
	return &jsonrpc.Error{Code: code, Message: detail, Data: data}
}

// codeLegacyNotFound is what the protocol said before 2026-07-28 of a resource that is not there.
const codeLegacyNotFound = -32002

func (m *scoped) resourceNotFound(uri string) error {
	code := int64(codeLegacyNotFound)
	if m.scope.modern {
		code = jsonrpc.CodeInvalidParams
	}
	data, _ := json.Marshal(map[string]string{"uri": uri}) // of a string
	return &jsonrpc.Error{Code: code, Message: "Resource not found", Data: data}
}
