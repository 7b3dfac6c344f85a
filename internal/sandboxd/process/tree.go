package process

import (
	"bytes"
	"strconv"

	"golang.org/x/sys/unix"
)

// procStat is what a scan of /proc keeps of a process.
type procStat struct {
	pid, parent int
	zombie      bool
	threads     int // 0 when the line was cut before it tells
}

// scanProc reads every process of this pid namespace. Processes that end meanwhile are left out.
func scanProc() ([]procStat, error) {
	dir, err := unix.Open("/proc", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	var found []procStat
	var names []string
	buf := make([]byte, 32<<10)
	stat := make([]byte, 512)
	for {
		n, err := unix.Getdents(dir, buf)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return found, nil
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names[:0])
		for _, name := range names {
			pid, err := strconv.Atoi(name)
			if err != nil {
				continue
			}
			if p, ok := readStat(pid, stat); ok {
				found = append(found, p)
			}
		}
	}
}

func readStat(pid int, buf []byte) (procStat, bool) {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return procStat{}, false
	}
	n, err := unix.Read(fd, buf)
	_ = unix.Close(fd)
	if err != nil {
		return procStat{}, false
	}
	return parseStat(pid, buf[:n])
}

// Numbers of fields in the line.
const (
	stateField   = 3
	threadsField = 20
)

// parseStat reads "pid (comm) state ppid …"; comm may hold anything, so the last ')' counts.
func parseStat(pid int, line []byte) (procStat, bool) {
	i := bytes.LastIndexByte(line, ')')
	if i < 0 || len(line) < i+4 {
		return procStat{}, false
	}
	state := line[i+2]
	ppid, _, _ := bytes.Cut(line[i+4:], []byte{' '})
	parent, err := strconv.Atoi(string(ppid))
	if err != nil {
		return procStat{}, false
	}
	p := procStat{pid: pid, parent: parent, zombie: state == 'Z' || state == 'X'}
	rest := line[i+2:]
	for range threadsField - stateField {
		_, rest, _ = bytes.Cut(rest, []byte{' '})
	}
	threads, _, _ := bytes.Cut(rest, []byte{' '})
	p.threads, _ = strconv.Atoi(string(threads))
	return p, true
}

// descendants of the processes in roots, which are not in the answer themselves.
func descendants(procs []procStat, roots ...int) []int {
	children := make(map[int][]int, len(procs))
	for _, p := range procs {
		children[p.parent] = append(children[p.parent], p.pid)
	}
	var found []int
	seen := make(map[int]bool, len(roots))
	next := append([]int(nil), roots...)
	for _, r := range roots {
		seen[r] = true
	}
	for len(next) > 0 {
		pid := next[len(next)-1]
		next = next[:len(next)-1]
		for _, c := range children[pid] {
			if !seen[c] {
				seen[c] = true
				found = append(found, c)
				next = append(next, c)
			}
		}
	}
	return found
}

// onlyChild tells whether this process has no child but pid. Only the caller may wait for children meanwhile: then none
// leaves the kernel's lists while they are read, and a process that is added because its parent ended finds that parent there.
// ok is false where there are no such lists.
func onlyChild(pid int) (only, ok bool) {
	dir, err := unix.Open("/proc/self/task", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, false
	}
	defer unix.Close(dir)
	var names []string
	buf := make([]byte, 4<<10)
	for {
		n, err := unix.Getdents(dir, buf)
		if err != nil {
			return false, false
		}
		if n == 0 {
			return true, ok
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names[:0])
		for _, tid := range names {
			if only, ok = noChildBut(pid, dir, tid); !only || !ok {
				return only, ok
			}
		}
	}
}

// noChildBut looks at the children of one thread. More than fit into one read are more than one. gVisor lists the
// threads of a child beside it.
func noChildBut(pid, dir int, tid string) (only, ok bool) {
	fd, err := unix.Openat(dir, tid+"/children", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, false
	}
	defer unix.Close(fd)
	var list [256]byte
	n, err := unix.Read(fd, list[:])
	if err != nil {
		return false, false
	}
	for child := range bytes.FieldsSeq(list[:n]) {
		if string(child) != strconv.Itoa(pid) && !isThread(pid, string(child)) {
			return false, true
		}
	}
	return true, true
}

func isThread(pid int, tid string) bool {
	return unix.Access("/proc/"+strconv.Itoa(pid)+"/task/"+tid, unix.F_OK) == nil
}

// Tasks counts the processes and threads below each exec that runs, by its id. It is what the kernel's limit of them
// counts, less what serves the exec.
func (m *Manager) Tasks() (map[string]int, error) {
	procs, err := scanProc()
	if err != nil {
		return nil, err
	}
	threads := make(map[int]int, len(procs))
	for _, p := range procs {
		threads[p.pid] = max(1, p.threads)
	}
	tasks := make(map[string]int)
	for _, e := range m.List() {
		root, kept := e.supervisor()
		if root == 0 {
			continue
		}
		for _, pid := range descendants(procs, root) {
			if pid != kept {
				tasks[e.id] += threads[pid]
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
