package process

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/sandboxd/procfs"
)

const (
	warmSupervisors = 2 // started ahead
	idleSupervisors = 4 // kept when their execs have ended
)

// warden is a supervisor as the Manager sees it.
type warden struct {
	pid  int
	conn *net.UnixConn
	dead chan struct{} // closed when the process is reaped

	zygote *Zygote // that it keeps; nil: none. Set once, before any of its forks
}

// wardens starts supervisors and keeps idle ones. Only it waits for child processes.
type wardens struct {
	argv   []string
	orphan bool // this process gets orphans, and kills them

	// forkMu is held for reading while a supervisor is started and noted. It is held for writing while
	// children are reaped or checked, so that no child is reaped or killed before it is known.
	forkMu sync.RWMutex
	mu     sync.Mutex
	live   map[int]*warden
	idle   []*warden
	closed bool
	wg     sync.WaitGroup
}

// get returns a supervisor that no exec uses, and sees to it that the next one waits.
func (w *wardens) get() (*warden, error) {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return nil, ErrClosed
	}
	var sup *warden
	for sup == nil && len(w.idle) > 0 {
		last := len(w.idle) - 1
		sup, w.idle = w.idle[last], w.idle[:last]
		if sup.gone() {
			_ = sup.conn.Close()
			sup = nil
		}
	}
	if len(w.idle) == 0 {
		w.wg.Go(func() { w.warm(1) })
	}
	w.mu.Unlock()
	if sup != nil {
		// A neighbour can have stopped it, though not ended it unseen.
		_ = unix.Kill(sup.pid, unix.SIGCONT)
		return sup, nil
	}
	return w.start()
}

// warm starts supervisors until n are idle. A failed start is tried again with the next
// exec, which reports why.
func (w *wardens) warm(n int) {
	for {
		w.mu.Lock()
		enough := w.closed || len(w.idle) >= n
		w.mu.Unlock()
		if enough {
			return
		}
		sup, err := w.start()
		if err != nil {
			return
		}
		w.put(sup)
	}
}

// put takes back a supervisor whose tree is gone.
func (w *wardens) put(sup *warden) {
	if sup.zygote != nil {
		sup.zygote.release()
		return
	}
	w.mu.Lock()
	keep := !w.closed && len(w.idle) < idleSupervisors && !sup.gone()
	if keep {
		w.idle = append(w.idle, sup)
	}
	w.mu.Unlock()
	if !keep {
		_ = sup.conn.Close() // it ends by itself
	}
}

func (w *wardens) start() (*warden, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socketpair: %w", err)
	}
	defer unix.Close(pair[1])
	_ = unix.SetNonblock(pair[0], true)
	ours := os.NewFile(uintptr(pair[0]), "supervisor")
	defer ours.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, fmt.Errorf("supervisor: %w", err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	defer null.Close()
	w.forkMu.RLock()
	defer w.forkMu.RUnlock()
	pid, err := syscall.ForkExec(w.argv[0], w.argv, &syscall.ProcAttr{
		// One core and no signals between its threads: it only waits.
		Env:   []string{"GOMAXPROCS=1", "GODEBUG=asyncpreemptoff=1"},
		Files: []uintptr{null.Fd(), 2, 2, uintptr(pair[1])},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("supervisor: %w", err), conn.Close())
	}
	sup := &warden{pid: pid, conn: conn.(*net.UnixConn), dead: make(chan struct{})}
	w.mu.Lock()
	w.live[pid] = sup
	w.mu.Unlock()
	return sup, nil
}

// reap takes every child that has ended.
func (w *wardens) reap() {
	w.forkMu.Lock()
	defer w.forkMu.Unlock()
	if !w.orphan {
		w.mu.Lock()
		pids := make([]int, 0, len(w.live))
		for pid := range w.live {
			pids = append(pids, pid)
		}
		w.mu.Unlock()
		for _, pid := range pids {
			w.reapOne(pid)
		}
		return
	}
	for w.reapOne(-1) {
	}
}

