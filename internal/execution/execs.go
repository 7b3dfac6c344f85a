package execution

import (
	"context"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// askTimeout bounds what is asked of the sandbox of an exec.
const askTimeout = 10 * time.Second

// Folders are those of threads.
type Folders interface {
	// Exists returns NotFound for a thread that does not exist.
	Exists(t sandbox.Thread) error
}

// Options are the parts that Execs work with.
type Options struct {
	Registry *Registry
	Live     *instance.Map
	Folders  Folders
	Audit    *audit.Log
}

// Execs are the execs of threads, for callers who look at them, follow them, and steer them.
type Execs struct{ o Options }

// New returns the execs of a registry.
func New(o Options) *Execs { return &Execs{o: o} }

// lookup finds an exec of the caller's thread.
func (x *Execs) lookup(c sandbox.Caller, id, execID string) (*Exec, error) {
	t, err := c.Thread(id)
	if err != nil {
		return nil, err
	}
	if err := x.o.Folders.Exists(t); err != nil {
		return nil, err
	}
	return x.o.Registry.Get(t, execID)
}

// Wait returns the result of an exec when it has ended.
func (x *Execs) Wait(ctx context.Context, c sandbox.Caller, id, execID string) (sandbox.Result, error) {
	e, err := x.lookup(c, id, execID)
	if err != nil {
		return sandbox.Result{}, err
	}
	return e.Wait(ctx)
}

// Exec returns the result of an exec as it is now.
func (x *Execs) Exec(_ context.Context, c sandbox.Caller, id, execID string) (sandbox.Result, error) {
	e, err := x.lookup(c, id, execID)
	if err != nil {
		return sandbox.Result{}, err
	}
	return e.Now()
}

// Execs lists the execs of a thread that are still known, newest first.
func (x *Execs) Execs(_ context.Context, c sandbox.Caller, id string) ([]sandbox.ExecInfo, error) {
	t, err := c.Thread(id)
	if err != nil {
		return nil, err
	}
	if err := x.o.Folders.Exists(t); err != nil {
		return nil, err
	}
	return x.o.Registry.List(t), nil
}

// Events emits the events of an exec after number after, up to and with its exit.
func (x *Execs) Events(ctx context.Context, c sandbox.Caller, id, execID string, after uint64, emit func(sandbox.Event) error) error {
	e, err := x.lookup(c, id, execID)
	if err != nil {
		return err
	}
	return e.Follow(ctx, after, emit)
}

// live returns a running exec with its instance. Conflict when it has ended.
func (x *Execs) live(c sandbox.Caller, id, execID string) (*Exec, *instance.Instance, error) {
	e, err := x.lookup(c, id, execID)
	if err != nil {
		return nil, nil, err
	}
	inst := e.Instance(x.o.Live)
	if e.Info().Status != sandbox.StatusRunning || inst == nil {
		return nil, nil, sandbox.Errorf(sandbox.Conflict, "exec %s has ended", execID)
	}
	return e, inst, nil
}

// SendStdin writes to the stdin of an exec that was started with it kept open. It waits until the command took
// all of it, for as long as the exec may run: a caller that gave up early could not know how much was taken.
func (x *Execs) SendStdin(ctx context.Context, c sandbox.Caller, id, execID string, data []byte, closeIt bool) error {
	if len(data) > sandbox.MaxStdinBytes {
		return sandbox.Errorf(sandbox.Invalid, "data: %d bytes, at most %d a call", len(data), sandbox.MaxStdinBytes)
	}
	e, inst, err := x.live(c, id, execID)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, max(askTimeout, e.Spec.Deadline))
	defer cancel()
	if err := e.WaitBegun(ctx); err != nil {
		return err
	}
	return inst.Conn.Client.WriteStdin(ctx, e.ID, data, closeIt)
}

// Signal sends a signal, by name, to every process of an exec.
func (x *Execs) Signal(ctx context.Context, c sandbox.Caller, id, execID, name string) error {
	num := unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(name), "SIG"))
	if num == 0 {
		return sandbox.Errorf(sandbox.Invalid, "signal %.40q: want a name such as TERM, INT, HUP, USR1 or KILL", name)
	}
	e, inst, err := x.live(c, id, execID)
	if err != nil {
		return err
	}
	rec := audit.About(c, e.Thread, audit.ActionSignal, audit.PhaseResult)
	rec.Sandbox, rec.Exec, rec.Parent, rec.Subject, rec.Outcome = string(inst.ID), e.ID, e.Attempt.ID, unix.SignalName(num), "ok"
	if err := x.o.Audit.AppendResult(ctx, rec); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if err := e.WaitBegun(ctx); err != nil {
		return err
	}
	return inst.Conn.Client.Signal(ctx, e.ID, int32(num))
}

// Kill ends the whole process tree of an exec. Killing an ended one is no error, and ends what it left.
func (x *Execs) Kill(ctx context.Context, c sandbox.Caller, id, execID string) error {
	e, err := x.lookup(c, id, execID)
	if err != nil {
		return err
	}
	inst := e.Instance(x.o.Live)
	if e.Info().Status != sandbox.StatusRunning || inst == nil {
		return x.killLeft(ctx, c, e, inst)
	}
	rec := audit.About(c, e.Thread, audit.ActionSignal, audit.PhaseResult)
	rec.Sandbox, rec.Exec, rec.Parent, rec.Subject, rec.Outcome = string(inst.ID), e.ID, e.Attempt.ID, "SIGKILL", "ok"
	if err := x.o.Audit.AppendResult(ctx, rec); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if err := e.WaitBegun(ctx); err != nil {
		return err
	}
	if err := inst.Conn.Client.Kill(ctx, e.ID); err != nil {
		return err
	}
	// The exec is over when its record is: a caller who looks next must see that.
	if _, err := e.Wait(ctx); err != nil && sandbox.KindOf(err) == sandbox.Timeout {
		return err
	}
	return nil
}

// JoinTerminal records that the caller looks at the terminal of an exec from now on, which may have
// ended. NotFound; Conflict: the exec has no terminal.
func (x *Execs) JoinTerminal(ctx context.Context, c sandbox.Caller, id, execID string) error {
	e, err := x.lookup(c, id, execID)
	if err != nil {
		return err
	}
	if e.Spec.Live == 0 {
		return noTerminal(execID)
	}
	rec := audit.About(c, e.Thread, audit.ActionTerminal, audit.PhaseResult)
	rec.Exec, rec.Parent, rec.Subject, rec.Outcome = e.ID, e.Attempt.ID, e.Attempt.Subject, "ok"
	if inst := x.o.Live.Find(e.Thread); inst != nil {
		rec.Sandbox = string(inst.ID)
	}
	return x.o.Audit.AppendResult(ctx, rec)
}

// Resize sets the size of the terminal of an exec. Invalid: it is not one; Conflict: the exec has no
// terminal, or has ended.
func (x *Execs) Resize(ctx context.Context, c sandbox.Caller, id, execID string, size sandbox.TerminalSize) error {
	if !size.Valid() {
		return sandbox.Errorf(sandbox.Invalid, "resize: want 1 to %d columns and rows", sandbox.MaxTerminalSide)
	}
	e, inst, err := x.live(c, id, execID)
	if err != nil {
		return err
	}
	if e.Spec.Live == 0 {
		return noTerminal(execID)
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if err := e.WaitBegun(ctx); err != nil {
		return err
	}
	return inst.Conn.Client.Resize(ctx, e.ID, size)
}

func noTerminal(execID string) error {
	return sandbox.Errorf(sandbox.Conflict, "exec %s was not started with a pty", execID)
}
