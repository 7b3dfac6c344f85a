package orchestrator

import (
	"bytes"
	"container/list"
	"context"
	"encoding/base64"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/execution/contexts"
	"github.com/skerry-sandbox/skerry/internal/limits"
	"github.com/skerry-sandbox/skerry/internal/platform/redact"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// execution is one run of something: its events as they came, and its one end.
type execution struct {
	id         string
	thread     sandbox.Thread
	caller     sandbox.Caller
	action     string
	subject    string
	background bool
	live       int64 // it has a terminal, of whose output the newest so many bytes are kept as events; 0: none
	started    time.Time
	deadline   time.Duration
	code       *sandbox.Code  // of execute_code
	skill      *sandbox.Skill // whose script it is
	report     bool           // list the files that it changed
	before     paths.Snapshot
	attempt    audit.Record
	context    *contexts.Run // of code in a context
	named      []string      // secrets that it got by name
	secret     secrets       // only the goroutine that sees it through uses the streams in it
	seen       uint64        // number that sandboxd gave its newest event; of the same goroutine
	place      *list.Element // among the ended ones; of the registry
	limits     *limits.Place // that it takes of its caller's
	trace      execTrace

	mu     sync.Mutex
	events []sandbox.Event
	bytes  int64 // of output in events
	stdout []byte
	stderr []byte
	result *sandbox.Result // nil while it runs
	err    error           // the result cannot be vouched for: its record is not durable
	// startErr is why it could not be started; wait gives it instead of the result.
	startErr error
	why      string // it was ended by us, for this reason
	held     held
	changed  chan struct{} // closed and replaced at each event
}

func (e *execution) info() sandbox.ExecInfo {
	e.mu.Lock()
	defer e.mu.Unlock()
	i := sandbox.ExecInfo{
		ExecID: e.id, Action: e.action, Subject: e.subject, Status: sandbox.StatusRunning, Background: e.background, StartedAt: e.started,
	}
	if e.result != nil {
		i.Status, i.ExitCode = e.result.Status, e.result.ExitCode
	}
	return i
}

// now is the result as it is at this moment.
func (e *execution) now() (sandbox.Result, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return sandbox.Result{}, e.err
	}
	if e.result != nil {
		return *e.result, nil
	}
	res := sandbox.Result{ExecID: e.id, Status: sandbox.StatusRunning, DurationMillis: time.Since(e.started).Milliseconds(), Files: []sandbox.FileChange{}}
	setText(&res, e.stdout, e.stderr)
	return res, nil
}

// wait returns the result once there is one.
func (e *execution) wait(ctx context.Context) (sandbox.Result, error) {
	for {
		e.mu.Lock()
		done, changed := e.result != nil || e.err != nil, e.changed
		e.mu.Unlock()
		if done && e.startErr != nil {
			return sandbox.Result{}, e.startErr
		}
		if done {
			return e.now()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return sandbox.Result{}, sandbox.Wrap(sandbox.Timeout, ctx.Err(), "the exec %s is still running", e.id)
		}
	}
}

// waitBegun returns once sandboxd knows e: a caller has the id of an exec before that, and may send
// to it at once.
func (e *execution) waitBegun(ctx context.Context) error {
	for {
		e.mu.Lock()
		begun, changed := len(e.events) > 0 || e.err != nil, e.changed
		e.mu.Unlock()
		if begun {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return sandbox.Wrap(sandbox.Timeout, ctx.Err(), "the exec %s has not begun", e.id)
		}
	}
}

