package e2b

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"connectrpc.com/connect"

	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// meaning is how a kind of error is said to E2B's clients.
type meaning struct {
	status int
	code   connect.Code
}

// codes has the code of each kind for the services of E2B's daemon.
var codes = map[sandbox.Kind]connect.Code{
	sandbox.NotFound:         connect.CodeNotFound,
	sandbox.Invalid:          connect.CodeInvalidArgument,
	sandbox.Conflict:         connect.CodeFailedPrecondition,
	sandbox.Forbidden:        connect.CodePermissionDenied,
	sandbox.Unauthorized:     connect.CodeUnauthenticated,
	sandbox.QuotaExceeded:    connect.CodeResourceExhausted,
	sandbox.CapacityExceeded: connect.CodeResourceExhausted,
	sandbox.NotSupported:     connect.CodeUnimplemented,
	sandbox.SandboxLost:      connect.CodeUnavailable,
	sandbox.ToolFailed:       connect.CodeUnknown,
	sandbox.Timeout:          connect.CodeDeadlineExceeded,
	sandbox.Unavailable:      connect.CodeUnavailable,
	sandbox.Internal:         connect.CodeInternal,
}

// toE2BError is what a client learns of an error: nothing of an internal one.
func toE2BError(err error) (m meaning, detail string) {
	kind := sandbox.KindOf(err)
	var e *sandbox.Error
	switch {
	case errors.Is(err, errNoSandbox):
		return meaning{http.StatusBadGateway, connect.CodeUnavailable}, errNoSandbox.Error()
	case errors.Is(err, context.DeadlineExceeded):
		kind, detail = sandbox.Timeout, "the request took too long"
	case errors.Is(err, context.Canceled):
		return meaning{499, connect.CodeCanceled}, "the request was cancelled"
	case errors.As(err, &e) && kind != sandbox.Internal:
		detail = e.Detail
		// E2B's SDKs know a full disk and a sandbox that is gone by statuses of their own.
		switch {
		case kind == sandbox.QuotaExceeded && e.Limit != nil && e.Limit.Limit == "disk_mib":
			return meaning{http.StatusInsufficientStorage, connect.CodeResourceExhausted}, detail
		case kind == sandbox.SandboxLost:
			return meaning{http.StatusBadGateway, connect.CodeUnavailable}, detail
		}
	}
	code, ok := codes[kind]
	if !ok || kind == sandbox.Internal {
		return meaning{http.StatusInternalServerError, connect.CodeInternal}, "an internal error occurred; the server's log has it under the request's id"
	}
	if detail == "" {
		detail = string(kind)
	}
	m = meaning{kind.HTTPStatus(), code}
	if e != nil {
		m.status = sandbox.HTTPStatus(e)
	}
	return m, detail
}

// writeError answers as E2B's API does.
func (a *Adapter) writeError(w http.ResponseWriter, r *http.Request, err error) {
	m, detail := toE2BError(err)
	a.note(r.Context(), m.code, err)
	if m.status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", retryAfter)
	}
	writeJSON(w, m.status, refusal(m.status, detail))
}

// refusal is an error as E2B's API shows it: the SDKs fall over one without a message.
func refusal(status int, detail string) any {
	return map[string]any{"code": status, "message": detail}
}

// rpcError is the same for the daemon's services.
func (a *Adapter) rpcError(ctx context.Context, err error) error {
	var known *connect.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	m, detail := toE2BError(err)
	a.note(ctx, m.code, err)
	return connect.NewError(m.code, errors.New(detail))
}

// note logs what is our fault, once.
func (a *Adapter) note(ctx context.Context, code connect.Code, err error) {
	if code == connect.CodeInternal {
		q := requestOf(ctx)
		a.o.Log.Error("E2B request failed", "request_id", q.caller.RequestID, "thread", q.thread, "error", err)
	}
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client is gone when this fails
}

// readJSON reads a body; none at all is an empty object.
func readJSON(r *http.Request, q request, to any) error {
	if err := q.held.TakeBody(r.Context(), lengthOf(r), maxBodyBytes); err != nil {
		return err
	}
	data, err := io.ReadAll(io.LimitReader(r.Body, maxBodyBytes+1))
	if err != nil {
		return sandbox.Wrap(sandbox.Invalid, err, "the body ended too early")
	}
	if len(data) > maxBodyBytes {
		return sandbox.Errorf(sandbox.Invalid, "the body: at most %d bytes", maxBodyBytes)
	}
	q.held.KeepBody(len(data))
	if len(data) == 0 {
		return nil
	}
	if err := route.CheckJSON(data); err != nil {
		return err
	}
	if err := json.Unmarshal(data, to); err != nil {
		return sandbox.Errorf(sandbox.Invalid, "the body is not the JSON that is wanted: %w", err)
	}
	return nil
}
