package call

import (
	"context"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	telemetry "github.com/skerry-sandbox/skerry/internal/observe/metrics"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Recorder writes calls into the audit log: an attempt before each, a result after it. Those of code are children of
// the exec that made the call.
type Recorder struct {
	log     *audit.Log
	metrics *telemetry.Metrics
}

// NewRecorder returns a recorder that writes to log, and counts.
func NewRecorder(log *audit.Log, metrics *telemetry.Metrics) *Recorder {
	return &Recorder{log: log, metrics: metrics}
}

func toolRecord(a Attempt, phase string) audit.Record {
	rec := audit.About(a.From.Caller, a.From.Thread, audit.ActionToolCall, phase)
	rec.Exec, rec.Subject, rec.BytesIn = a.From.ExecID, a.Tool, int64(len(a.Input))
	return rec
}

// Attempt records that a call is about to be made and returns the record's id.
func (t *Recorder) Attempt(ctx context.Context, a Attempt) (string, error) {
	rec := toolRecord(a, audit.PhaseAttempt)
	rec.Parent = a.From.AuditParent
	Decided(&rec, a.Plan, a.From.Hide.JSON(a.Input))
	rec, err := t.log.Append(ctx, rec)
	return rec.ID, err
}

// Result records how a call ended. An agent sees no outcome before its record is on the disk. Code may: the exec's own
// end is made durable after it, in the same log.
func (t *Recorder) Result(ctx context.Context, id string, o Outcome) error {
	x := o.Attempt.From
	rec := toolRecord(o.Attempt, audit.PhaseResult)
	rec.Parent, rec.Outcome, rec.Detail = id, o.Status, x.Hide.String(o.Detail)
	rec.Millis, rec.BytesOut = o.Millis, o.BytesOut
	rec.OutHash = audit.Sum(o.Output)
	for _, f := range o.Files {
		if _, err := t.log.Append(ctx, fileRecord(x.Caller, x.Thread, x.ExecID, id, f, "created: the tool returned it")); err != nil {
			return err
		}
	}
	took := time.Duration(o.Millis) * time.Millisecond
	if x.ExecID == "" {
		t.metrics.ToolCall("api", o.Status, took)
		t.metrics.ToolResult("api", o.BytesOut)
		rec.ArgsHash = audit.Sum(o.Attempt.Input)
		return t.log.AppendResult(ctx, rec)
	}
	t.metrics.ToolCall("bridge", o.Status, took)
	t.metrics.ToolResult("bridge", o.BytesOut)
	_, err := t.log.Append(ctx, rec)
	if err == nil && o.File != nil {
		_, err = t.log.Append(ctx, keptRecord(x.Caller, x.Thread, x.ExecID, id, *o.File))
	}
	return err
}

// keptRecord is of the file that holds the result of a tool call. parent is the call's attempt.
func keptRecord(c sandbox.Caller, t sandbox.Thread, exec, parent string, f sandbox.ResultFile) audit.Record {
	return fileRecord(c, t, exec, parent, f, "created: the result was too large to be passed on")
}

func fileRecord(c sandbox.Caller, t sandbox.Thread, exec, parent string, f sandbox.ResultFile, detail string) audit.Record {
	rec := audit.About(c, t, audit.ActionFileChange, audit.PhaseResult)
	rec.Exec, rec.Parent, rec.Subject, rec.Outcome, rec.BytesOut = exec, parent, f.Path, "ok", f.Bytes
	rec.Detail = detail
	return rec
}

// Refused records a call with a token that is not of a living exec of the thread.
func (t *Recorder) Refused(ctx context.Context, th sandbox.Thread, detail string) error {
	rec := audit.About(sandbox.Caller{}, th, audit.ActionAuthRefused, audit.PhaseResult)
	rec.Outcome, rec.Detail = "denied", detail
	_, err := t.log.Append(ctx, rec)
	return err
}
