package sandboxd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sandboxapi/link"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
	"github.com/skerry-sandbox/skerry/internal/sandboxd/files"
	"github.com/skerry-sandbox/skerry/internal/sandboxd/interp"
	"github.com/skerry-sandbox/skerry/internal/sandboxd/process"
)

// service is SandboxService. Its methods come from the server, which is trusted, but bounds are
// checked all the same.
type service struct {
	o      Options
	execs  *process.Manager
	files  *files.FS
	interp *interp.Runner

	standbys standbys
	contexts contexts
	leftProcesses
}

var execID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)

// eventBatch is how many events are taken from an exec at once.
const eventBatch = 64

func (s *service) Status(_ context.Context, req *connect.Request[sandboxv1.StatusRequest]) (*connect.Response[sandboxv1.StatusResponse], error) {
	res := &sandboxv1.StatusResponse{
		Protocol: link.Protocol, Version: link.Version(),
		Languages: s.interp.Available(), Roots: s.files.Roots(), RssBytes: residentBytes(), LeavesProcesses: true,
	}
	var tasks map[string]int
	if req.Msg.GetTasks() {
		var err error
		if tasks, err = s.execs.Tasks(); err != nil {
			return nil, connect.NewError(connect.CodeInternal, err)
		}
	}
	for _, e := range s.execs.List() {
		res.Execs = append(res.Execs, &sandboxv1.ExecStatus{
			ExecId: e.ID(), Running: !e.Ended(), LastEvent: e.LastEvent(), StartedUnixMs: e.Began().UnixMilli(),
			Tasks: uint32(tasks[e.ID()]), //nolint:gosec // the kernel has no more than 4 million
		})
	}
	res.Contexts = s.contexts.status()
	res.Interpreters = s.standbys.status()
	return connect.NewResponse(res), nil
}

// residentBytes reads the memory that this process holds; 0 when it cannot be told.
func residentBytes() int64 {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(data))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

func (s *service) Run(ctx context.Context, req *connect.Request[sandboxv1.RunRequest], stream *connect.ServerStream[sandboxv1.Event]) error {
	m := req.Msg
	if !execID.MatchString(m.GetExecId()) {
		return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("exec id %.140q", m.GetExecId()))
	}
	e, err := s.execs.Get(m.GetExecId())
	if err != nil {
		if e, err = s.start(m); err != nil {
			return execError(err)
		}
	}
	return follow(ctx, e, 0, stream)
}

// start prepares and starts an exec that is not known yet.
func (s *service) start(m *sandboxv1.RunRequest) (*process.Exec, error) {
	r, err := s.request(m)
	if err != nil {
		return nil, err
	}
	e, started, err := s.execs.Start(m.GetExecId(), r)
	if !started {
		if r.Standby != nil {
			s.execs.Discard(r.Standby)
		}
		if r.Cleanup != nil {
			r.Cleanup()
		}
	}
	return e, err
}

