package process

import (
	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/sandboxd/procfs"
)

// Tasks counts the processes and threads below each exec that runs, by its id. It is what the kernel's limit of them
// counts, less what serves the exec.
func (m *Manager) Tasks() (map[string]int, error) {
	procs, err := procfs.Scan()
	if err != nil {
		return nil, err
	}
	tasks := make(map[string]int)
	for _, e := range m.List() {
		root, kept := e.supervisor()
		if root == 0 {
			continue
		}
		for _, p := range procfs.Below(procs, root) {
			if p.PID != kept {
				tasks[e.id] += max(1, p.Threads)
			}
		}
	}
	return tasks, nil
}

// supervisor is the process above all of a running exec's, and below it the zygote that is none of them; 0: there is none.
func (e *Exec) supervisor() (pid, kept int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.Ended():
		return 0, 0
	case e.session != nil:
		return e.session.sup.pid, 0
	case e.sup != nil && e.sup.zygote != nil:
		return e.sup.pid, e.sup.zygote.pid
	case e.sup != nil:
		return e.sup.pid, 0
	}
	return 0, 0
}

// freezeRounds bounds how often killAll looks for processes that were forked while it froze the
// others. What still slips through is caught by the caller, who calls again until none is left.
const freezeRounds = 16

// killAll ends the processes that list names: all are stopped first, so that none forks while the
// others are killed. It does not wait for them. It returns how many there were.
func killAll(list func() []int) int {
	frozen := map[int]bool{}
	for range freezeRounds {
		fresh := 0
		for _, pid := range list() {
			if !frozen[pid] {
				frozen[pid] = true
				fresh++
				_ = unix.Kill(pid, unix.SIGSTOP)
			}
		}
		if fresh == 0 {
			break
		}
	}
	for pid := range frozen {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	return len(frozen)
}

// Memory is what the processes of a Standby hold, less what they share with files, in bytes.
func (s *Standby) Memory() (bytes int64) {
	procs, err := procfs.Scan()
	if err != nil {
		return 0
	}
	for _, pid := range procfs.Descendants(procs, s.sup.pid) {
		bytes += procfs.Anonymous(pid)
	}
	return bytes
}

// Memory is what the zygote holds itself, less what it shares with files, in bytes.
func (z *Zygote) Memory() int64 { return procfs.Anonymous(z.pid) }
