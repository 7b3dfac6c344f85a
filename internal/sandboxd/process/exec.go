package process

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/platform/deadline"
	"github.com/skerry-sandbox/skerry/internal/sandboxd/spill"
)

// Limits of a request.
const (
	maxOutput     = 16 << 20
	defaultOutput = 1 << 20
	maxEnviron    = 1 << 20
	maxArgs       = 2 << 20
	maxStdin      = 8 << 20
	maxTimeout    = 2 * time.Hour
	maxHold       = time.Minute   // of a deadline, at a time
	maxHeld       = 2 * time.Hour // of a deadline, altogether
)

const (
	// answerTime bounds what a supervisor does at once: take a message, say that what waited is there.
	answerTime = 5 * time.Second
	// startTime bounds how long a supervisor may take to start a command. In a full sandbox that is slow, and an exec
	// that is reported dead then would still run. An exec that is to end waits for answerTime at most.
	startTime = 30 * time.Second
	// treeTime is how long a supervisor may take to end its tree before it is ended itself.
	treeTime = time.Second
	// orphanTime is how long PID 1 then tries to end what fell to it.
	orphanTime = 2 * time.Second
)

// Request is a command to run.
type Request struct {
	Argv []string
	Env  []string // "NAME=value", all of it
	Cwd  string   // absolute
	// Stdin is given to the command; then its stdin is closed, unless KeepStdin.
	Stdin     []byte
	KeepStdin bool
	Timeout   time.Duration
	MaxOutput int64 // bytes of each stream; 0 = 1 MiB
	SpillDir  string
	MaxSpill  int64 // bytes of each stream; 0 = no spill file
	// Terminal attaches the command to a terminal of this size instead of pipes; stdin stays open. nil: none.
	Terminal *Size
	// Standby is a command to use instead, woken with Wake. Argv, Env and Cwd must say the same
	// command: it is started when Standby turns out to be lost.
	Standby *Standby
	Wake    []byte
	// SaysReady: of a command that is started as a Standby, that it sends a byte before it waits.
	SaysReady bool
	// Session runs the exec: it is sent Frame. Of the rest only the limits and Cleanup matter then, and
	// Kill ends the Session. Timeout interrupts first, and ends it only when that does not help.
	Session *Session
	Frame   []byte
	// Leave lets processes outlive the command: the exec ends with it, and they stay. It is for commands that nothing
	// started ahead.
	Leave bool
	// Refuse makes the exec end as FailedToStart at once, with this reason and CodeNoInterpreter.
	Refuse string
	// Cleanup runs after the exit event. It is not called when Start returned an error, or an exec
	// that was known.
	Cleanup func()
}

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func (r *Request) check() error {
	if len(r.Argv) == 0 && r.Refuse == "" && r.Session == nil {
		return errors.New("no command")
	}
	if !filepath.IsAbs(r.Cwd) || strings.ContainsRune(r.Cwd, 0) {
		return fmt.Errorf("working folder %.200q is not an absolute path", r.Cwd)
	}
	size := 0
	for _, a := range r.Argv {
		if strings.ContainsRune(a, 0) {
			return errors.New("an argument holds a zero byte")
		}
		size += len(a)
	}
	if size > maxArgs {
		return fmt.Errorf("arguments of %d bytes, the limit is %d", size, maxArgs)
	}
	size = 0
	for _, kv := range r.Env {
		name, _, ok := strings.Cut(kv, "=")
		if !ok || !envName.MatchString(name) || strings.ContainsRune(kv, 0) {
			return fmt.Errorf("environment variable %.60q: the name must match %s", name, envName)
		}
		size += len(kv)
	}
	switch {
	case size > maxEnviron:
		return fmt.Errorf("environment of %d bytes, the limit is %d", size, maxEnviron)
	case len(r.Stdin) > maxStdin:
		return fmt.Errorf("stdin of %d bytes, the limit is %d", len(r.Stdin), maxStdin)
	case r.Timeout <= 0 || r.Timeout > maxTimeout:
		return fmt.Errorf("timeout %v is not between 0 and %v", r.Timeout, maxTimeout)
	case r.MaxOutput < 0 || r.MaxOutput > maxOutput:
		return fmt.Errorf("max_output_bytes %d is above %d", r.MaxOutput, maxOutput)
	case len(r.Frame) > maxRequest:
		return fmt.Errorf("code and environment of %d bytes, the limit is %d", len(r.Frame), maxRequest)
	case r.Leave && (r.Standby != nil || r.Session != nil):
		return errors.New("only a command can leave processes")
	case r.MaxSpill < 0:
		return fmt.Errorf("max_spill_bytes %d", r.MaxSpill)
	}
	if r.MaxOutput == 0 {
		r.MaxOutput = defaultOutput
	}
	if r.Terminal == nil {
		return nil
	}
	r.KeepStdin = true
	if r.Standby != nil {
		return errors.New("a command that waits cannot be given a terminal")
	}
	return r.Terminal.check()
}

