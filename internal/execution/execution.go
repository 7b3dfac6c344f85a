package execution

import (
	"bytes"
	"container/list"
	"context"
	"encoding/base64"
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/execution/contexts"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/limits"
	"github.com/skerry-sandbox/skerry/internal/platform/redact"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// Exec is one run of something: what it is, its events as they came, and its one end.
type Exec struct {
	ID      string
	Thread  sandbox.Thread
	Caller  sandbox.Caller
	Started time.Time
	Spec    Spec
	Before  paths.Snapshot
	Attempt audit.Record
	Context *contexts.Run // of code in a context
	Named   []string      // secrets that it got by name
	Secret  Secrets       // only the goroutine that sees it through uses the streams in it
	place   *list.Element // among the ended ones; of the registry
	held    int64         // bytes of memory that it takes as one of them
	Limits  *limits.Place // that it takes of its caller's
	Trace   Trace
	Hold    Hold
	hides   func(string) string // hides secrets in what its processes are called; nil: it has none left. Guarded by log.mu
	log     eventLog
}

// Spec is what an exec runs, and what its caller wants of it.
type Spec struct {
	Action      string
	Subject     string
	Description string // of execute_code, in the caller's words
	Background  bool
	Live        int64 // it has a terminal, of whose output the newest so many bytes are kept as events; 0: none
	Deadline    time.Duration
	Code        *sandbox.Code  // of execute_code
	Skill       *sandbox.Skill // whose script it is
	Report      bool           // list the files that it changed
}

// Begin says which exec of which thread this is, and who started it.
func (e *Exec) Begin(id string, t sandbox.Thread, c sandbox.Caller) {
	e.ID, e.Thread, e.Caller, e.Started = id, t, c, time.Now().UTC()
	e.log.begin(e.Spec.Live)
	e.log.mu.Lock()
	defer e.log.mu.Unlock()
	e.hides = e.Secret.Hide.String // also where there are no secrets
}

// Instance returns the instance that e runs in, or ran in; nil: this server no longer has it.
func (e *Exec) Instance(live *instance.Map) *instance.Instance {
	return live.FindID(sandbox.ID(e.Attempt.Sandbox))
}

// Info returns what a list of execs shows of e.
func (e *Exec) Info() sandbox.ExecInfo {
	i := sandbox.ExecInfo{
		ExecID: e.ID, Action: e.Spec.Action, Subject: e.Spec.Subject, Description: e.Spec.Description, Status: sandbox.StatusRunning, Background: e.Spec.Background,
		StartedAt: e.Started, Terminal: e.Spec.Live > 0,
	}
	if res := e.log.outcome(); res != nil {
		i.Status, i.ExitCode, i.DurationMillis = res.Status, res.ExitCode, &res.DurationMillis
	}
	return i
}

// outcome is what followers of the thread learn of the end of e. An end whose record is not durable shows no result.
func (e *Exec) outcome() (sandbox.ExecInfo, sandbox.Result) {
	res, err := e.Now()
	if err != nil {
		res = sandbox.Result{}
	}
	return e.Info(), res
}

// Now is the result as it is at this moment.
func (e *Exec) Now() (sandbox.Result, error) {
	e.log.mu.Lock()
	defer e.log.mu.Unlock()
	if e.log.err != nil {
		return sandbox.Result{}, e.log.err
	}
	if e.log.result != nil {
		return *e.log.result, nil
	}
	res := sandbox.Result{ExecID: e.ID, Status: sandbox.StatusRunning, DurationMillis: time.Since(e.Started).Milliseconds(), Files: []sandbox.FileChange{}}
	SetText(&res, e.log.stdout, e.log.stderr)
	return res, nil
}

// Wait returns the result once there is one.
func (e *Exec) Wait(ctx context.Context) (sandbox.Result, error) {
	if e.log.wait(ctx, (*eventLog).ended) != nil {
		return sandbox.Result{}, sandbox.Wrap(sandbox.Timeout, ctx.Err(), "the exec %s is still running", e.ID)
	}
	if e.log.startErr != nil {
		return sandbox.Result{}, e.log.startErr
	}
	return e.Now()
}

// WaitBegun returns once sandboxd knows e: a caller has the id of an exec before that, and may send
// to it at once.
func (e *Exec) WaitBegun(ctx context.Context) error {
	if e.log.wait(ctx, (*eventLog).begun) != nil {
		return sandbox.Wrap(sandbox.Timeout, ctx.Err(), "the exec %s has not begun", e.ID)
	}
	return nil
}

// Follow emits each event after number after, as they come, up to and with the exit.
func (e *Exec) Follow(ctx context.Context, after uint64, emit func(sandbox.Event) error) error {
	return e.log.follow(ctx, after, emit)
}

// EndBecause says why we are about to end e; its record will.
func (e *Exec) EndBecause(why string) {
	e.log.mu.Lock()
	defer e.log.mu.Unlock()
	e.log.why = why
}

// Reason is why we ended e; "" when we did not.
func (e *Exec) Reason() string {
	e.log.mu.Lock()
	defer e.log.mu.Unlock()
	return e.log.why
}

// Finish is the one end of e. Only the goroutine that runs e calls it.
func (e *Exec) Finish(res sandbox.Result, err error) {
	e.Hold.finish()
	if res.LeftProcesses == 0 {
		e.log.mu.Lock()
		e.hides = nil
		e.log.mu.Unlock()
	}
	e.Secret = Secrets{}        // up to 36 MB
	e.Before = paths.Snapshot{} // up to 10,000 paths, and the exec lives on in the registry
	e.log.finish(res, err)
}

// Take adds an event of sandboxd to ours; the exit is kept back until it has been recorded.
func (e *Exec) Take(ev *sandboxv1.Event) error {
	at := time.UnixMilli(ev.GetUnixMs()).UTC()
	switch k := ev.GetKind().(type) {
	case *sandboxv1.Event_Started:
		e.Trace.Began = time.Now()
		e.log.add(sandbox.Event{Type: sandbox.EventStarted, Time: at})
	case *sandboxv1.Event_Output:
		typ := sandbox.EventStdout
		if k.Output.GetStderr() {
			typ = sandbox.EventStderr
		}
		data := k.Output.GetData()
		if ev.GetN() > e.Secret.seen+1 { // only a terminal has gaps
			data = e.Secret.skip(data)
		}
		if data = e.Secret.next(typ, data); len(data) > 0 {
			e.log.add(sandbox.Event{Type: typ, Time: at, Data: data})
		}
	}
	e.Secret.seen = ev.GetN()
	return nil
}

// TakeRest adds what was kept back because it looked like the beginning of a secret. Without an exit
// it is unknown whether the output went on.
func (e *Exec) TakeRest(exit *sandboxv1.Exit) {
	outTotal, errTotal := exit.GetStdout().GetTotal(), exit.GetStderr().GetTotal()
	if exit == nil {
		outTotal, errTotal = math.MaxUint64, math.MaxUint64
	}
	if rest := e.Secret.end(sandbox.EventStdout, outTotal); len(rest) > 0 {
		e.log.add(sandbox.Event{Type: sandbox.EventStdout, Time: time.Now().UTC(), Data: rest})
	}
	if rest := e.Secret.end(sandbox.EventStderr, errTotal); len(rest) > 0 {
		e.log.add(sandbox.Event{Type: sandbox.EventStderr, Time: time.Now().UTC(), Data: rest})
	}
}

// FailStart makes the end of a command that could not start look as a shell would report it. It keeps the
// error for the caller that waits for it.
func (e *Exec) FailStart(exit *sandboxv1.Exit, res *sandbox.Result) {
	code := 127
	reason := e.Secret.Hide.String(exit.GetReason())
	res.Status, res.ExitCode, res.Stderr = sandbox.StatusExited, &code, reason+"\n"
	typ := sandbox.EventStderr
	if e.Spec.Live > 0 { // a terminal has one stream
		typ = sandbox.EventStdout
	}
	e.log.add(sandbox.Event{Type: typ, Time: time.Now().UTC(), Data: []byte(res.Stderr)}) // for those who follow
	kind := startFailure(exit)
	if e.Context != nil {
		kind = sandbox.Conflict
	}
	e.log.startErr = sandbox.Errorf(kind, "%s", reason)
}

// startFailure is the kind of a command that could not be started: the reason is about the request,
// or the template has no interpreter for it.
func startFailure(exit *sandboxv1.Exit) sandbox.Kind {
	if exit.GetCode() == int32(exitNoInterpreter) {
		return sandbox.NotSupported
	}
	return sandbox.Invalid
}

// exitNoInterpreter is sandboxd's code of a failed start whose language has no runtime in
// the image; 126 and 127 are the shell's "not executable" and "not found".
const exitNoInterpreter = 125

// request is the memory that takes what was asked for, about.
func (e *Exec) request() int64 {
	n := len(e.Spec.Subject) + len(e.Attempt.Subject) + len(e.Attempt.Args)
	if c := e.Spec.Code; c != nil {
		n += len(c.Text)
	}
	return int64(n)
}

// resultCost is the memory that a result takes, about.
func resultCost(res *sandbox.Result) int64 {
	const entry = 256 // a file or a tool call, besides its texts
	n := len(res.Stdout) + len(res.Stderr) + len(res.Detail)
	for _, f := range res.Files {
		n += entry + len(f.Path)
	}
	for _, c := range res.ToolsCalled {
		n += entry + len(c.Error)
	}
	if res.Results != nil {
		for _, rich := range *res.Results {
			for mime, data := range rich {
				n += entry + len(mime) + len(data)
			}
		}
	}
	return int64(n)
}

// Compose makes the result of an exec that sandboxd reports as ended.
func (e *Exec) Compose(exit *sandboxv1.Exit) sandbox.Result {
	stdout, stderr := e.log.output()
	res := sandbox.Result{
		ExecID: e.ID, DurationMillis: exit.GetDurationUs() / 1000, Files: []sandbox.FileChange{},
		LeftProcesses: min(int(exit.GetLeftProcesses()), maxLeft),
		Usage:         sandbox.Usage{CPUMillis: exit.GetCpuUs() / 1000, MaxRSSBytes: exit.GetMaxRssBytes()},
	}
	switch exit.GetStatus() {
	case sandboxv1.Exit_STATUS_EXITED:
		code := int(exit.GetCode())
		res.Status, res.ExitCode = sandbox.StatusExited, &code
	case sandboxv1.Exit_STATUS_TIMEOUT:
		res.Status = sandbox.StatusTimeout
	case sandboxv1.Exit_STATUS_OOM:
		res.Status = sandbox.StatusOOM
	default:
		res.Status = sandbox.StatusKilled
	}
	if exit.GetLeftTooMany() && res.Status == sandbox.StatusExited {
		res.Detail = leftTooMany
	}
	stdout, rawOut := e.head(stdout)
	stdout, res.StdoutPath = joinStream(stdout, rawOut, exit.GetStdout(), e.Secret.Hide)
	stderr, res.StderrPath = joinStream(stderr, e.Secret.rawErr, exit.GetStderr(), e.Secret.Hide)
	res.Truncated = res.StdoutPath != nil || res.StderrPath != nil ||
		exit.GetStdout().GetTotal() > rawOut || exit.GetStderr().GetTotal() > e.Secret.rawErr
	SetText(&res, stdout, stderr)
	return res
}

// joinStream puts the streamed head and the tail together. A line between them says how much is missing and
// where the whole is. raw is the length of the head before secrets in it were hidden.
func joinStream(head []byte, raw uint64, s *sandboxv1.Stream, hide *redact.Secrets) ([]byte, *string) {
	tail := s.GetTail()
	if s.GetTotal() <= raw || len(tail) == 0 && s.GetSpillPath() == "" {
		return head, nil
	}
	missing := s.GetTotal() - raw - uint64(min(len(tail), int(s.GetTotal())))
	head, tail = TrimEnd(head), TrimStart(hide.Tail(tail))
	var path *string
	where := ""
	if p := s.GetSpillPath(); p != "" && paths.Within(p, sandbox.UserDataDir) {
		path = &p
		where = "; the whole output is in " + p
		if s.GetSpillCut() {
			where = "; the first part of the output, up to the limit, is in " + p
		}
	}
	line := fmt.Sprintf("\n[… %d bytes left out%s …]\n", missing, where)
	return bytes.Join([][]byte{head, []byte(line), tail}, nil), path
}

// TrimEnd and trimStart drop the part of a character that a cut left at an edge.
func TrimEnd(b []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if c := b[len(b)-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(b[len(b)-i:]) {
				return b[:len(b)-i]
			}
			break
		}
	}
	return b
}

// TrimStart drops the part of a character that a cut left at the start.
func TrimStart(b []byte) []byte {
	for i := 0; i < utf8.UTFMax-1 && i < len(b); i++ {
		if utf8.RuneStart(b[i]) {
			return b[i:]
		}
	}
	return b
}

// SetText puts both streams into a result, as text or, if either is none, as base64.
func SetText(res *sandbox.Result, stdout, stderr []byte) {
	if utf8.Valid(stdout) && utf8.Valid(stderr) {
		res.Stdout, res.Stderr = string(stdout), string(stderr)
		return
	}
	res.Encoding = "base64"
	res.Stdout = base64.StdEncoding.EncodeToString(stdout)
	res.Stderr = base64.StdEncoding.EncodeToString(stderr)
}

// head is the part of stdout that a result begins with, and how many bytes of the stream that are. Of a
// terminal all was streamed, but a result is no longer than that of another exec.
func (e *Exec) head(stdout []byte) ([]byte, uint64) {
	raw := e.Secret.rawOut
	if e.Spec.Live == 0 || raw <= uint64(e.Spec.Live) {
		return stdout, raw
	}
	half := e.Spec.Live / 2
	return stdout[:min(half, int64(len(stdout)))], uint64(half)
}
