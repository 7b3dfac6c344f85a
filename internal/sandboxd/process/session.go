package process

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/sandboxd/procfs"
)

const (
	// interruptTime is how long an exec in a Session may go on after the SIGINT at its deadline.
	// Longer than a busy machine lets an interpreter under gVisor wait: what it costs are the variables.
	interruptTime = 3 * time.Second
	// interruptAgain is the pause between the first SIGINT and those after it: a child may have taken one.
	interruptAgain = 300 * time.Millisecond
	// brokenTime is how long a Session that closed its socket may take to end by itself.
	brokenTime = 250 * time.Millisecond

	maxResults     = 64
	maxResultBytes = 8 << 20
	maxAnswer      = maxResultBytes + 1<<20 // one frame of a Session
)

var (
	ErrTaken   = errors.New("another exec runs in the context") // of an exec
	ErrNoStart = errors.New("the interpreter did not start")    // of OpenSession
)

// RefusedError is a Session's reason why it cannot serve.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return e.Reason }

// Session is a command that lives on while execs come and go: an interpreter that keeps its variables. It serves one
// exec at a time (Request.Session).
//
// It speaks on StandbyFD, a stream socket, in frames: a length of four bytes, little endian, and a JSON object. The
// first frame is its own: {"ready": true}, or {"refused": "why"} before it ends. Then each {"run": id, …} that it gets
// is answered by {"run": id, "code": 0 to 255, "results": […], "left_out": n}, which is the end of that exec; what it
// printed before is flushed by then. On SIGINT it ends the run, if there is one.
//
// All that the command starts belongs to the Session, and is gone when that is. Output between execs is dropped.
type Session struct {
	m      *Manager
	sup    *warden
	serial uint64
	pid    int
	feed   *net.UnixConn
	taps   [2]*tap
	heard  chan struct{} // closed when the last frame is read
	gone   chan struct{} // closed when the tree is gone, then
	exit   Exit          // of the command; set before gone is closed

	mu       sync.Mutex
	run      *sessionRun   // nil: idle
	stuck    *time.Timer   // ends a supervisor that does not end its tree
	underway int           // signals that the supervisor was asked for and has not sent yet
	settled  chan struct{} // closed when underway is 0 again; nil while it is
}

// sessionRun is the exec that a Session serves now.
type sessionRun struct {
	id     string
	answer chan answer // holds one
	over   bool        // it has ended: nothing may interrupt it
}

// answer is a frame of the command.
type answer struct {
	Run     string            `json:"run"`
	Ready   bool              `json:"ready"`
	Refused string            `json:"refused"`
	Code    int               `json:"code"`
	Results []json.RawMessage `json:"results"`
	LeftOut uint32            `json:"left_out"`
}

// OpenSession starts a command and waits until it is ready, or ctx ends. Of req only Argv, Env, Cwd and Cleanup matter;
// Cleanup runs when the Session is gone, or could not be opened. Errors: ErrClosed, *RefusedError, ErrNoStart, that of
// ctx, or a request that breaks a rule.
func (m *Manager) OpenSession(ctx context.Context, req Request) (*Session, error) {
	cleanup := req.Cleanup
	if cleanup == nil {
		cleanup = func() {}
	}
	sb, err := m.Standby(req)
	if err != nil {
		cleanup()
		return nil, err
	}
	if !m.take(sb) {
		cleanup()
		return nil, ErrClosed
	}
	first, err := sb.sup.receive(answerTime)
	if err == nil && first.Kind != msgStarted {
		err = fmt.Errorf("%w: %s", ErrNoStart, first.Reason)
	}
	if err != nil {
		m.end(sb)
		cleanup()
		return nil, err
	}
	s := &Session{m: m, sup: sb.sup, serial: sb.serial, pid: first.PID, feed: sb.feed, heard: make(chan struct{}), gone: make(chan struct{})}
	ready := &sessionRun{answer: make(chan answer, 1)}
	s.run = ready
	for i, pipe := range sb.pipes.out {
		s.taps[i] = newTap(pipe)
	}
	if !m.addSession(s, cleanup) {
		m.end(sb)
		cleanup()
		return nil, ErrClosed
	}
	return s, s.waitReady(ctx, ready)
}

