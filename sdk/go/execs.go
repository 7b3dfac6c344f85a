package skerry

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// EventType is the kind of an Event.
type EventType string

// Event is one thing that an exec did.
type Event struct {
	N        uint64 // its number, from 1
	Type     EventType
	ExecID   string
	Data     []byte    // of Stdout and Stderr
	Approval *Approval // of ApprovalRequired and ApprovalDecided, without arguments
	Result   *Result   // of Exit
}

// Exec runs a command and waits for its end. A command that fails is a result with its exit code.
func (t *Thread) Exec(ctx context.Context, cmd Command) (*Result, error) {
	return ended(t.StreamExec(ctx, cmd))
}

// StreamExec runs a command and returns its events as they come; the last one is Exit, or an error. To
// stop looping ends nothing: Kill does.
func (t *Thread) StreamExec(ctx context.Context, cmd Command) iter.Seq2[Event, error] {
	cmd.Background = false
	return t.run(ctx, "exec", cmd)
}

// Start runs a command in the background. Its result has status "running"; Follow, Wait, WriteStdin and
// Kill take its ExecID.
func (t *Thread) Start(ctx context.Context, cmd Command) (*Result, error) {
	cmd.Background = true
	ctx, cancel := context.WithTimeout(ctx, t.c.o.Wait)
	defer cancel()
	return get[Result](ctx, t.c, Request{Method: http.MethodPost, Path: t.path("exec"), Body: cmd, Once: true})
}

// ExecuteCode runs a program text and waits for its end.
func (t *Thread) ExecuteCode(ctx context.Context, code Code) (*Result, error) {
	return ended(t.StreamCode(ctx, code))
}

// StreamCode is StreamExec for a program text.
func (t *Thread) StreamCode(ctx context.Context, code Code) iter.Seq2[Event, error] {
	return t.run(ctx, "execute_code", code)
}

// RunSkill runs a script of a skill and waits for its end.
func (t *Thread) RunSkill(ctx context.Context, skill string, run Script) (*Result, error) {
	return ended(t.StreamSkill(ctx, skill, run))
}

// StreamSkill is StreamExec for a script of a skill.
func (t *Thread) StreamSkill(ctx context.Context, skill string, run Script) iter.Seq2[Event, error] {
	return t.run(ctx, "skills/"+url.PathEscape(skill)+"/run", run)
}

// Follow returns the events of an exec after a number, 0 for all, as they come.
func (t *Thread) Follow(ctx context.Context, execID string, after uint64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		f := &following{t: t, exec: execID, last: after}
		f.all(ctx, Request{}, yield)
	}
}

// Wait waits for the end of an exec.
func (t *Thread) Wait(ctx context.Context, execID string) (*Result, error) {
	return ended(t.Follow(ctx, execID, 0))
}

// ended is the result at the end of events.
func ended(events iter.Seq2[Event, error]) (*Result, error) {
	for e, err := range events {
		if err != nil {
			return nil, err
		}
		if e.Result != nil {
			return e.Result, nil
		}
	}
	return nil, &LostError{Err: errors.New("the stream had no end")}
}

// Execs lists the execs of the thread, newest first.
func (t *Thread) Execs(ctx context.Context) ([]ExecInfo, error) {
	return list[ExecInfo](ctx, t.c, t.path("execs"), nil)
}

// ExecResult is an exec as it is now: its status is "running" until it has ended.
func (t *Thread) ExecResult(ctx context.Context, execID string) (*Result, error) {
	return get[Result](ctx, t.c, Request{Method: http.MethodGet, Path: t.path("execs", execID)})
}

// WriteStdin writes to an exec whose input is open: one of Start, or with KeepStdin.
func (t *Thread) WriteStdin(ctx context.Context, execID string, data []byte) error {
	body := map[string]any{"data": base64.StdEncoding.EncodeToString(data), "encoding": "base64"}
	return t.call(ctx, Request{Method: http.MethodPost, Path: t.path("execs", execID, "stdin"), Body: body, Once: true}, nil)
}

// CloseStdin ends the input of an exec.
func (t *Thread) CloseStdin(ctx context.Context, execID string) error {
	return t.call(ctx, Request{Method: http.MethodPost, Path: t.path("execs", execID, "stdin"), Body: map[string]any{"close": true}, Once: true}, nil)
}

// Signal sends a signal such as "TERM" to every process of an exec.
func (t *Thread) Signal(ctx context.Context, execID, signal string) error {
	return t.call(ctx, Request{Method: http.MethodPost, Path: t.path("execs", execID, "signal"), Body: map[string]any{"signal": signal}, Once: true}, nil)
}