type cause int

const (
	causeNone cause = iota
	causeTimeout
	causeKill
)

// Exec is one run of a command. Its methods may be called concurrently.
type Exec struct {
	id        string
	m         *Manager
	req       Request
	began     time.Time
	log       eventLog
	endedAt   time.Time // set before the exec is noted as ended; read under Manager.mu
	keptBytes int

	deadline *deadline.Clock

	mu     sync.Mutex
	sup    *warden // while the command runs
	starts *warden // while the command is being started
	serial uint64
	cause  cause
	over   bool        // the tree is gone: too late for a cause
	stuck  *time.Timer // ends a supervisor that does not end its tree

	stdin    *stdin
	terminal *terminal // nil: none

	session *Session      // nil: none
	asked   chan struct{} // closed with the first cause, of an exec in a session
}

var serials struct {
	mu sync.Mutex
	n  uint64
}

func nextSerial() uint64 {
	serials.mu.Lock()
	defer serials.mu.Unlock()
	serials.n++
	return serials.n
}

func newExec(m *Manager, id string, req Request) *Exec {
	e := &Exec{id: id, m: m, req: req, began: time.Now(), serial: nextSerial(), log: eventLog{exited: make(chan struct{})}, stdin: newStdin()}
	if req.Session != nil {
		e.session, e.asked = req.Session, make(chan struct{})
	}
	if req.Terminal != nil {
		e.terminal, e.stdin.terminal, e.log.keep = &terminal{}, true, int(req.MaxOutput)
	}
	// Last: it may pass at once.
	e.deadline = deadline.Start(req.Timeout, maxHeld, func() { e.end(causeTimeout) })
	return e
}

// ID is the name that the exec was started under.
func (e *Exec) ID() string { return e.id }

// Began is when the exec was asked for.
func (e *Exec) Began() time.Time { return e.began }

// Ended tells whether the exit event is there.
func (e *Exec) Ended() bool {
	select {
	case <-e.log.exited:
		return true
	default:
		return false
	}
}

// LastEvent is the number of the newest event; 0 when there is none.
func (e *Exec) LastEvent() uint64 { return e.log.last() }

// Next returns events after number after, at most limit, and waits while there is none. io.EOF: the
// exit event is number after. ErrOutOfRange: there is no event after.
func (e *Exec) Next(ctx context.Context, after uint64, limit int) ([]Event, error) {
	return e.log.next(ctx, after, limit)
}

