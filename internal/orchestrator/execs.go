package orchestrator

import (
	"context"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/execution"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// lookup finds an exec of the caller's thread.
func (r *Orchestrator) lookup(c sandbox.Caller, id, execID string) (*execution.Exec, error) {
	t, err := c.Thread(id)
	if err != nil {
		return nil, err
	}
	if err := r.exists(t); err != nil {
		return nil, err
	}
	return r.execs.Get(t, execID)
}

// Wait returns the result of an exec when it has ended.
func (r *Orchestrator) Wait(ctx context.Context, c sandbox.Caller, id, execID string) (sandbox.Result, error) {
	e, err := r.lookup(c, id, execID)
	if err != nil {
		return sandbox.Result{}, err
	}
	return e.Wait(ctx)
}

// Exec returns the result of an exec as it is now.
func (r *Orchestrator) Exec(_ context.Context, c sandbox.Caller, id, execID string) (sandbox.Result, error) {
	e, err := r.lookup(c, id, execID)
	if err != nil {
		return sandbox.Result{}, err
	}
	return e.Now()
}

// Execs lists the execs of a thread that are still known, newest first.
func (r *Orchestrator) Execs(_ context.Context, c sandbox.Caller, id string) ([]sandbox.ExecInfo, error) {
	t, err := c.Thread(id)
	if err != nil {
		return nil, err
	}
	if err := r.exists(t); err != nil {
		return nil, err
	}
	return r.execs.List(t), nil
}

// Events emits the events of an exec after number after, up to and with its exit.
func (r *Orchestrator) Events(ctx context.Context, c sandbox.Caller, id, execID string, after uint64, emit func(sandbox.Event) error) error {
	e, err := r.lookup(c, id, execID)
	if err != nil {
		return err
	}
	return e.Follow(ctx, after, emit)
}

// live returns a running exec with its instance. Conflict when it has ended.
func (r *Orchestrator) live(c sandbox.Caller, id, execID string) (*execution.Exec, *instance.Instance, error) {
	e, err := r.lookup(c, id, execID)
	if err != nil {
		return nil, nil, err
	}
	inst := r.find(e.Thread)
	if e.Info().Status != sandbox.StatusRunning || inst == nil {
		return nil, nil, sandbox.Errorf(sandbox.Conflict, "exec %s has ended", execID)
	}
	return e, inst, nil
}

// SendStdin writes to the stdin of an exec that was started with it kept open.
func (r *Orchestrator) SendStdin(ctx context.Context, c sandbox.Caller, id, execID string, data []byte, closeIt bool) error {
	if len(data) > sandbox.MaxStdinBytes {
		return sandbox.Errorf(sandbox.Invalid, "data: %d bytes, at most %d a call", len(data), sandbox.MaxStdinBytes)
	}
	e, inst, err := r.live(c, id, execID)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	if err := e.WaitBegun(ctx); err != nil {
		return err
	}
	return inst.Client.WriteStdin(ctx, e.ID, data, closeIt)
}

// Signal sends a signal, by name, to every process of an exec.
func (r *Orchestrator) Signal(ctx context.Context, c sandbox.Caller, id, execID, name string) error {
	num := unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(name), "SIG"))
	if num == 0 {
		return sandbox.Errorf(sandbox.Invalid, "signal %.40q: want a name such as TERM, INT, HUP, USR1 or KILL", name)
	}
	e, inst, err := r.live(c, id, execID)
	if err != nil {
		return err
	}
	rec := audit.About(c, e.Thread, audit.ActionSignal, audit.PhaseResult)
	rec.Sandbox, rec.Exec, rec.Parent, rec.Subject, rec.Outcome = string(inst.ID), e.ID, e.Attempt.ID, unix.SignalName(num), "ok"
	if err := r.o.Audit.AppendResult(ctx, rec); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	if err := e.WaitBegun(ctx); err != nil {
		return err
	}
	return inst.Client.Signal(ctx, e.ID, int32(num))
}

// Kill ends the whole process tree of an exec. Killing one that has ended is no error.
func (r *Orchestrator) Kill(ctx context.Context, c sandbox.Caller, id, execID string) error {
	e, err := r.lookup(c, id, execID)
	if err != nil {
		return err
	}
	inst := r.find(e.Thread)
	if e.Info().Status != sandbox.StatusRunning || inst == nil {
		return nil
	}
	rec := audit.About(c, e.Thread, audit.ActionSignal, audit.PhaseResult)
	rec.Sandbox, rec.Exec, rec.Parent, rec.Subject, rec.Outcome = string(inst.ID), e.ID, e.Attempt.ID, "SIGKILL", "ok"
	if err := r.o.Audit.AppendResult(ctx, rec); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	if err := e.WaitBegun(ctx); err != nil {
		return err
	}
	if err := inst.Client.Kill(ctx, e.ID); err != nil {
		return err
	}
	// The exec is over when its record is: a caller who looks next must see that.
	if _, err := e.Wait(ctx); err != nil && sandbox.KindOf(err) == sandbox.Timeout {
		return err
	}
	return nil
}
