package e2b

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/skerry-sandbox/skerry/internal/api/e2b/envd/process"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// keepAlive is how often a stream says that it is there: well within the time that the server allows a client to take
// something.
const keepAlive = 10 * time.Second

// processService is process.Process: processes are execs.
type processService struct{ a *Adapter }

// pid is the number of an exec. E2B's clients know processes by number only; ours have names, so the number is made of
// the name, and an exec is found among those of its thread.
func pid(execID string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(execID))
	return h.Sum32()&0x3fffffff + 2 // a positive int32, and never 1
}

// enter checks that the sandbox of a request is there, and that the request is for the user there is.
func (a *Adapter) enter(ctx context.Context, h http.Header) (request, error) {
	q := requestOf(ctx)
	if err := checkUser(h.Get(userHeader)); err != nil {
		return q, err
	}
	_, err := a.known.find(ctx, q, false)
	return q, err
}

// running lists the commands that run. Code runs in contexts, which are no processes of E2B's.
func (a *Adapter) running(ctx context.Context, q request) ([]sandbox.ExecInfo, error) {
	all, err := a.o.Execs.Execs(ctx, q.caller, q.thread)
	if err != nil {
		return nil, err
	}
	var out []sandbox.ExecInfo
	for _, e := range all {
		if e.Status == sandbox.StatusRunning && e.Action == "exec" {
			out = append(out, e)
		}
	}
	return out, nil
}

// selected finds the exec that a client means.
func (a *Adapter) selected(ctx context.Context, q request, s *process.ProcessSelector) (string, error) {
	if _, ok := s.GetSelector().(*process.ProcessSelector_Tag); ok {
		return "", notSupported("processes by tag")
	}
	list, err := a.running(ctx, q)
	if err != nil {
		return "", err
	}
	for _, e := range list {
		if pid(e.ExecID) == s.GetPid() {
			return e.ExecID, nil
		}
	}
	return "", sandbox.Errorf(sandbox.NotFound, "process with pid %d not found", s.GetPid())
}

func (p *processService) List(ctx context.Context, r *connect.Request[process.ListRequest]) (*connect.Response[process.ListResponse], error) {
	q, err := p.a.enter(ctx, r.Header())
	if err != nil {
		return nil, p.a.rpcError(ctx, err)
	}
	list, err := p.a.running(ctx, q)
	if err != nil {
		return nil, p.a.rpcError(ctx, err)
	}
	out := &process.ListResponse{}
	for _, e := range list {
		out.Processes = append(out.Processes, &process.ProcessInfo{Pid: pid(e.ExecID), Config: &process.ProcessConfig{Cmd: e.Subject}})
	}
	return connect.NewResponse(out), nil
}

// command is the exec that a client asks for. left is how long it may run.
func command(m *process.StartRequest, left time.Duration) (sandbox.Command, error) {
	conf := m.GetProcess()
	if conf.GetCmd() == "" {
		return sandbox.Command{}, sandbox.Errorf(sandbox.Invalid, "process.cmd: name a program")
	}
	if m.Tag != nil {
		return sandbox.Command{}, notSupported("processes by tag")
	}
	dir, err := workingDir(conf.GetCwd())
	if err != nil {
		return sandbox.Command{}, err
	}
	c := sandbox.Command{
		Argv: append([]string{conf.GetCmd()}, conf.GetArgs()...), Cwd: dir, Env: conf.GetEnvs(), KeepStdin: m.Stdin == nil || m.GetStdin(),
		Background: true, Timeout: min(max(left, time.Millisecond), sandbox.MaxExecTimeout), MaxOutputBytes: sandbox.MaxOutputBytes,
		LeaveProcesses: true, // as in a sandbox of E2B
	}
	if m.Pty != nil {
		size, err := terminalSize(m.GetPty())
		if err != nil {
			return c, err
		}
		c.Terminal, c.KeepStdin = &size, true
	}
	return c, nil
}

func terminalSize(p *process.PTY) (sandbox.TerminalSize, error) {
	cols, rows := p.GetSize().GetCols(), p.GetSize().GetRows()
	if cols < 1 || cols > sandbox.MaxTerminalSide || rows < 1 || rows > sandbox.MaxTerminalSide {
		return sandbox.TerminalSize{}, sandbox.Errorf(sandbox.Invalid, "pty.size: want 1 to %d columns and rows", sandbox.MaxTerminalSide)
	}
	return sandbox.TerminalSize{Cols: uint16(cols), Rows: uint16(rows)}, nil
}

