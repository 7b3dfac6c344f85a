package orchestrator

import (
	"context"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// JoinTerminal records that the caller looks at the terminal of an exec from now on, which may have
// ended. NotFound; Conflict: the exec has no terminal.
func (r *Orchestrator) JoinTerminal(ctx context.Context, c sandbox.Caller, id, execID string) error {
	e, err := r.lookup(c, id, execID)
	if err != nil {
		return err
	}
	if e.Live == 0 {
		return noTerminal(execID)
	}
	rec := audit.About(c, e.Thread, audit.ActionTerminal, audit.PhaseResult)
	rec.Exec, rec.Parent, rec.Subject, rec.Outcome = e.ID, e.Attempt.ID, e.Subject, "ok"
	if inst := r.find(e.Thread); inst != nil {
		rec.Sandbox = string(inst.ID)
	}
	return r.o.Audit.AppendResult(ctx, rec)
}

// Resize sets the size of the terminal of an exec. Invalid: it is not one; Conflict: the exec has no
// terminal, or has ended.
func (r *Orchestrator) Resize(ctx context.Context, c sandbox.Caller, id, execID string, size sandbox.TerminalSize) error {
	if !size.Valid() {
		return sandbox.Errorf(sandbox.Invalid, "resize: want 1 to %d columns and rows", sandbox.MaxTerminalSide)
	}
	e, inst, err := r.live(c, id, execID)
	if err != nil {
		return err
	}
	if e.Live == 0 {
		return noTerminal(execID)
	}
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	if err := e.WaitBegun(ctx); err != nil {
		return err
	}
	return inst.Client.Resize(ctx, e.ID, size)
}

func noTerminal(execID string) error {
	return sandbox.Errorf(sandbox.Conflict, "exec %s was not started with a pty", execID)
}