// Wait waits for the exit event.
func (e *Exec) Wait(ctx context.Context) error {
	select {
	case <-e.log.exited:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Kill ends the whole tree and waits until it is gone. Killing an ended exec is no error.
func (e *Exec) Kill(ctx context.Context) error {
	e.end(causeKill)
	return e.Wait(ctx)
}

// Hold stops the clock of the deadline for at most d from now on; 0: it goes on at once.
func (e *Exec) Hold(d time.Duration) error {
	switch {
	case d < 0 || d > maxHold:
		return fmt.Errorf("a hold of %v is not between 0 and %v", d, maxHold)
	case d == 0:
		e.deadline.Go()
	default:
		e.deadline.Hold(d)
	}
	return nil
}

// Signal sends a signal to every process of the exec. Error: ErrEnded.
func (e *Exec) Signal(sig int) error {
	if sig < 1 || sig > 64 {
		return fmt.Errorf("signal %d is not between 1 and 64", sig)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.session != nil && !e.Ended() {
		return e.session.signal(unix.Signal(sig))
	}
	if e.sup == nil || e.Ended() {
		return ErrEnded
	}
	return e.sup.send(message{Kind: msgSignal, Serial: e.serial, Signal: sig})
}

// end asks for the end of the tree, for the first cause that there is. When the supervisor does not
// manage it in time, it is ended with the tree.
func (e *Exec) end(c cause) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cause != causeNone || e.over {
		return
	}
	e.cause = c
	if e.asked != nil {
		close(e.asked)
	}
	switch {
	case e.sup != nil:
		e.askEnd()
	case e.starts != nil:
		_ = unix.Kill(e.starts.pid, unix.SIGCONT)
		_ = e.starts.conn.SetReadDeadline(time.Now().Add(answerTime))
	}
}

func (e *Exec) causeOfEnd() cause {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.cause
}

// askEnd is called with mu held, and a supervisor.
func (e *Exec) askEnd() {
	sup := e.sup
	_ = unix.Kill(sup.pid, unix.SIGCONT)
	_ = sup.send(message{Kind: msgKill, Serial: e.serial}) // when that fails, the timer does it
	e.stuck = time.AfterFunc(treeTime, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.sup == sup { // else it serves another exec by now
			_ = sup.conn.SetReadDeadline(time.Unix(1, 0))
		}
	})
}

// run does everything from the first to the last event.
func (e *Exec) run() {
	defer e.deadline.Stop()
	oomBefore := e.m.oom.Kills()
	x := &Exit{Status: FailedToStart, Code: CodeNoInterpreter, Reason: e.req.Refuse}
	switch {
	case e.req.Refuse != "":
	case e.session != nil:
		x = e.session.serve(e)
	default:
		x = e.supervised()
	}
	cleanup := e.req.Cleanup
	x.Duration = time.Since(e.began)
	e.mu.Lock()
	e.sup, e.over = nil, true
	if e.stuck != nil {
		e.stuck.Stop()
	}
	switch died := x.Status == Exited && x.Code == 128+int(unix.SIGKILL); {
	case e.cause == causeTimeout && x.Status != FailedToStart:
		x.Status, x.Code, x.Reason = TimedOut, 0, ""
	case e.cause == causeKill && x.Status != FailedToStart:
		x.Status, x.Code, x.Reason = Killed, 0, ""
	case died && e.m.oom.Kills() > oomBefore:
		x.Status, x.Code, x.Reason = OOM, 0, "out of memory"
	}
	e.keptBytes = e.log.bytes + len(x.Stdout.Tail) + len(x.Stderr.Tail)
	for _, res := range x.Results {
		e.keptBytes += len(res)
	}
	e.endedAt = time.Now()
	e.req = Request{} // its stdin may be large
	e.log.end(x)
	e.mu.Unlock()
	if cleanup != nil {
		cleanup()
	}
}

// supervised hands the command to a supervisor and stays until its tree is gone and its output read.
func (e *Exec) supervised() *Exit {
	if s := e.req.Standby; s != nil {
		if pid, ok := e.m.awaken(s, e.req.Wake); ok {
			e.mu.Lock()
			e.serial = s.serial
			e.mu.Unlock()
			x := &Exit{}
			e.attend(s.sup, s.pipes, pid, x)
			return x
		}
	}
	pipes, err := openPipes(e.req)
	if err != nil {
		e.m.log.Error("no streams", "error", err)
		reason := "sandboxd has no descriptors left"
		if e.req.Terminal != nil {
			reason = "no terminal can be had here"
		}
		return &Exit{Status: FailedToStart, Code: codeCannotExecute, Reason: reason}
	}
	sup, err := e.handOver(pipes)
	if e.req.Terminal == nil || err != nil {
		pipes.closeTheirs()
	}
	if err != nil {
		pipes.closeOurs()
		e.m.log.Error("no supervisor", "error", err)
		return &Exit{Status: FailedToStart, Code: codeCannotExecute, Reason: startReason(err)}
	}
	x := &Exit{}
	first, err := e.awaitStart(sup)
	pid := 0
	switch {
	case err == nil && first.Kind == msgStarted:
		pid = first.PID
	case err == nil && first.Kind == msgFailed:
		x.Status, x.Code, x.Reason = FailedToStart, first.Code, first.Reason
		pipes.closeTheirs()
		pipes.closeOurs()
		e.m.wardens.put(sup)
		return x
	default:
		e.giveUp(sup, err, x)
	}
	e.attend(sup, pipes, pid, x)
	return x
}

// awaitStart waits until the supervisor says that it started the command, or could not.
func (e *Exec) awaitStart(sup *warden) (message, error) {
	e.mu.Lock()
	within := startTime
	if e.cause != causeNone {
		within = answerTime
	}
	e.starts = sup
	err := sup.conn.SetReadDeadline(time.Now().Add(within))
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		e.starts = nil
		e.mu.Unlock()
	}()
	if err != nil {
		return message{}, err
	}
	return readMessage(sup.conn, maxReport)
}

// attend stays with a command until its tree is gone and its output read. pid is 0 when it did not
// start.
func (e *Exec) attend(sup *warden, pipes *pipes, pid int, x *Exit) {
	if pid != 0 {
		e.adopt(sup) // first: who knows that it started may signal it
		e.log.started(pid)
	}
	gone := make(chan struct{})
	collect := e.collect(pipes, gone)
	e.terminal.open(pipes.stdin)
	e.stdin.start(pipes.stdin, e.req)
	if pid != 0 {
		e.await(sup, x)
	}
	e.terminal.close()
	e.stdin.close()
	pipes.closeTheirs() // of a terminal, that nothing else has open any more
	close(gone)
	collect(x)
}

