package approval

import (
	"context"
	"log/slog"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
)

// auditLog is what journal needs of *audit.Log.
type auditLog interface {
	Append(ctx context.Context, r audit.Record) (audit.Record, error)
	Commit(ctx context.Context, r audit.Record) error
}

// journal writes what became of requests into the audit log.
type journal struct {
	audit auditLog
	log   *slog.Logger
}

// write writes a record and waits until it is durable.
func (j journal) write(ctx context.Context, rec audit.Record) (audit.Record, error) {
	rec, err := j.audit.Append(ctx, rec)
	if err == nil {
		err = j.audit.Commit(ctx, rec)
	}
	if err != nil {
		return rec, sandbox.Wrap(sandbox.Unavailable, err, "the audit log cannot be written")
	}
	return rec, nil
}

// writeEnd records how a request ended that no person decided.
func (j journal) writeEnd(ctx context.Context, a store.ApprovalRecord, outcome, why string) {
	rec := requestRecord(a)
	rec.Outcome, rec.Detail = outcome, a.ID+": "+why
	if _, err := j.write(context.WithoutCancel(ctx), rec); err != nil {
		j.log.Error("the end of a request for approval is not recorded", "id", a.ID, "error", err)
	}
}

// requestRecord is a record about a request that is there, below the record of the request.
func requestRecord(a store.ApprovalRecord) audit.Record {
	return audit.Record{
		Tenant: a.Tenant, User: a.User, Thread: a.Thread, Exec: a.Exec, Parent: a.Record,
		Action: audit.ActionApprovalDecision, Phase: audit.PhaseResult, Subject: a.Tool, ArgsHash: a.ArgsHash,
	}
}

// callRecord is a record about a call, below the call's own.
func callRecord(c sandbox.ApprovalCall, action string) audit.Record {
	return audit.Record{
		Tenant: c.Thread.Tenant, User: c.Thread.User, Thread: c.Thread.ID, Exec: c.Exec, Parent: c.Record,
		Action: action, Phase: audit.PhaseResult, Subject: c.Tool, ArgsHash: c.ArgsHash,
	}.By(c.Caller)
}
