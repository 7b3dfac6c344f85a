package process

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/sandboxd/procfs"
)

// Zygote is a command that makes the commands of execs by forking itself: an interpreter, say, that has
// imported what programs import, and runs none. Its supervisor keeps it, and serves the forks one after the
// other: what is left of one is gone before the next is made.
//
// It begins as a Standby that says 'z' when it is ready. On StandbyFD it then gets one byte for each fork.
// Descriptors 0 to 3 of the fork ride on that byte, 3 being the socket of a Standby. It answers one byte
// when there is a child of its supervisor, not of its own. The child has written its pid and a newline to
// its socket, and waits there like any Standby.
type Zygote struct {
	m     *Manager
	sup   *warden
	pid   int
	feed  *net.UnixConn
	inUse bool // a fork of it waits or runs; of Manager.mu
	ended bool // it is to be ended, by now or when that fork has; of Manager.mu
}

// zygoteReady is what a Standby that forks says when it is ready.
const zygoteReady = 'z'

// errZygoteInUse is no error of a Zygote: two forks of it at once could not be told apart when they end.
var errZygoteInUse = errors.New("a fork of the zygote has not ended")

// CanFork tells whether supervisors can keep a Zygote here. Such a supervisor must notice that nothing but
// the zygote is left. The end of a process that it did not start must wake it.
func CanFork() bool {
	pidfd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return false
	}
	_ = unix.Close(pidfd)
	_, ok := procfs.OnlyChild(0)
	return ok
}

// Zygote waits until s is ready, or gone, or its time is over. nil: it does not fork, and is a Standby like others.
func (m *Manager) Zygote(s *Standby, within time.Duration) (*Zygote, error) {
	if !s.silent {
		return nil, nil
	}
	said := make([]byte, 1)
	_ = s.feed.SetReadDeadline(time.Now().Add(within))
	if _, err := io.ReadFull(s.feed, said); err != nil {
		return nil, fmt.Errorf("standby: %w", err)
	}
	_ = s.feed.SetReadDeadline(time.Time{})
	s.silent = false
	if said[0] != zygoteReady {
		return nil, nil
	}
	if !m.take(s) {
		return nil, ErrClosed
	}
	first, err := s.sup.receive(answerTime)
	if err == nil && first.Kind != msgStarted {
		err = fmt.Errorf("it did not start: %s", first.Reason)
	}
	z := &Zygote{m: m, sup: s.sup, pid: first.PID, feed: s.feed}
	if err == nil && !m.keepZygote(z) {
		err = ErrClosed
	}
	if err != nil {
		m.end(s)
		return nil, err
	}
	s.pipes.closeOurs() // it has put /dev/null in their place
	return z, nil
}

func (m *Manager) keepZygote(z *Zygote) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	z.sup.zygote = z
	m.zygotes[z] = true
	return true
}

// Fork returns a Standby that serves one exec. There is one at a time: the next is made when that exec has ended.
// When it fails, the zygote is gone; nothing waits for longer than some seconds.
func (z *Zygote) Fork() (*Standby, error) {
	z.m.mu.Lock()
	err := error(nil)
	switch {
	case z.m.closed, z.ended:
		err = ErrClosed
	case z.inUse:
		err = errZygoteInUse
	}
	if err == nil {
		z.inUse = true
	}
	z.m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	s, err := z.fork()
	if err == nil && !z.m.keep(s) {
		err = ErrClosed
	}
	if err != nil {
		z.release()
		z.End()
		if s != nil {
			_ = s.feed.Close()
			s.pipes.closeOurs()
		}
		return nil, fmt.Errorf("zygote: %w", err)
	}
	return s, nil
}

func (z *Zygote) fork() (*Standby, error) {
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
	s := &Standby{serial: nextSerial(), sup: z.sup, pipes: p, feed: feed}
	for _, pid := range []int{z.sup.pid, z.pid} {
		_ = unix.Kill(pid, unix.SIGCONT) // a neighbour can have stopped it
	}
	deadline := time.Now().Add(answerTime)
	_ = z.feed.SetDeadline(deadline)
	_ = feed.SetReadDeadline(deadline)
	if _, _, err := z.feed.WriteMsgUnix([]byte{'f'}, unix.UnixRights(p.theirs[0], p.theirs[1], p.theirs[2], theirs), nil); err != nil {
		return s, err
	}
	if _, err := io.ReadFull(z.feed, make([]byte, 1)); err != nil {
		return s, err
	}
	pid, err := readPID(feed)
	if err != nil {
		return s, err
	}
	pidfd, err := unix.PidfdOpen(pid, 0) // the supervisor's filter forbids it that
	if err != nil {
		return s, err
	}
	defer unix.Close(pidfd)
	return s, z.sup.send(message{Kind: msgAdopt, Serial: s.serial, PID: pid, Kept: z.pid}, pidfd)
}

// readPID reads a line byte by byte: what follows it is not for us yet.
func readPID(r io.Reader) (int, error) {
	var line strings.Builder
	b := make([]byte, 1)
	for line.Len() < 12 {
		if _, err := io.ReadFull(r, b); err != nil {
			return 0, err
		}
		if b[0] == '\n' {
			pid, err := strconv.Atoi(line.String())
			if err == nil && pid < 2 {
				err = fmt.Errorf("process %d", pid)
			}
			return pid, err
		}
		line.WriteByte(b[0])
	}
	return 0, errors.New("no line")
}

// release tells that the fork of now has ended, with its tree. A zygote that was to be ended is then.
func (z *Zygote) release() {
	z.m.mu.Lock()
	z.inUse = false
	ended := z.ended
	z.m.mu.Unlock()
	if ended {
		z.kill()
	}
}

// End ends the zygote, at once or when its fork has ended; that runs on. It may be called more than once.
func (z *Zygote) End() {
	z.m.mu.Lock()
	already := z.ended
	z.ended = true
	later := z.inUse
	z.m.mu.Unlock()
	if !already && !later {
		z.kill()
	}
}

func (z *Zygote) kill() { z.m.wardens.kill(z.sup, orphanTime) }

// forget is called when its supervisor is ended, and may be more than once.
func (z *Zygote) forget() {
	z.m.mu.Lock()
	defer z.m.mu.Unlock()
	z.ended, z.inUse = true, false
	delete(z.m.zygotes, z)
	_ = z.feed.Close()
}

// Alive tells whether the zygote could fork, as far as can be seen from here.
func (z *Zygote) Alive() bool {
	z.m.mu.Lock()
	defer z.m.mu.Unlock()
	return !z.ended && !z.sup.gone() && unix.Kill(z.pid, 0) == nil
}

// PID is the zygote's process.
func (z *Zygote) PID() int { return z.pid }