// follow emits each event after number after, as they come, up to and with the exit.
func (e *execution) follow(ctx context.Context, after uint64, emit func(sandbox.Event) error) error {
	for {
		e.mu.Lock()
		var fresh []sandbox.Event
		for i := len(e.events); i > 0 && e.events[i-1].N > after; i-- {
			fresh = e.events[i-1:]
		}
		done, changed, err := e.result != nil || e.err != nil, e.changed, e.err
		e.mu.Unlock()
		for _, ev := range fresh {
			if err := emit(ev); err != nil {
				return err
			}
			after = ev.N
		}
		if err != nil {
			return err
		}
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// add appends an event. The numbers come from sandboxd, which is hostile ground: they are ours here.
func (e *execution) add(ev sandbox.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.addLocked(ev)
}

func (e *execution) addLocked(ev sandbox.Event) {
	ev.N = 1
	if n := len(e.events); n > 0 {
		ev.N = e.events[n-1].N + 1
	}
	e.events = append(e.events, ev)
	e.bytes += int64(len(ev.Data))
	switch ev.Type {
	case sandbox.EventStdout:
		if e.live == 0 || int64(len(e.stdout)) <= e.live {
			e.stdout = append(e.stdout, ev.Data...)
		}
	case sandbox.EventStderr:
		e.stderr = append(e.stderr, ev.Data...)
	}
	e.trim()
	close(e.changed)
	e.changed = make(chan struct{})
}

// endBecause says why we are about to end e; its record will.
func (e *execution) endBecause(why string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.why = why
}

// reason is why we ended e; "" when we did not.
func (e *execution) reason() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.why
}

// finish is the one end of e. Only the goroutine that runs e calls it.
func (e *execution) finish(res sandbox.Result, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stdout, e.stderr = nil, nil
	if err != nil {
		e.err = err
		close(e.changed)
		e.changed = make(chan struct{})
		return
	}
	e.result = &res
	e.addLocked(sandbox.Event{Type: sandbox.EventExit, Time: time.Now().UTC(), Result: &res})
}

// compose makes the result of an exec that sandboxd reports as ended.
func (e *execution) compose(exit *sandboxv1.Exit) sandbox.Result {
	e.mu.Lock()
	stdout, stderr := e.stdout, e.stderr
	e.mu.Unlock()
	res := sandbox.Result{
		ExecID: e.id, DurationMillis: exit.GetDurationUs() / 1000, Files: []sandbox.FileChange{},
		Usage: sandbox.Usage{CPUMillis: exit.GetCpuUs() / 1000, MaxRSSBytes: exit.GetMaxRssBytes()},
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
	stdout, rawOut := e.head(stdout)
	stdout, res.StdoutPath = joinStream(stdout, rawOut, exit.GetStdout(), e.secret.hide)
	stderr, res.StderrPath = joinStream(stderr, e.secret.rawErr, exit.GetStderr(), e.secret.hide)
	res.Truncated = res.StdoutPath != nil || res.StderrPath != nil ||
		exit.GetStdout().GetTotal() > rawOut || exit.GetStderr().GetTotal() > e.secret.rawErr
	setText(&res, stdout, stderr)
	return res
}

// joinStream puts the head that was streamed and the tail together, with a line between them that
// says how much is missing and where the whole is. raw is the length of the head before secrets in it
// were hidden.
func joinStream(head []byte, raw uint64, s *sandboxv1.Stream, hide *redact.Secrets) ([]byte, *string) {
	tail := s.GetTail()
	if s.GetTotal() <= raw || len(tail) == 0 && s.GetSpillPath() == "" {
		return head, nil
	}
	missing := s.GetTotal() - raw - uint64(min(len(tail), int(s.GetTotal())))
	head, tail = trimEnd(head), trimStart(hide.Tail(tail))
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

// trimEnd and trimStart drop the part of a character that a cut left at an edge.
func trimEnd(b []byte) []byte {
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

func trimStart(b []byte) []byte {
	for i := 0; i < utf8.UTFMax-1 && i < len(b); i++ {
		if utf8.RuneStart(b[i]) {
			return b[i:]
		}
	}
	return b
}

func setText(res *sandbox.Result, stdout, stderr []byte) {
	if utf8.Valid(stdout) && utf8.Valid(stderr) {
		res.Stdout, res.Stderr = string(stdout), string(stderr)
		return
	}
	res.Encoding = "base64"
	res.Stdout = base64.StdEncoding.EncodeToString(stdout)
	res.Stderr = base64.StdEncoding.EncodeToString(stderr)
}
