package procfs

import (
	"bytes"
	"strconv"

	"golang.org/x/sys/unix"
)

// Process is what a scan of /proc keeps of a process.
type Process struct {
	PID, Parent int
	Zombie      bool
	Threads     int // 0 when the line was cut before it tells
}

// Scan reads every process of this pid namespace. Processes that end meanwhile are left out.
func Scan() ([]Process, error) {
	dir, err := unix.Open("/proc", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	var found []Process
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

func readStat(pid int, buf []byte) (Process, bool) {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return Process{}, false
	}
	n, err := unix.Read(fd, buf)
	_ = unix.Close(fd)
	if err != nil {
		return Process{}, false
	}
	return parseStat(pid, buf[:n])
}

// Numbers of fields in the line.
const (
	stateField   = 3
	threadsField = 20
)

// parseStat reads "pid (comm) state ppid …"; comm may hold anything, so the last ')' counts.
func parseStat(pid int, line []byte) (Process, bool) {
	i := bytes.LastIndexByte(line, ')')
	if i < 0 || len(line) < i+4 {
		return Process{}, false
	}
	state := line[i+2]
	ppid, _, _ := bytes.Cut(line[i+4:], []byte{' '})
	parent, err := strconv.Atoi(string(ppid))
	if err != nil {
		return Process{}, false
	}
	p := Process{PID: pid, Parent: parent, Zombie: state == 'Z' || state == 'X'}
	rest := line[i+2:]
	for range threadsField - stateField {
		_, rest, _ = bytes.Cut(rest, []byte{' '})
	}
	threads, _, _ := bytes.Cut(rest, []byte{' '})
	p.Threads, _ = strconv.Atoi(string(threads))
	return p, true
}

// Descendants of the processes in roots, which are not in the answer themselves.
func Descendants(procs []Process, roots ...int) []int {
	children := make(map[int][]int, len(procs))
	for _, p := range procs {
		children[p.Parent] = append(children[p.Parent], p.PID)
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

// Below is the processes below another one.
func Below(procs []Process, root int) []Process {
	by := make(map[int]Process, len(procs))
	for _, p := range procs {
		by[p.PID] = p
	}
	pids := Descendants(procs, root)
	below := make([]Process, len(pids))
	for i, pid := range pids {
		below[i] = by[pid]
	}
	return below
}

// OnlyChild tells whether this process has no child but pid. Only the caller may wait for children meanwhile: then none
// leaves the kernel's lists while they are read, and a process that is added because its parent ended finds that parent there.
// ok is false where there are no such lists.
func OnlyChild(pid int) (only, ok bool) {
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
