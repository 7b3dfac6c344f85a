package execution

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
)

const (
	// maxLeft bounds what a sandbox says of how many processes an exec left. No sandbox may have so many.
	maxLeft = 1 << 22
	// shownCommand is how much of the command line of a process a list shows, in characters. sandboxd sends more, so that no
	// secret is cut before it is hidden.
	shownCommand = 256

	leftTooMany = "the processes that it left were ended with it: too many other commands of this sandbox have left some"
)

// running returns the instance of a thread whose daemon answers; nil: there is none. Conflict: it is paused.
func (x *Execs) running(c sandbox.Caller, id string) (*instance.Instance, error) {
	t, err := c.Thread(id)
	if err != nil {
		return nil, err
	}
	if err := x.o.Folders.Exists(t); err != nil {
		return nil, err
	}
	inst := x.o.Live.Find(t)
	if inst == nil || !inst.IsReady() {
		return nil, nil
	}
	switch inst.Info().State {
	case sandbox.Running:
	case sandbox.Paused:
		return nil, sandbox.Errorf(sandbox.Conflict, "the sandbox is paused, and its processes with it: resume it first")
	default:
		return nil, nil
	}
	if !inst.Conn.LeavesProcesses() {
		return nil, nil // it is older than the server
	}
	return inst, nil
}

// Processes lists the processes that execs of a thread left, with all those of running execs as well, by their pids. It
// starts no sandbox.
func (x *Execs) Processes(ctx context.Context, c sandbox.Caller, id string, all bool) ([]sandbox.Process, error) {
	list := []sandbox.Process{}
	inst, err := x.running(c, id)
	if inst == nil || err != nil {
		return list, err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	found, err := inst.Conn.Client.ListProcesses(ctx, all)
	if err != nil {
		return nil, err
	}
	for _, p := range found {
		shown := sandbox.Process{
			PID: int(p.GetPid()), Parent: int(p.GetParentPid()), ExecID: p.GetExecId(), Running: p.GetRunning(), Command: x.command(inst.Thread, p),
			RSSBytes: p.GetRssBytes(), CPUMillis: p.GetCpuMs(), Threads: int(p.GetThreads()),
		}
		if ms := p.GetStartedUnixMs(); ms > 0 {
			at := time.UnixMilli(ms).UTC()
			shown.Started = &at
		}
		list = append(list, shown)
	}
	return list, nil
}

// command is the command line of a process as a list shows it. Of an exec that this server no longer knows, it knows no
// secrets either: then only the program is shown.
func (x *Execs) command(t sandbox.Thread, p *sandboxv1.Process) string {
	text := p.GetCommand()
	var hide func(string) string
	if e, err := x.o.Registry.Get(t, p.GetExecId()); err == nil {
		hide = e.hidesNames()
	}
	if hide != nil {
		text = hide(text)
	} else if program, _, more := strings.Cut(text, " "); more {
		text = program + " …"
	}
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
	if shown := []rune(text); len(shown) > shownCommand {
		text = string(shown[:shownCommand]) + "…"
	}
	return text
}

// KillProcess ends a process that an exec of the thread left, with all below it. NotFound: no exec left it.
func (x *Execs) KillProcess(ctx context.Context, c sandbox.Caller, id string, pid int) error {
	inst, err := x.running(c, id)
	if err != nil {
		return err
	}
	gone := sandbox.Errorf(sandbox.NotFound, "no command of this thread left a process %d, or it has ended", pid)
	if inst == nil {
		return gone
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	found, err := inst.Conn.Client.ListProcesses(ctx, false)
	if err != nil {
		return err
	}
	for _, p := range found {
		if int(p.GetPid()) != pid {
			continue
		}
		if err := x.recordKill(ctx, c, inst, p.GetExecId(), fmt.Sprintf("process %d, which the exec left: %s", pid, x.command(inst.Thread, p))); err != nil {
			return err
		}
		err := inst.Conn.Client.KillProcess(ctx, p.GetPid())
		if errors.Is(err, sandbox.NotFound) {
			return gone
		}
		return err
	}
	return gone
}

// recordKill records the end of processes that an exec left.
func (x *Execs) recordKill(ctx context.Context, c sandbox.Caller, inst *instance.Instance, execID, what string) error {
	rec := audit.About(c, inst.Thread, audit.ActionSignal, audit.PhaseResult)
	rec.Sandbox, rec.Exec, rec.Subject, rec.Outcome, rec.Detail = string(inst.ID), execID, "SIGKILL", "ok", what
	if e, err := x.o.Registry.Get(inst.Thread, execID); err == nil {
		rec.Parent = e.Attempt.ID
	}
	return x.o.Audit.AppendResult(ctx, rec)
}

// killLeft ends what an ended exec left in an instance that still has it.
func (x *Execs) killLeft(ctx context.Context, c sandbox.Caller, e *Exec, inst *instance.Instance) error {
	if inst == nil || e.hidesNames() == nil {
		return nil
	}
	if err := x.recordKill(ctx, c, inst, e.ID, "what the exec left"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	err := inst.Conn.Client.Kill(ctx, e.ID)
	if errors.Is(err, sandbox.NotFound) { // the exec ended long ago, and so did what it left
		return nil
	}
	return err
}

// hidesNames hides secrets in what the processes of e are called; nil: it has ended and left none.
func (e *Exec) hidesNames() func(string) string {
	e.log.mu.Lock()
	defer e.log.mu.Unlock()
	return e.hides
}
