package recovery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/execution"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Settlement writes the results that servers which exited still owe.
type Settlement struct {
	execs        *execution.Registry
	openAudit    func(slot int) (*audit.Log, error)
	sweepReplica func(ctx context.Context, replica string) error
}

// NewSettlement returns the settlement of a server. openAudit opens the audit log of a replica that ended, to be closed by the
// caller; nil: there are no others. sweepReplica removes what else such a replica left running; nil: nothing else does.
func NewSettlement(execs *execution.Registry, openAudit func(slot int) (*audit.Log, error), sweepReplica func(ctx context.Context, replica string) error) *Settlement {
	return &Settlement{execs: execs, openAudit: openAudit, sweepReplica: sweepReplica}
}

// Settle writes the one result of every action that an ended replica began. Its threads were taken
// before, because that ends what still ran in them.
func (s *Settlement) Settle(ctx context.Context, d ownership.ExitedReplica) error {
	if s.sweepReplica != nil {
		if err := s.sweepReplica(ctx, d.Replica); err != nil {
			return err
		}
	}
	if s.openAudit == nil {
		return nil
	}
	log, err := s.openAudit(d.Slot)
	if err != nil {
		return fmt.Errorf("its audit log: %w", err)
	}
	err = s.closeOpenAttempts(ctx, log)
	return errors.Join(err, log.Close())
}

// closeOpenAttempts writes the one result of every action that a log's writer began and did not end.
func (s *Settlement) closeOpenAttempts(ctx context.Context, log *audit.Log) error {
	for _, a := range log.OpenAttempts() {
		rec := a
		rec.Parent, rec.Phase, rec.Outcome = a.ID, audit.PhaseResult, string(sandbox.StatusLost)
		rec.Detail = "the server ended before the action did"
		rec.Args, rec.Millis = nil, time.Since(a.Time).Milliseconds()
		if _, err := log.AppendSync(ctx, rec); err != nil {
			return err
		}
		if a.Exec != "" && a.Action != audit.ActionToolCall {
			s.execs.AddLost(a)
		}
	}
	return nil
}
