package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/observe/tracing"
	"github.com/skerry-sandbox/skerry/internal/platform/deadline"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/call"
)

// The statuses of a call.
const (
	statusOK      = "ok"
	statusError   = "error"
	statusDenied  = "denied"
	statusTimeout = "timeout"
)

// Bounds of texts, in bytes.
const (
	maxMessage  = 4096 // of an answer
	maxKept     = 512  // of the list of calls
	maxRecorded = 1024
)

// callCtx ends with the request, with the exec, and at the deadline of a call, which is held while it waits for a person.
func callCtx(ctx context.Context, e *exec) (context.Context, context.CancelFunc) {
	ctx, cancel := deadline.Context(ctx, e.limits.CallTime, sandbox.MaxApprovalWait)
	stop := context.AfterFunc(e.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// call makes one call for an exec: counted, recorded, made, recorded again. An error is written for
// the caller and has the tool's name as that was asked for. body is {"result": …} or {"file": …}.
func (b *Bridge) call(ctx context.Context, e *exec, ref sandbox.ToolRef, input []byte) (body []byte, err error) {
	began := time.Now()
	tool := call.NameOf(ref)
	n, err := e.start(tool)
	if err != nil {
		return nil, err
	}
	how := sandbox.ToolCall{Tool: tool, Status: statusError, Error: "internal error"}
	defer func() { e.finish(n, how) }()
	ctx, cancel := callCtx(ctx, e)
	defer cancel()
	ctx, span := b.tracer.Start(e.Trace.Into(ctx), "bridge.call", tracing.Server)
	defer span.End()
	body, err = b.recorded(ctx, e, n, ref, input, &how)
	span.Set("skerry.exec.id", e.ExecID)
	span.SetInt("skerry.tool.input_bytes", int64(len(input)))
	span.SetInt("skerry.tool.output_bytes", int64(len(body)))
	span.Failed(err)
	how.Error = ""
	if err != nil {
		how.Error = cut(err.Error(), maxKept)
	}
	how.Status, how.Millis = statusOf(err), time.Since(began).Milliseconds()
	return body, err
}

// recorded makes the call between its two records. It notes the printed name, when there is such a tool, and the size of
// the result. An error is as explain returns it.
func (b *Bridge) recorded(ctx context.Context, e *exec, n int, ref sandbox.ToolRef, input []byte, how *sandbox.ToolCall) (body []byte, err error) {
	from := call.Origin{Caller: e.Caller, Thread: e.Thread, ExecID: e.ExecID, Skill: e.Skill, AuditParent: e.AuditParent, Hide: e.Hide, SaveFile: e.SaveFile}
	one, err := b.calls.Begin(ctx, from, ref, input)
	how.Tool = one.Tool()
	if err != nil {
		b.log.Error("a tool call cannot be recorded and is not made", "exec", e.ExecID, "tool", how.Tool, "error", err)
		return nil, sandbox.Errorf(sandbox.Unavailable, "the call cannot be recorded, so it is not made")
	}
	var file *sandbox.ResultFile
	result, err := made(ctx, e, one)
	if err == nil {
		if body, file, err = b.answer(ctx, e, n, result); err != nil {
			result = nil // code does not get it
		}
	}
	outcome := call.Outcome{Status: statusOK, BytesOut: int64(len(result)), Output: result, File: file}
	how.Bytes = outcome.BytesOut
	if err != nil {
		err = b.explain(ctx, e, how.Tool, err)
		outcome.Status, outcome.Detail = statusOf(err), cut(err.Error(), maxRecorded)
	}
	// What happened is recorded also when the caller is gone.
	rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordWait)
	defer cancel()
	if rerr := one.End(rctx, outcome); rerr != nil {
		b.log.Error("the result of a tool call is not recorded", "exec", e.ExecID, "tool", how.Tool, "attempt", one.ID, "error", rerr)
	}
	return body, err
}

// made calls the tool and judges its result.
func made(ctx context.Context, e *exec, one *call.Call) (json.RawMessage, error) {
	res, err := one.Make(ctx, sandbox.ToolWatch{})
	switch {
	case err != nil:
		return nil, err
	case res.IsError:
		return nil, sandbox.Errorf(sandbox.ToolFailed, "%s", textOf(res.Result))
	case len(res.Result) == 0:
		return json.RawMessage("null"), nil
	}
	return res.Result, e.weigh(len(res.Result))
}

// answer is what code gets of a result: the result itself, or the file that holds it.
func (b *Bridge) answer(ctx context.Context, e *exec, n int, result json.RawMessage) (body []byte, kept *sandbox.ResultFile, err error) {
	if len(result) <= e.limits.InlineBytes {
		return slices.Concat([]byte(`{"result":`), result, []byte(`}`)), nil, nil
	}
	file, err := call.Contained(b.log, func() (sandbox.ResultFile, error) {
		return e.SaveResult(ctx, e.Thread, fmt.Sprintf("%s-%d", e.ExecID, n+1), result)
	})
	if err != nil {
		return nil, nil, err
	}
	body, err = json.Marshal(map[string]sandbox.ResultFile{"file": file})
	return body, &file, err
}

// explain returns an error whose text may be shown to code in the sandbox and holds no hidden cause. It
// names the end of the exec or of the caller, which the hub knows only as a cancelled context.
func (b *Bridge) explain(ctx context.Context, e *exec, tool string, err error) error {
	var shown *sandbox.Error
	known := errors.As(err, &shown) && shown.Kind != sandbox.Internal
	switch {
	case e.ctx.Err() != nil:
		return errEnded
	case errors.Is(context.Cause(ctx), context.Canceled):
		return sandbox.Errorf(sandbox.Unavailable, "the caller went away")
	case ctx.Err() != nil, !known && errors.Is(err, context.DeadlineExceeded):
		return sandbox.Errorf(sandbox.Timeout, "the call took too long")
	case !known:
		b.log.Error("a tool call failed", "exec", e.ExecID, "tool", tool, "error", err)
		return sandbox.Errorf(sandbox.Internal, "internal error")
	}
	kind, detail := shown.Kind, shown.Detail
	if kind == sandbox.Unauthorized {
		kind = sandbox.ToolFailed // the server's credential is wrong, not the caller's token
	}
	for _, f := range shown.Fields {
		if len(detail) < maxMessage && !strings.Contains(detail, f.Name) {
			detail += "; " + f.Name + ": " + f.Detail
		}
	}
	return &sandbox.Error{Kind: kind, Detail: cut(detail, maxMessage), Limit: shown.Limit}
}

func statusOf(err error) string {
	switch sandbox.KindOf(err) {
	case "":
		return statusOK
	case sandbox.Timeout:
		return statusTimeout
	case sandbox.Forbidden, sandbox.QuotaExceeded:
		return statusDenied
	}
	return statusError
}

// textOf returns the text of a failed tool's result.
func textOf(result json.RawMessage) string {
	var text string
	if json.Unmarshal(result, &text) != nil {
		text = string(result)
	}
	if text = cut(text, maxMessage); text == "" {
		text = "the tool failed without a message"
	}
	return text
}

// cut shortens a text to max bytes of whole characters.
func cut(s string, max int) string {
	if len(s) <= max {
		return s
	}
	return strings.ToValidUTF8(s[:max-3], "") + "…"
}
