package call

import (
	"context"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	telemetry "github.com/skerry-sandbox/skerry/internal/observe/metrics"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/bridge"
)

// Recorder writes the bridge's calls into the audit log: an attempt before each, a result after
// it, both children of the exec whose code made the call.
type Recorder struct {
	log     *audit.Log
	metrics *telemetry.Metrics
}

// NewRecorder returns a recorder that writes to log, and counts.
func NewRecorder(log *audit.Log, metrics *telemetry.Metrics) *Recorder {
	return &Recorder{log: log, metrics: metrics}
}

func toolRecord(a bridge.Attempt, phase string) audit.Record {
	rec := audit.About(a.Exec.Caller, a.Exec.Thread, audit.ActionToolCall, phase)
	rec.Exec, rec.Subject, rec.BytesIn = a.Exec.ExecID, a.Tool, int64(len(a.Input))
	return rec
}

// Attempt records that a call is about to be made and returns the record's id.
func (t *Recorder) Attempt(ctx context.Context, a bridge.Attempt) (string, error) {
	rec := toolRecord(a, audit.PhaseAttempt)
	rec.Parent = a.Exec.AuditParent
	Decided(&rec, a.Plan, a.Exec.Hide.JSON(a.Input))
	rec, err := t.log.Append(ctx, rec)
	return rec.ID, err
}

// Result records how a call ended. Code sees the answer before the record is on the disk; the caller
// of the API sees neither before: the exec's own end is made durable after it, in the same log.
func (t *Recorder) Result(ctx context.Context, id string, o bridge.Outcome) error {
	rec := toolRecord(o.Attempt, audit.PhaseResult)
	rec.Parent, rec.Outcome, rec.Detail = id, o.Status, o.Attempt.Exec.Hide.String(o.Detail)
	rec.Millis, rec.BytesOut = o.Millis, o.BytesOut
	rec.OutHash = audit.Sum(o.Output)
	t.metrics.ToolCall("bridge", o.Status, time.Duration(o.Millis)*time.Millisecond)
	_, err := t.log.Append(ctx, rec)
	if x := o.Attempt.Exec; err == nil && o.File != nil {
		_, err = t.log.Append(ctx, keptRecord(x.Caller, x.Thread, x.ExecID, id, *o.File))
	}
	return err
}

// keptRecord is of the file that holds the result of a tool call. parent is the call's attempt.
func keptRecord(c sandbox.Caller, t sandbox.Thread, exec, parent string, f sandbox.ResultFile) audit.Record {
	rec := audit.About(c, t, audit.ActionFileChange, audit.PhaseResult)
	rec.Exec, rec.Parent, rec.Subject, rec.Outcome, rec.BytesOut = exec, parent, f.Path, "ok", f.Bytes
	rec.Detail = "created: the result was too large to be passed on"
	return rec
}

// Refused records a call with a token that is not of a living exec of the thread.
func (t *Recorder) Refused(ctx context.Context, th sandbox.Thread, detail string) error {
	rec := audit.About(sandbox.Caller{}, th, audit.ActionAuthRefused, audit.PhaseResult)
	rec.Outcome, rec.Detail = "denied", detail
	_, err := t.log.Append(ctx, rec)
	return err
}