func (s *service) request(m *sandboxv1.RunRequest) (process.Request, error) {
	r := process.Request{
		Cwd: m.GetCwd(), Stdin: m.GetStdin(), KeepStdin: m.GetKeepStdin(), Leave: m.GetLeaveProcesses(),
		Timeout:   time.Duration(m.GetTimeoutMs()) * time.Millisecond,
		MaxOutput: int64(min(m.GetMaxOutputBytes(), 1<<62)), MaxSpill: int64(min(m.GetMaxSpillBytes(), 1<<62)), SpillDir: m.GetSpillDir(),
	}
	if r.Cwd == "" {
		r.Cwd = s.o.WorkspaceDir
	}
	r.Cwd = folder(r.Cwd)
	if r.Timeout == 0 {
		r.Timeout = sandbox.DefaultExecTimeout
	}
	if r.Leave && len(m.GetArgv()) == 0 && m.GetShell() == "" {
		return r, errors.New("only a command can leave processes")
	}
	if m.GetContextId() != "" {
		return sessions{s}.contextRequest(m, r)
	}
	if size := m.GetTerminal(); size != nil {
		if m.GetCode() != nil {
			return r, errors.New("code cannot be given a terminal: run its interpreter as a command")
		}
		r.Terminal = terminalSize(size)
	}
	ways := 0
	var program *interp.Program
	if len(m.GetArgv()) > 0 {
		ways++
		r.Argv = m.GetArgv()
	}
	if m.GetShell() != "" {
		ways++
		if shell := s.shell(); shell != "" {
			r.Argv = []string{shell, "-c", m.GetShell()}
		} else {
			r.Refuse = "there is no shell in this sandbox: give argv, which runs a program without one, in place of command"
		}
	}
	if m.GetCode() != nil {
		ways++
	}
	if ways != 1 {
		return r, errors.New("exactly one of argv, shell and code is needed")
	}
	if c := m.GetCode(); c != nil {
		// A standby has no stdin.
		p, sb, w, err := s.program(c, m.GetEnv(), r.Cwd, len(r.Stdin) == 0 && !r.KeepStdin && !c.GetOwnEnv())
		var unavailable *interp.UnavailableError
		switch {
		case errors.As(err, &unavailable):
			r.Refuse = unavailable.Reason
		case err != nil:
			return r, err
		default:
			program, r.Argv, r.Standby = p, p.Argv, sb
			r.Cleanup = func() {
				if w != nil {
					standbyPool{s}.afterRun(w, sb, c, m.GetEnv(), r.Cwd)
					return
				}
				p.Cleanup()
				if !c.GetCold() && !c.GetOwnEnv() {
					standbyPool{s}.prepareStandby(c, m.GetEnv(), r.Cwd)
				}
			}
		}
	}
	r.Env = mergeEnv(s.o.BaseEnv, m.GetEnv(), path.Clean(r.Cwd), program)
	if r.Terminal != nil && envValue(r.Env, "TERM") == "" {
		r.Env = append(r.Env, "TERM=xterm-256color") // what nearly every terminal understands
	}
	if r.Standby != nil {
		r.Wake = wakeText(r.Env)
	}
	return r, nil
}

// program prepares the run of a text, in an interpreter that waits when there is one.
func (s *service) program(c *sandboxv1.Code, env []string, cwd string, mayWait bool) (*interp.Program, *process.Standby, *waiting, error) {
	if mayWait {
		if w, sb := (standbyPool{s}).takeStandby(c, env, cwd); w != nil {
			if err := w.program.Write(c.GetText()); err == nil {
				return w.program, sb, w, nil
			}
			standbyPool{s}.spoilt(c.GetLanguage(), w, sb) // by code of the sandbox
		}
	}
	p, err := s.interp.Prepare(c.GetLanguage(), c.GetText(), cwd, choice(c))
	return p, nil, nil, err
}

func choice(c *sandboxv1.Code) interp.Choice {
	how := interp.Choice{JavaScript: c.GetJavascript()}
	if d := c.GetDeno(); d != nil {
		how.Deno = &interp.Permissions{Read: d.GetRead(), Write: d.GetWrite(), Net: d.GetNet(), Env: d.GetEnv(), Run: d.GetRun()}
	}
	return how
}

// shell is bash where there is one, else sh, or "" where there is neither.
func (s *service) shell() string {
	if p := process.LookPath("bash", envValue(s.o.BaseEnv, "PATH")); p != "" {
		return p
	}
	return process.LookPath("sh", "/bin")
}

// follow sends the events after number after, the exit included.
func follow(ctx context.Context, e *process.Exec, after uint64, stream *connect.ServerStream[sandboxv1.Event]) error {
	for {
		events, err := e.Next(ctx, after, eventBatch)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return execError(err)
		}
		for _, ev := range events {
			if err := stream.Send(toProto(ev)); err != nil {
				return err
			}
			after = ev.N
		}
	}
}

