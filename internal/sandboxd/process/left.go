package process

import (
	"context"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/sandboxd/procfs"
)

// Limits of what execs leave.
const (
	// MaxLeft is how many execs may have left processes at a time. Each of them keeps its supervisor.
	MaxLeft = 32
	// MaxListed is how many processes a list has.
	MaxListed = 512
	// maxCommand bounds the command line of a process in a list, in bytes.
	maxCommand = 1 << 10
)

// left has the processes that outlive their execs. Each tree stays with the supervisor of its exec.
type left struct {
	wardens *wardens

	mu    sync.Mutex
	trees map[string]*leftTree // by exec
}

type leftTree struct {
	sup    *warden
	serial uint64
	taps   []*tap        // of pipes that the processes have open
	gone   chan struct{} // closed when no process is there
}

// take ends the exec and leaves its processes with their supervisor. false: they are about to end with the exec, because it
// is to end, or because there are too many.
func (l *left) take(e *Exec, sup *warden, count int, x *Exit) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.cause != causeNone: // askEnd was called
		return false
	case !l.add(e.id, sup, e.serial):
		x.LeftTooMany = true
		e.askEnd()
		return false
	}
	e.sup, e.over, x.Left = nil, true, count
	return true
}

// add takes over what an exec leaves. false: too many others have left processes.
func (l *left) add(exec string, sup *warden, serial uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.trees) >= MaxLeft || l.trees[exec] != nil {
		return false
	}
	t := &leftTree{sup: sup, serial: serial, gone: make(chan struct{})}
	l.trees[exec] = t
	l.wardens.wg.Go(func() { l.watch(exec, t) })
	return true
}

// watch waits until the supervisor says that the tree is gone, or is gone itself. Such a supervisor serves no other exec: a
// late kill is not to reach that one.
func (l *left) watch(exec string, t *leftTree) {
	if m, err := readMessage(t.sup.conn, maxReport); err != nil || m.Kind != msgGone {
		l.wardens.kill(t.sup, orphanTime)
	}
	_ = t.sup.conn.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.trees, exec)
	for _, tap := range t.taps {
		tap.expire()
	}
	close(t.gone)
}

// discard reads an output stream of an ended exec, so that what it left does not fail or wait when it writes.
func (l *left) discard(exec string, pipe *os.File) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.trees[exec]
	if t == nil {
		_ = pipe.Close()
		return
	}
	_ = pipe.SetReadDeadline(time.Time{})
	tap := newTap(pipe)
	t.taps = append(t.taps, tap)
	go tap.run(t.gone) // ends with the stream, or after expire
}

// kill asks the supervisor for the end of the tree, and ends both when it does not answer.
func (t *leftTree) kill() {
	_ = unix.Kill(t.sup.pid, unix.SIGCONT)
	_ = t.sup.send(message{Kind: msgKill, Serial: t.serial})
	time.AfterFunc(treeTime, func() { _ = t.sup.conn.SetReadDeadline(time.Unix(1, 0)) })
}

func (l *left) close() {
	l.mu.Lock()
	trees := make([]*leftTree, 0, len(l.trees))
	for _, t := range l.trees {
		trees = append(trees, t)
	}
	l.mu.Unlock()
	for _, t := range trees {
		t.kill()
	}
	for _, t := range trees {
		<-t.gone // bounded: see kill and watch
	}
}

// of returns the trees by the pid of their supervisor, with their execs.
func (l *left) of() map[int]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	trees := make(map[int]string, len(l.trees))
	for exec, t := range l.trees {
		trees[t.sup.pid] = exec
	}
	return trees
}

// Listed is a process of an exec.
type Listed struct {
	procfs.Process
	procfs.About
	Exec    string
	Running bool // the exec runs; false: the process outlived it
}

// Processes lists the processes that execs left, with all those of running execs as well; at most MaxListed of them.
func (m *Manager) Processes(all bool) ([]Listed, error) {
	procs, err := procfs.Scan()
	if err != nil {
		return nil, err
	}
	var list []Listed
	add := func(exec string, running bool, root, kept int) {
		for _, p := range procfs.Below(procs, root) {
			if !p.Zombie && p.PID != kept {
				list = append(list, Listed{Process: p, Exec: exec, Running: running})
			}
		}
	}
	for root, exec := range m.left.of() {
		add(exec, false, root, 0)
	}
	if all {
		for _, e := range m.List() {
			if root, kept := e.supervisor(); root != 0 {
				add(e.id, true, root, kept)
			}
		}
	}
	slices.SortFunc(list, func(a, b Listed) int { return a.PID - b.PID })
	list = list[:min(len(list), MaxListed)]
	for i := range list {
		list[i].About = procfs.AboutOf(list[i].PID, maxCommand)
	}
	return list, nil
}

// KillLeft ends all that an exec left and returns when it is gone. left is false when there was nothing.
func (m *Manager) KillLeft(ctx context.Context, exec string) (left bool, err error) {
	m.left.mu.Lock()
	t := m.left.trees[exec]
	m.left.mu.Unlock()
	if t == nil {
		return false, nil
	}
	t.kill()
	select {
	case <-t.gone:
		return true, nil
	case <-ctx.Done():
		return true, ctx.Err()
	}
}

// KillProcess ends one process that an exec left, with all that it started and that is still below it. Error: ErrNoProcess.
func (m *Manager) KillProcess(ctx context.Context, pid int) error {
	for found := false; ; found = true {
		tree, err := m.leftTree(pid)
		switch {
		case err != nil:
			return err
		case len(tree) == 0 && found:
			return nil
		case len(tree) == 0:
			return ErrNoProcess
		}
		killAll(func() []int {
			tree, err := m.leftTree(pid)
			if err != nil {
				return nil
			}
			return tree
		})
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// leftTree is a process that an exec left, and those below it; empty when there is none.
func (m *Manager) leftTree(pid int) ([]int, error) {
	procs, err := procfs.Scan()
	if err != nil {
		return nil, err
	}
	for sup := range m.left.of() {
		if slices.Contains(procfs.Descendants(procs, sup), pid) {
			return append(procfs.Descendants(procs, pid), pid), nil
		}
	}
	return nil, nil
}