func (w *wardens) reapOne(pid int) bool {
	var ws syscall.WaitStatus
	got, err := syscall.Wait4(pid, &ws, syscall.WNOHANG, nil)
	if errors.Is(err, syscall.EINTR) {
		return true
	}
	if err != nil || got <= 0 {
		return false
	}
	w.mu.Lock()
	sup := w.live[got]
	delete(w.live, got)
	w.mu.Unlock()
	if sup != nil {
		close(sup.dead)
	}
	return true
}

// orphans lists the processes that fell to this one because their supervisor died, with all their
// procfs.Descendants.
func (w *wardens) orphans() []int {
	if !w.orphan {
		return nil
	}
	w.forkMu.Lock() // else a supervisor that is being started looks like one of them
	defer w.forkMu.Unlock()
	procs, err := procfs.Scan()
	if err != nil {
		return nil
	}
	self := os.Getpid()
	w.mu.Lock()
	var roots []int
	for _, p := range procs {
		if p.Parent == self && w.live[p.PID] == nil && !p.Zombie {
			roots = append(roots, p.PID)
		}
	}
	w.mu.Unlock()
	return append(roots, procfs.Descendants(procs, roots...)...)
}

// kill ends a supervisor that does not do its work, with its whole tree, and waits up to bound.
func (w *wardens) kill(sup *warden, bound time.Duration) (gone bool) {
	tree := func() []int {
		procs, err := procfs.Scan()
		if err != nil {
			return nil
		}
		return procfs.Descendants(procs, sup.pid)
	}
	deadline := time.Now().Add(bound)
	if !sup.gone() {
		killAll(tree)
		_ = unix.Kill(sup.pid, unix.SIGKILL)
	}
	_ = sup.conn.Close()
	if sup.zygote != nil {
		sup.zygote.forget()
	}
	if !sup.deadBy(deadline) {
		return false
	}
	for pause := time.Millisecond; killAll(w.orphans) > 0; pause = min(2*pause, 20*time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(pause)
		w.reap()
	}
	return true
}

// close ends the idle supervisors and waits until all supervisors are gone. The execs have ended.
func (w *wardens) close(bound time.Duration) {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.wg.Wait() // for supervisors that are being started
	w.mu.Lock()
	idle := w.idle
	w.idle = nil
	live := slices.Collect(maps.Values(w.live))
	w.mu.Unlock()
	for _, s := range idle {
		_ = s.conn.Close()
	}
	deadline := time.Now().Add(bound)
	for _, s := range live {
		if !s.deadBy(deadline) {
			_ = unix.Kill(s.pid, unix.SIGKILL)
			s.deadBy(time.Now().Add(bound))
		}
	}
}

func (s *warden) deadBy(t time.Time) bool {
	select {
	case <-s.dead:
		return true
	case <-time.After(time.Until(t)):
		return false
	}
}

func (s *warden) gone() bool {
	select {
	case <-s.dead:
		return true
	default:
		return false
	}
}

// send writes one message, with descriptors on its first bytes.
func (s *warden) send(m message, files ...int) error {
	frame, err := encodeMessage(m, maxRequest)
	if err != nil {
		return err
	}
	if err := s.conn.SetWriteDeadline(time.Now().Add(answerTime)); err != nil {
		return err
	}
	n := 0
	if len(files) > 0 {
		if n, _, err = s.conn.WriteMsgUnix(frame, unix.UnixRights(files...), nil); err != nil {
			return err
		}
	}
	_, err = s.conn.Write(frame[n:])
	return err
}

func (s *warden) receive(within time.Duration) (message, error) {
	var t time.Time
	if within > 0 {
		t = time.Now().Add(within)
	}
	if err := s.conn.SetReadDeadline(t); err != nil {
		return message{}, err
	}
	return readMessage(s.conn, maxReport)
}