func toProto(ev process.Event) *sandboxv1.Event {
	p := &sandboxv1.Event{N: ev.N, UnixMs: ev.Time.UnixMilli()}
	switch {
	case ev.Started != nil:
		p.Kind = &sandboxv1.Event_Started{Started: &sandboxv1.Started{Pid: int32(ev.Started.PID)}}
	case ev.Exit != nil:
		x := ev.Exit
		p.Kind = &sandboxv1.Event_Exit{Exit: &sandboxv1.Exit{
			Status: statuses[x.Status], Code: int32(x.Code), DurationUs: x.Duration.Microseconds(), CpuUs: x.CPU.Microseconds(),
			MaxRssBytes: x.MaxRSS, Stdout: streamToProto(x.Stdout), Stderr: streamToProto(x.Stderr), Reason: x.Reason,
			ContextLost: x.Lost, ResultsLeftOut: x.LeftOut, LeftTooMany: x.LeftTooMany,
			LeftProcesses: uint32(x.Left), //nolint:gosec // the kernel has no more than 4 million
		}}
		for _, res := range x.Results {
			p.GetExit().Results = append(p.GetExit().Results, res)
		}
	default:
		p.Kind = &sandboxv1.Event_Output{Output: &sandboxv1.Output{Stderr: ev.Stderr, Data: ev.Data}}
	}
	return p
}

var statuses = map[process.Status]sandboxv1.Exit_Status{
	process.Exited: sandboxv1.Exit_STATUS_EXITED, process.TimedOut: sandboxv1.Exit_STATUS_TIMEOUT, process.OOM: sandboxv1.Exit_STATUS_OOM,
	process.Killed: sandboxv1.Exit_STATUS_KILLED, process.FailedToStart: sandboxv1.Exit_STATUS_FAILED_TO_START,
}

func streamToProto(s process.Stream) *sandboxv1.Stream {
	return &sandboxv1.Stream{Total: s.Total, Tail: s.Tail, SpillPath: s.SpillPath, SpillCut: s.SpillCut}
}

func (s *service) Attach(ctx context.Context, req *connect.Request[sandboxv1.AttachRequest], stream *connect.ServerStream[sandboxv1.Event]) error {
	e, err := s.execs.Get(req.Msg.GetExecId())
	if err != nil {
		return execError(err)
	}
	return follow(ctx, e, req.Msg.GetAfter(), stream)
}

func (s *service) WriteStdin(ctx context.Context, req *connect.Request[sandboxv1.WriteStdinRequest]) (*connect.Response[sandboxv1.WriteStdinResponse], error) {
	e, err := s.execs.Get(req.Msg.GetExecId())
	if err == nil {
		err = e.WriteStdin(ctx, req.Msg.GetData(), req.Msg.GetClose())
	}
	return answer(&sandboxv1.WriteStdinResponse{}, err)
}

func (s *service) Signal(_ context.Context, req *connect.Request[sandboxv1.SignalRequest]) (*connect.Response[sandboxv1.SignalResponse], error) {
	e, err := s.execs.Get(req.Msg.GetExecId())
	if err == nil {
		err = e.Signal(int(req.Msg.GetSignal()))
	}
	return answer(&sandboxv1.SignalResponse{}, err)
}

// terminalSize returns a size as package process has it, which refuses what is out of bounds.
func terminalSize(s *sandboxv1.TerminalSize) *process.Size {
	side := func(n uint32) uint16 { return uint16(min(n, process.MaxSide+1)) } //nolint:gosec // the bound is below
	return &process.Size{Cols: side(s.GetCols()), Rows: side(s.GetRows())}
}