func startReason(err error) string {
	switch {
	case errors.Is(err, unix.EAGAIN):
		return "the limit of processes is reached"
	case errors.Is(err, unix.ENOMEM):
		return "out of memory"
	case errors.Is(err, ErrClosed):
		return ErrClosed.Error()
	}
	return "sandboxd could not start a supervisor"
}

// handOver sends the command to a supervisor. An idle one may have been killed unseen: then nothing
// was started, and the next one is tried.
func (e *Exec) handOver(p *pipes) (*warden, error) {
	var last error
	for range idleSupervisors + 1 {
		sup, err := e.m.wardens.get()
		if err != nil {
			return nil, err
		}
		m := message{Kind: msgRun, Serial: e.serial, Argv: e.req.Argv, Env: e.req.Env, Cwd: e.req.Cwd, Terminal: e.req.Terminal != nil, Leave: e.req.Leave}
		if last = sup.send(m, p.theirs[0], p.theirs[1], p.theirs[2]); last == nil {
			return sup, nil
		}
		e.m.wardens.kill(sup, orphanTime)
	}
	return nil, last
}

// adopt makes the supervisor reachable for Kill and Signal, and passes on a Kill that came before.
func (e *Exec) adopt(sup *warden) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sup = sup
	_ = sup.conn.SetReadDeadline(time.Time{}) // from here on only askEnd sets one
	if e.cause != causeNone {
		e.askEnd()
	}
}

// await waits for the report of the supervisor: the tree is gone then, or left.
func (e *Exec) await(sup *warden, x *Exit) {
	m, err := readMessage(sup.conn, maxReport)
	if err != nil || m.Kind != msgExit {
		e.giveUp(sup, err, x)
		return
	}
	x.CPU, x.MaxRSS = time.Duration(m.CPU)*time.Microsecond, m.MaxRSS
	x.Status, x.Code = Exited, m.Code
	if m.Signal != 0 {
		x.Code, x.Reason = 128+m.Signal, signalReason(m.Signal)
	}
	if m.Left > 0 {
		if e.m.left.take(e, sup, m.Left, x) {
			return
		}
		if m, err = readMessage(sup.conn, maxReport); err != nil || m.Kind != msgGone {
			e.giveUp(sup, err, x)
			return
		}
	}
	e.mu.Lock()
	e.sup, e.over = nil, true
	if e.stuck != nil {
		e.stuck.Stop()
	}
	e.mu.Unlock()
	e.m.wardens.put(sup)
}

// supervisorLost is the reason of an end without a report. sandboxd cannot tell which limit it was. The
// kernel picks a supervisor for want of memory, or a supervisor lacks a pid for a thread, or gets no CPU
// time.
const supervisorLost = "its supervisor died or did not answer: the sandbox has too little memory, CPU or pids for what runs in it, or a process killed it"

// giveUp ends a supervisor that died or does not answer, with all that it had started. why is nil when
// it answered something else.
func (e *Exec) giveUp(sup *warden, why error, x *Exit) {
	e.m.log.Warn("supervisor lost", "exec", e.id, "pid", sup.pid, "error", why)
	x.Status, x.Reason = Killed, supervisorLost
	if !e.m.wardens.kill(sup, orphanTime) {
		e.m.log.Error("processes are left over", "exec", e.id)
	}
}

// capture makes the capture of one stream.
func (e *Exec) capture(stderr bool, name string) *capture {
	var s *spill.File
	if e.req.MaxSpill > 0 && e.req.SpillDir != "" {
		s = spill.New(e.m.opts.SpillRoot, e.req.SpillDir, name, uint64(e.req.MaxSpill))
	}
	return newCapture(&e.log, stderr, e.req.MaxOutput, s)
}

// collect starts to read the output. The function that it returns waits for the end of it, which
// comes soon after gone is closed, and notes the sums.
func (e *Exec) collect(p *pipes, gone <-chan struct{}) func(*Exit) {
	var streams [2]Stream
	var wg sync.WaitGroup
	for i, name := range []string{"stdout", "stderr"} {
		if p.out[i] == nil { // a terminal has one stream
			continue
		}
		c := e.capture(i == 1, name)
		c.live = e.req.Terminal != nil
		wg.Go(func() {
			c.read(p.out[i], gone)
			streams[i] = c.finish()
		})
	}
	return func(x *Exit) {
		late := drainTime
		if x.Left > 0 { // they may have it open for hours; what the command itself wrote is there
			late = 0
		}
		for _, f := range p.out {
			if f != nil {
				_ = f.SetReadDeadline(time.Now().Add(late))
			}
		}
		wg.Wait()
		for _, f := range p.out {
			switch {
			case f == nil:
			case x.Left > 0 && p.out[1] != nil:
				e.m.left.discard(e.id, f)
			default: // a terminal hangs up
				_ = f.Close()
			}
		}
		x.Stdout, x.Stderr = streams[0], streams[1]
	}
}