func (s *Session) waitReady(ctx context.Context, ready *sessionRun) error {
	var a answer
	select {
	case a = <-ready.answer:
	case <-s.gone:
		if len(ready.answer) > 0 {
			a = <-ready.answer
		}
	case <-ctx.Done():
	}
	if a.Ready && a.Refused == "" {
		s.leave(ready)
		return nil
	}
	s.kill()
	<-s.gone // bounded: see kill
	if a.Refused != "" {
		return &RefusedError{a.Refused}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return fmt.Errorf("%w: it ended at once with code %d", ErrNoStart, s.exit.Code)
}

// addSession notes a Session and starts what serves it.
func (m *Manager) addSession(s *Session, cleanup func()) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	_ = s.sup.conn.SetReadDeadline(time.Time{})
	m.sessions[s] = true
	for _, t := range s.taps {
		m.wg.Go(func() { t.run(s.gone) })
	}
	m.wg.Go(s.listen)
	m.wg.Go(func() {
		s.await()
		cleanup()
		m.mu.Lock()
		delete(m.sessions, s)
		m.mu.Unlock()
		close(s.gone)
	})
	return true
}

// await stays until the tree is gone.
func (s *Session) await() {
	m, err := readMessage(s.sup.conn, maxReport)
	for err == nil && m.Kind == msgSignalled {
		s.signalled()
		m, err = readMessage(s.sup.conn, maxReport)
	}
	if err == nil && m.Kind == msgExit {
		s.exit = Exit{Status: Exited, Code: m.Code, CPU: time.Duration(m.CPU) * time.Microsecond, MaxRSS: m.MaxRSS}
		if m.Signal != 0 {
			s.exit.Code, s.exit.Reason = 128+m.Signal, signalReason(m.Signal)
		}
	} else {
		s.m.log.Warn("supervisor of a context lost", "pid", s.sup.pid, "error", err)
		s.exit = Exit{Status: Killed, Reason: supervisorLost}
	}
	s.mu.Lock()
	if s.stuck != nil {
		s.stuck.Stop()
	}
	sup := s.sup
	s.sup = nil
	s.mu.Unlock()
	if s.exit.Status == Exited {
		s.m.wardens.put(sup)
	} else if !s.m.wardens.kill(sup, orphanTime) {
		s.m.log.Error("processes of a context are left over")
	}
	for _, t := range s.taps {
		t.expire()
	}
	_ = s.feed.SetReadDeadline(time.Now().Add(drainTime)) // for the last frame
	<-s.heard
	_ = s.feed.Close()
}

// listen takes the frames of the command. A command that breaks the rules is ended: its exec could not be.
func (s *Session) listen() {
	for {
		a, err := readAnswer(s.feed)
		if err != nil {
			close(s.heard)
			select {
			case <-s.gone:
			case <-time.After(brokenTime):
				s.kill()
			}
			return
		}
		s.mu.Lock()
		if r := s.run; r != nil && r.id == a.Run {
			select {
			case r.answer <- a:
			default: // its first word counts
			}
		}
		s.mu.Unlock()
	}
}

func readAnswer(r io.Reader) (a answer, err error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return a, err
	}
	n := binary.LittleEndian.Uint32(length[:])
	if n > maxAnswer {
		return a, fmt.Errorf("a frame of %d bytes", n)
	}
	body, err := io.ReadAll(io.LimitReader(r, int64(n))) // grows with what comes: the length alone costs nothing
	if err != nil || len(body) < int(n) {
		return a, io.ErrUnexpectedEOF
	}
	err = json.Unmarshal(body, &a)
	a.bound()
	return a, err
}

// bound cuts an answer to what an Exit may hold.
func (a *answer) bound() {
	a.Code = min(max(a.Code, 0), 255)
	total := 0
	for i, res := range a.Results {
		if total += len(res); i == maxResults || total > maxResultBytes {
			a.LeftOut += uint32(len(a.Results) - i) //nolint:gosec // maxAnswer bounds it
			a.Results = a.Results[:i]
			return
		}
	}
}

// enter makes r the run of now. ErrTaken: there is another; ErrNotFound: the Session is gone.
func (s *Session) enter(r *sessionRun) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sup == nil {
		return ErrNotFound
	}
	if s.run != nil {
		return ErrTaken
	}
	s.run = r
	return nil
}

func (s *Session) leave(r *sessionRun) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == r {
		s.run = nil
	}
}

// Gone is closed when the command has ended, with all that it started.
func (s *Session) Gone() <-chan struct{} { return s.gone }

// Busy tells whether an exec runs in s.
func (s *Session) Busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.run != nil
}

// Interrupt sends SIGINT to the process group of the command, if it is at work.
func (s *Session) Interrupt() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sup != nil && (s.run == nil || s.run.over) {
		return nil
	}
	return s.send(unix.SIGINT, true)
}

// signal sends a signal to every process of the Session, for the run that it serves now.
func (s *Session) signal(sig unix.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == nil || s.run.over {
		return ErrEnded
	}
	return s.send(sig, false)
}