func (s *service) Resize(_ context.Context, req *connect.Request[sandboxv1.ResizeRequest]) (*connect.Response[sandboxv1.ResizeResponse], error) {
	e, err := s.execs.Get(req.Msg.GetExecId())
	if err == nil {
		err = e.Resize(*terminalSize(req.Msg.GetSize()))
	}
	return answer(&sandboxv1.ResizeResponse{}, err)
}

func (s *service) Kill(ctx context.Context, req *connect.Request[sandboxv1.KillRequest]) (*connect.Response[sandboxv1.KillResponse], error) {
	left, err := s.execs.KillLeft(ctx, req.Msg.GetExecId())
	if left || err != nil {
		return answer(&sandboxv1.KillResponse{}, err)
	}
	e, err := s.execs.Get(req.Msg.GetExecId())
	if err == nil {
		err = e.Kill(ctx)
	}
	if err == nil { // it may have ended by itself, and left something meanwhile
		_, err = s.execs.KillLeft(ctx, e.ID())
	}
	return answer(&sandboxv1.KillResponse{}, err)
}

func (s *service) HoldDeadline(_ context.Context, req *connect.Request[sandboxv1.HoldDeadlineRequest]) (*connect.Response[sandboxv1.HoldDeadlineResponse], error) {
	e, err := s.execs.Get(req.Msg.GetExecId())
	if err == nil {
		err = e.Hold(time.Duration(req.Msg.GetForMs()) * time.Millisecond)
	}
	return answer(&sandboxv1.HoldDeadlineResponse{}, err)
}

func (s *service) Forget(_ context.Context, req *connect.Request[sandboxv1.ForgetRequest]) (*connect.Response[sandboxv1.ForgetResponse], error) {
	return answer(&sandboxv1.ForgetResponse{}, s.execs.Forget(req.Msg.GetExecId()))
}

func answer[T any](res *T, err error) (*connect.Response[T], error) {
	if err != nil {
		return nil, execError(err)
	}
	return connect.NewResponse(res), nil
}

func execError(err error) error {
	code := connect.CodeInvalidArgument
	var errno unix.Errno
	switch {
	case errors.Is(err, process.ErrNotFound), errors.Is(err, process.ErrNoProcess):
		code = connect.CodeNotFound
	case errors.Is(err, process.ErrTaken):
		code = connect.CodeAborted
	case errors.Is(err, process.ErrBusy), errors.Is(err, process.ErrNoStart):
		code = connect.CodeResourceExhausted
	case errors.Is(err, process.ErrClosed):
		code = connect.CodeUnavailable
	case errors.Is(err, process.ErrEnded), errors.Is(err, process.ErrRunning), errors.Is(err, process.ErrNoStdin), errors.Is(err, process.ErrNoTerminal):
		code = connect.CodeFailedPrecondition
	case errors.Is(err, process.ErrOutOfRange):
		code = connect.CodeOutOfRange
	case errors.Is(err, context.Canceled):
		code = connect.CodeCanceled
	case errors.Is(err, context.DeadlineExceeded):
		code = connect.CodeDeadlineExceeded
	case errors.As(err, &errno): // the private folder of a run: /tmp is full, say
		code = connect.CodeResourceExhausted
	}
	return connect.NewError(code, err)
}

// nodeVersion runs node as an exec of our own, under the filter as all else.
func (s *service) nodeVersion(node string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	id := "skerry.node-version" // no id of the server has a dot
	e, _, err := s.execs.Start(id, process.Request{Argv: []string{node, "--version"}, Cwd: "/", Timeout: 9 * time.Second, MaxOutput: 256})
	if err != nil {
		return "", err
	}
	defer func() { _ = s.execs.Forget(id) }()
	var out strings.Builder
	for after := uint64(0); ; {
		events, err := e.Next(ctx, after, eventBatch)
		if errors.Is(err, io.EOF) {
			return out.String(), nil
		}
		if err != nil {
			return "", err
		}
		for _, ev := range events {
			after = ev.N
			if !ev.Stderr {
				out.Write(ev.Data)
			}
		}
	}
}
