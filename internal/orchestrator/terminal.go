package orchestrator

import (
	"context"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// maxLive bounds the events that are kept of a terminal: a person who types makes small ones.
const maxLive = 32 << 10

// trim lets go of the oldest events of a terminal. Who follows more slowly misses them, and sees it by
// their numbers. Called with mu held.
func (e *execution) trim() {
	if e.live == 0 {
		return
	}
	for len(e.events) > maxLive || e.bytes > e.live && len(e.events) > 1 {
		e.bytes -= int64(len(e.events[0].Data))
		e.events = e.events[1:] // append moves the rest to another array, and this one goes
	}
}

// head is the part of stdout that a result begins with, and how many bytes of the stream that are. Of a
// terminal all was streamed, but a result is no longer than that of another exec.
func (e *execution) head(stdout []byte) ([]byte, uint64) {
	raw := e.secret.rawOut
	if e.live == 0 || raw <= uint64(e.live) {
		return stdout, raw
	}
	half := e.live / 2
	return stdout[:min(half, int64(len(stdout)))], uint64(half)
}

// JoinTerminal records that the caller looks at the terminal of an exec from now on, which may have
// ended. NotFound; Conflict: the exec has no terminal.
func (r *Orchestrator) JoinTerminal(ctx context.Context, c sandbox.Caller, id, execID string) error {
	e, err := r.lookup(c, id, execID)
	if err != nil {
		return err
	}
	if e.live == 0 {
		return noTerminal(execID)
	}
	rec := audit.About(c, e.thread, audit.ActionTerminal, audit.PhaseResult)
	rec.Exec, rec.Parent, rec.Subject, rec.Outcome = e.id, e.attempt.ID, e.subject, "ok"
	if inst := r.find(e.thread); inst != nil {
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
	if e.live == 0 {
		return noTerminal(execID)
	}
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	if err := e.waitBegun(ctx); err != nil {
		return err
	}
	return inst.Client.Resize(ctx, e.id, size)
}

func noTerminal(execID string) error {
	return sandbox.Errorf(sandbox.Conflict, "exec %s was not started with a pty", execID)
}