// send is a signal's way to the supervisor. The caller holds s.mu.
func (s *Session) send(sig unix.Signal, group bool) error {
	if s.sup == nil {
		return ErrEnded
	}
	if err := s.sup.send(message{Kind: msgSignal, Serial: s.serial, Signal: int(sig), Group: group, Tell: true}); err != nil {
		return err
	}
	if s.underway++; s.settled == nil {
		s.settled = make(chan struct{})
	}
	return nil
}

// signalled notes that the supervisor has sent a signal.
func (s *Session) signalled() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.underway == 0 {
		return // nobody asked for it
	}
	if s.underway--; s.underway == 0 {
		close(s.settled)
		s.settled = nil
	}
}

// settle waits until no signal for r is underway, which would hit the next run. False: the command had to be ended.
func (s *Session) settle(r *sessionRun) bool {
	s.mu.Lock()
	r.over = true
	settled := s.settled
	s.mu.Unlock()
	if settled == nil {
		return true
	}
	select {
	case <-settled:
		return true
	case <-s.gone:
		return false
	case <-time.After(interruptTime):
		s.kill()
		<-s.gone // bounded: see kill
		return false
	}
}

// Close ends the command with all that it started, and waits until that is gone or ctx ends.
func (s *Session) Close(ctx context.Context) error {
	s.kill()
	select {
	case <-s.gone:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// kill asks for the end of the tree. When the supervisor does not manage it in time, await ends both.
func (s *Session) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sup == nil || s.stuck != nil {
		return
	}
	sup := s.sup
	_ = unix.Kill(sup.pid, unix.SIGCONT)
	_ = sup.send(message{Kind: msgKill, Serial: s.serial}) // when that fails, the timer does it
	s.stuck = time.AfterFunc(treeTime, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.sup == sup { // else it serves another exec by now
			_ = sup.conn.SetReadDeadline(time.Unix(1, 0))
		}
	})
}

// serve runs e in s, from its first event to the end of its output.
func (s *Session) serve(e *Exec) *Exit {
	r := &sessionRun{id: e.id, answer: make(chan answer, 1)}
	if err := s.enter(r); err != nil {
		return &Exit{Status: FailedToStart, Code: CodeNoInterpreter, Reason: err.Error()}
	}
	defer s.leave(r)
	for i, name := range []string{"stdout", "stderr"} {
		s.taps[i].begin(e.capture(i == 1, name))
	}
	before := procfs.UsageOf(s.pid)
	e.log.started(s.pid)
	frame := e.req.Frame
	s.m.wg.Go(func() { // a command that does not read must not keep us from the deadline
		if s.writeFrame(frame) != nil {
			s.kill()
		}
	})
	x := s.attend(e, r)
	if !s.settle(r) {
		x.Lost = true
	}
	if !x.Lost {
		x.CPU, x.MaxRSS = procfs.UsageOf(s.pid).Since(before)
	}
	x.Stdout, x.Stderr = s.taps[0].finish(), s.taps[1].finish()
	return x
}

func (s *Session) writeFrame(frame []byte) error {
	if err := s.feed.SetWriteDeadline(time.Now().Add(answerTime)); err != nil {
		return err
	}
	_, err := s.feed.Write(append(binary.LittleEndian.AppendUint32(make([]byte, 0, 4+len(frame)), uint32(len(frame))), frame...)) //nolint:gosec // Request bounds it
	return err
}

// ending reports whether the command was asked to end.
func (s *Session) ending() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stuck != nil
}

// attend waits for the answer to r, ending it as e is asked to end.
func (s *Session) attend(e *Exec, r *sessionRun) *Exit {
	asked, answers := e.asked, r.answer
	var late, again <-chan time.Time
	for {
		select {
		case a := <-answers:
			if s.ending() { // the answer came too late: the command ends all the same, and its variables with it
				answers = nil
				continue
			}
			return &Exit{Status: Exited, Code: a.Code, Results: a.Results, LeftOut: a.LeftOut}
		case <-s.gone:
			if len(answers) > 0 && !s.ending() {
				continue // it ended with an answer, or after it
			}
			x := s.exit
			x.Lost = true
			return &x
		case <-asked:
			asked = nil
			if e.causeOfEnd() != causeTimeout {
				s.kill()
				continue
			}
			_ = s.Interrupt() // when that fails, it is gone
			timer, ticker := time.NewTimer(interruptTime), time.NewTicker(interruptAgain)
			defer timer.Stop()  //nolint:gocritic // once: asked is nil from here on
			defer ticker.Stop() //nolint:gocritic // as above
			late, again = timer.C, ticker.C
		case <-again:
			_ = s.Interrupt()
		case <-late:
			late, again = nil, nil
			s.kill()
		}
	}
}