// Kill ends the whole process tree of an exec, and what an ended one left.
func (t *Thread) Kill(ctx context.Context, execID string) error {
	return t.call(ctx, Request{Method: http.MethodDelete, Path: t.path("execs", execID)}, nil)
}

// run starts something and returns its events.
func (t *Thread) run(ctx context.Context, path string, body any) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		f := &following{t: t}
		f.all(ctx, Request{Method: http.MethodPost, Path: t.path() + "/" + path, Body: body, Header: streamed(), Once: true}, yield)
	}
}

func streamed() http.Header { return http.Header{"Accept": {"text/event-stream"}} }

// following is a stream of events over as many connections as it takes.
type following struct {
	t     *Thread
	exec  string // "" until the started event
	last  uint64
	ended bool
}

// all begins with a request, or where the exec is known already with a resumption.
func (f *following) all(ctx context.Context, begin Request, yield func(Event, error) bool) {
	for heard := time.Now(); ; {
		last := f.last
		stopped, err := f.connection(ctx, begin, yield)
		if stopped || f.ended {
			return
		}
		if f.last > last {
			heard = time.Now()
		}
		if f.exec == "" || settled(err) || ctx.Err() != nil || time.Since(heard) > max(takeUpFor, f.t.c.o.Patience) {
			yield(Event{ExecID: f.exec}, f.lost(err))
			return
		}
		sleep(ctx, takeUpPause)
	}
}

// lost says which exec may still run.
func (f *following) lost(err error) error {
	if f.exec == "" || errors.As(err, new(*Error)) {
		return err
	}
	return &LostError{ExecID: f.exec, Err: err}
}

// settled reports whether the server answered that asking again is of no use.
func settled(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Status < http.StatusInternalServerError && !slices.Contains(passingStatuses, e.Status)
}

// connection follows over one connection. stopped: the caller stopped reading.
func (f *following) connection(ctx context.Context, begin Request, yield func(Event, error) bool) (stopped bool, err error) {
	wait := f.t.c.o.Wait
	if f.exec != "" {
		wait = f.t.c.o.Silence
		begin = Request{
			Method: http.MethodGet, Path: f.t.path("execs", f.exec, "events"), Header: streamed(),
			Query: url.Values{"after": {strconv.FormatUint(f.last, 10)}},
		}
	}
	res, err := f.t.c.open(ctx, begin, wait)
	if err != nil {
		return false, err
	}
	defer res.Body.Close()
	err = readMessages(res.Body, func(m message) (bool, error) {
		if m.event == eventError {
			return false, streamError(m.data)
		}
		e, err := f.event(m)
		if err != nil {
			return false, err
		}
		f.ended = e.Type == Exit
		stopped = !yield(e, nil)
		return !stopped && !f.ended, nil
	})
	if err != nil && f.exec == "" && !errors.As(err, new(*Error)) {
		err = &LostError{Err: err} // it was sent, and what became of it is unknown
	}
	return stopped, err
}

// streamError is the error that a stream ends with.
func streamError(data string) error {
	e := &Error{}
	if err := json.Unmarshal([]byte(data), e); err != nil {
		return err
	}
	if e.Status == 0 {
		e.Status = http.StatusInternalServerError
	}
	return e
}

// event reads one event of an exec.
func (f *following) event(m message) (Event, error) {
	n, err := strconv.ParseUint(cmp.Or(m.id, "0"), 10, 64)
	if err != nil {
		return Event{}, err
	}
	e := Event{N: n, Type: EventType(m.event)}
	var out struct {
		ExecID   string `json:"exec_id"`
		Data     string `json:"data"`
		Encoding string `json:"encoding"`
	}
	switch e.Type {
	case Exit:
		e.Result = &Result{}
		err = json.Unmarshal([]byte(m.data), e.Result)
	case ApprovalRequired, ApprovalDecided:
		e.Approval = &Approval{}
		err = json.Unmarshal([]byte(m.data), e.Approval)
	default:
		if err = json.Unmarshal([]byte(m.data), &out); err != nil {
			break
		}
		if e.Data = []byte(out.Data); out.Encoding == "base64" {
			e.Data, err = base64.StdEncoding.DecodeString(out.Data)
		}
	}
	if e.Type == Started && f.exec == "" {
		f.exec = out.ExecID
	}
	f.last, e.ExecID = max(f.last, n), f.exec
	return e, err
}
