package process

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// StandbyFD is the descriptor on which a Standby waits.
const StandbyFD = 3

// Standby is a command that was started before it is needed: an interpreter, say, that has done all
// that it does before it reads a program. It waits on StandbyFD, a stream socket, for the text that
// wakes it, up to the end of it; it answers one byte, of which only answerStale means anything, and closes the socket. Until that
// answer nothing of an exec has happened, so a standby that died or hangs costs an exec its head start only.
type Standby struct {
	sup    *warden
	serial uint64
	pipes  *pipes
	feed   *net.UnixConn
	silent bool // it has not yet said that it waits, and will
	stale  bool
}

// answerStale is a standby's answer when what it started from has changed.
const answerStale = 's'

// Stale tells it of a standby that has served its exec. It was right for that, but another one of the same start, such as
// the next fork of its zygote, would not be for another.
func (s *Standby) Stale() bool { return s.stale }

// Standby starts a command for a later Request.Standby. It gets no stdin; of req only Argv, Env, Cwd
// and SaysReady matter. The caller hands it to one Request, or to Discard; Close discards the rest.
func (m *Manager) Standby(req Request) (*Standby, error) {
	req.Timeout = maxTimeout
	if err := req.check(); err != nil {
		return nil, err
	}
	p, err := openPipes(Request{})
	if err != nil {
		return nil, err
	}
	defer p.closeTheirs()
	feed, theirs, err := openFeed()
	if err != nil {
		p.closeOurs()
		return nil, err
	}
	defer unix.Close(theirs)
	s := &Standby{serial: nextSerial(), pipes: p, feed: feed, silent: req.SaysReady}
	if s.sup, err = m.wardens.get(); err == nil {
		msg := message{Kind: msgRun, Serial: s.serial, Argv: req.Argv, Env: req.Env, Cwd: req.Cwd}
		err = s.sup.send(msg, p.theirs[0], p.theirs[1], p.theirs[2], theirs)
	}
	if err == nil && !m.keep(s) {
		err = ErrClosed
	}
	if err != nil {
		m.end(s)
		return nil, fmt.Errorf("standby: %w", err)
	}
	return s, nil
}

// Ready tells whether s has nothing to do before it waits; also when it is gone, which its use will show. It
// is not called twice at once, nor with or after the use of s.
func (s *Standby) Ready() bool {
	if !s.silent {
		return true
	}
	raw, err := s.feed.SyscallConn()
	if err != nil {
		return true
	}
	err = raw.Read(func(fd uintptr) bool {
		n, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_DONTWAIT)
		s.silent = n <= 0 && (errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR))
		return true
	})
	return err != nil || !s.silent
}

// openFeed makes the socket of a Standby.
func openFeed() (ours *net.UnixConn, theirs int, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, -1, fmt.Errorf("socketpair: %w", err)
	}
	_ = unix.SetNonblock(pair[0], true)
	f := os.NewFile(uintptr(pair[0]), "standby")
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		_ = unix.Close(pair[1])
		return nil, -1, err
	}
	return conn.(*net.UnixConn), pair[1], nil
}

// keep notes a Standby, for Close.
func (m *Manager) keep(s *Standby) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.standbys[s] = true
	return true
}

// take makes the caller the only one who uses s.
func (m *Manager) take(s *Standby) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	mine := m.standbys[s]
	delete(m.standbys, s)
	return mine
}

// Discard ends a Standby that is not needed.
func (m *Manager) Discard(s *Standby) {
	if m.take(s) {
		m.end(s)
	}
}

func (m *Manager) end(s *Standby) {
	if s.sup != nil {
		m.wardens.kill(s.sup, orphanTime)
	}
	_ = s.feed.Close()
	s.pipes.closeOurs()
}

// awaken makes s the command of an exec. When that fails, s is gone, and nothing of it has run.
func (m *Manager) awaken(s *Standby, text []byte) (pid int, ok bool) {
	if !m.take(s) {
		return 0, false
	}
	first, err := s.sup.receive(answerTime)
	switch {
	case err != nil:
	case first.Kind != msgStarted:
		err = fmt.Errorf("it did not start: %s", first.Reason)
	case s.sup.gone(): // the command outlives it, and nothing would end it
		err = errors.New("its supervisor is gone")
	default:
		_ = unix.Kill(first.PID, unix.SIGCONT) // a neighbour can have stopped it
		err = s.wake(text)
	}
	if err != nil {
		m.log.Info("standby lost", "error", err)
		m.end(s)
		return 0, false
	}
	_ = s.feed.Close()
	return first.PID, true
}

func (s *Standby) wake(text []byte) error {
	if err := s.feed.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return err
	}
	if _, err := s.feed.Write(text); err != nil {
		return err
	}
	if err := s.feed.CloseWrite(); err != nil {
		return err
	}
	answer := make([]byte, 1, 2)
	if s.silent {
		answer = answer[:2]
	}
	_, err := io.ReadFull(s.feed, answer)
	s.stale = answer[len(answer)-1] == answerStale
	return err
}