func (p *processService) Start(ctx context.Context, r *connect.Request[process.StartRequest], s *connect.ServerStream[process.StartResponse]) error {
	q, err := p.a.enter(ctx, r.Header())
	if err != nil {
		return p.a.rpcError(ctx, err)
	}
	left := sandbox.MaxExecTimeout
	if end, ok := ctx.Deadline(); ok {
		left = time.Until(end)
	}
	cmd, err := command(r.Msg, left)
	if err != nil {
		return p.a.rpcError(ctx, err)
	}
	id, err := p.a.o.Runs.RunCommand(ctx, q.caller, q.thread, cmd)
	if errors.Is(err, sandbox.NotSupported) { // the sandbox was started by an older server
		cmd.LeaveProcesses = false
		id, err = p.a.o.Runs.RunCommand(ctx, q.caller, q.thread, cmd)
	}
	if err != nil {
		return p.a.rpcError(ctx, err)
	}
	q.held.End() // the command runs, and the request is not needed any more
	return p.a.follow(ctx, q, id, cmd.Terminal != nil, time.Time{}, func(e *process.ProcessEvent) error {
		return s.Send(&process.StartResponse{Event: e})
	})
}

// Connect follows a process from now on, as E2B's daemon does.
func (p *processService) Connect(ctx context.Context, r *connect.Request[process.ConnectRequest], s *connect.ServerStream[process.ConnectResponse]) error {
	now := time.Now()
	q, err := p.a.enter(ctx, r.Header())
	if err != nil {
		return p.a.rpcError(ctx, err)
	}
	id, err := p.a.selected(ctx, q, r.Msg.GetProcess())
	if err != nil {
		return p.a.rpcError(ctx, err)
	}
	err = p.a.o.Terminals.JoinTerminal(ctx, q.caller, q.thread, id)
	terminal := err == nil
	if err != nil && sandbox.KindOf(err) != sandbox.Conflict {
		return p.a.rpcError(ctx, err)
	}
	q.held.End()
	return p.a.follow(ctx, q, id, terminal, now, func(e *process.ProcessEvent) error {
		return s.Send(&process.ConnectResponse{Event: e})
	})
}

// follow sends the events of an exec from a time on, up to and with its end.
func (a *Adapter) follow(ctx context.Context, q request, id string, terminal bool, from time.Time, send func(*process.ProcessEvent) error) error {
	var mu sync.Mutex // a stream takes one message at a time
	say := func(e *process.ProcessEvent) error {
		mu.Lock()
		defer mu.Unlock()
		return send(e)
	}
	if err := say(&process.ProcessEvent{Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: pid(id)}}}); err != nil {
		return err
	}
	stop := every(keepAlive, func() {
		_ = say(&process.ProcessEvent{Event: &process.ProcessEvent_Keepalive{Keepalive: &process.ProcessEvent_KeepAlive{}}}) // Events sees that the client is gone
	})
	defer stop()
	err := a.o.Execs.Events(ctx, q.caller, q.thread, id, 0, func(ev sandbox.Event) error {
		switch ev.Type {
		case sandbox.EventStdout, sandbox.EventStderr:
			if ev.Time.Before(from) {
				return nil
			}
			return say(&process.ProcessEvent{Event: &process.ProcessEvent_Data{Data: output(ev, terminal)}})
		case sandbox.EventExit:
			if cutOff(ev.Result) && a.ceased(ctx, q) {
				return errNoSandbox
			}
			end, err := ended(ev.Result)
			if err != nil {
				return err
			}
			return say(&process.ProcessEvent{Event: &process.ProcessEvent_End{End: end}})
		}
		return nil
	})
	if kind := sandbox.KindOf(err); err != nil && (kind == sandbox.SandboxLost || kind == sandbox.NotFound) && a.ceased(ctx, q) {
		err = errNoSandbox
	}
	return a.rpcError(ctx, err)
}

// cutOff reports whether an exec was ended from outside.
func cutOff(res *sandbox.Result) bool {
	return res != nil && (res.Status == sandbox.StatusLost || res.Status == sandbox.StatusKilled)
}

// ceased reports whether a sandbox does not run any more. The SDKs say then that it timed out, whatever became of the exec.
func (a *Adapter) ceased(ctx context.Context, q request) bool {
	v, err := a.known.find(ctx, q, true)
	return errors.Is(err, errNoSandbox) || err == nil && state(v) == statePaused
}

// every does something again and again, until it is stopped. stop may be called twice.
func every(pause time.Duration, do func()) (stop func()) {
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
				do()
			}
		}
	}()
	var once sync.Once
	return func() {
		once.Do(func() { close(end) })
		<-done
	}
}

func output(ev sandbox.Event, terminal bool) *process.ProcessEvent_DataEvent {
	switch {
	case terminal:
		return &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Pty{Pty: ev.Data}}
	case ev.Type == sandbox.EventStderr:
		return &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Stderr{Stderr: ev.Data}}
	}
	return &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Stdout{Stdout: ev.Data}}
}

// ended is the end of an exec as E2B's daemon tells it. One whose time is over, or whose end is unknown, is an error.
func ended(res *sandbox.Result) (*process.ProcessEvent_EndEvent, error) {
	if res == nil {
		return nil, errors.New("an exit without a result")
	}
	end := &process.ProcessEvent_EndEvent{ExitCode: -1}
	say := func(text string) { end.Error = &text }
	switch res.Status {
	case sandbox.StatusExited:
		end.Exited, end.ExitCode = true, 0
		if res.ExitCode != nil {
			end.ExitCode = int32(*res.ExitCode) //nolint:gosec // a code of exit fits
		}
		end.Status = fmt.Sprintf("exit status %d", end.ExitCode)
		if end.ExitCode != 0 {
			say(end.Status)
		}
	case sandbox.StatusTimeout:
		return nil, sandbox.Errorf(sandbox.Timeout, "the command took too long")
	case sandbox.StatusLost:
		return nil, sandbox.Errorf(sandbox.SandboxLost, "the sandbox ended under the command")
	case sandbox.StatusOOM:
		end.Status = "signal: killed"
		say("the command ran out of memory")
	default:
		end.Status = "signal: killed"
		say(end.Status)
	}
	if res.Truncated {
		where := "is not kept"
		if res.StdoutPath != nil {
			where = "is in " + *res.StdoutPath
		} else if res.StderrPath != nil {
			where = "is in " + *res.StderrPath
		}
		say(fmt.Sprintf("output beyond %d bytes %s", sandbox.MaxOutputBytes, where))
	}
	return end, nil
}

// touch does something to the process that a client means. A process that has ended is not found.
func (a *Adapter) touch(ctx context.Context, h http.Header, s *process.ProcessSelector, do func(q request, execID string) error) error {
	q, err := a.enter(ctx, h)
	if err != nil {
		return a.rpcError(ctx, err)
	}
	id, err := a.selected(ctx, q, s)
	if err == nil {
		err = do(q, id)
	}
	return a.rpcError(ctx, err)
}

func (p *processService) Update(ctx context.Context, r *connect.Request[process.UpdateRequest]) (*connect.Response[process.UpdateResponse], error) {
	err := p.a.touch(ctx, r.Header(), r.Msg.GetProcess(), func(q request, id string) error {
		if r.Msg.Pty == nil {
			return nil
		}
		size, err := terminalSize(r.Msg.GetPty())
		if err != nil {
			return err
		}
		return p.a.o.Terminals.Resize(ctx, q.caller, q.thread, id, size)
	})
	return connect.NewResponse(&process.UpdateResponse{}), err
}

func (p *processService) SendInput(ctx context.Context, r *connect.Request[process.SendInputRequest]) (*connect.Response[process.SendInputResponse], error) {
	data := r.Msg.GetInput().GetStdin()
	if typed := r.Msg.GetInput().GetPty(); typed != nil {
		data = typed
	}
	err := p.a.touch(ctx, r.Header(), r.Msg.GetProcess(), func(q request, id string) error {
		return p.a.o.Execs.SendStdin(ctx, q.caller, q.thread, id, data, false)
	})
	return connect.NewResponse(&process.SendInputResponse{}), err
}

func (p *processService) CloseStdin(ctx context.Context, r *connect.Request[process.CloseStdinRequest]) (*connect.Response[process.CloseStdinResponse], error) {
	err := p.a.touch(ctx, r.Header(), r.Msg.GetProcess(), func(q request, id string) error {
		return p.a.o.Execs.SendStdin(ctx, q.caller, q.thread, id, nil, true)
	})
	return connect.NewResponse(&process.CloseStdinResponse{}), err
}

func (p *processService) SendSignal(ctx context.Context, r *connect.Request[process.SendSignalRequest]) (*connect.Response[process.SendSignalResponse], error) {
	err := p.a.touch(ctx, r.Header(), r.Msg.GetProcess(), func(q request, id string) error {
		switch r.Msg.GetSignal() {
		case process.Signal_SIGNAL_SIGKILL:
			return p.a.o.Execs.Kill(ctx, q.caller, q.thread, id)
		case process.Signal_SIGNAL_SIGTERM:
			return p.a.o.Execs.Signal(ctx, q.caller, q.thread, id, "TERM")
		}
		return sandbox.Errorf(sandbox.Invalid, "signal: want SIGTERM or SIGKILL")
	})
	return connect.NewResponse(&process.SendSignalResponse{}), err
}
