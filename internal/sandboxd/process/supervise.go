package process

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/sandboxd/filter"

	"github.com/skerry-sandbox/skerry/internal/sandboxd/procfs"
)

// A supervisor is one goroutine that only ever blocks in system calls. So it needs few threads, which
// count against the sandbox's limit of pids; hence no channels, no os.File, no signal.Notify and no
// runtime.LockOSThread in this file.

const (
	// supervisorNice and commandNice keep sandboxd ahead of its supervisors, and these ahead of what they supervise,
	// within the sandbox's share of the CPU: outside of it they count nothing. A fork bomb of 500 processes leaves
	// a supervisor, whose commands were as nice as itself, one part in 500 to end it with; so it gets 20.
	supervisorNice = 5
	commandNice    = 19
	// idlePoll bounds how long an orphan of a running exec stays a zombie when its SIGCHLD did not
	// interrupt poll.
	idlePoll = 500 * time.Millisecond
	// leaveAfter is how long processes that outlive their command may take to end, before they count as left. So the last
	// part of a pipeline that nothing waits for is no left process.
	leaveAfter = 50 * time.Millisecond
)

// SuperviseCommand is the argument that makes a binary a supervisor.
const SuperviseCommand = "supervise"

// TraceArgument, behind SuperviseCommand, lets commands trace each other: see sandbox.LoosenPtrace.
const TraceArgument = "trace"

// SuperviseIfAsked turns this process into a supervisor, and never returns, when it was started as
// one: with SuperviseCommand as its first argument. Call it before anything else: in main, and in
// TestMain of a package whose tests run a Manager with the test binary as supervisor.
func SuperviseIfAsked() {
	mayTrace := len(os.Args) == 3 && os.Args[2] == TraceArgument
	if (len(os.Args) == 2 || mayTrace) && os.Args[1] == SuperviseCommand {
		syscall.Exit(Supervise(mayTrace)) // nothing is left to flush, and the race detector's exit takes a second
	}
}

// Supervise is the main function of a supervisor: descriptor 3 is its control socket. It serves one
// run after the other until the socket closes, and returns the exit code of the process.
func Supervise(mayTrace bool) int {
	s := &supervisor{self: os.Getpid(), mayTrace: mayTrace, oom: -1}
	if err := s.harden(); err != nil {
		fmt.Fprintln(os.Stderr, "skerry-sandboxd supervise:", err)
		s.send(message{Kind: msgFailed, Code: codeCannotExecute, Reason: "sandboxd cannot confine commands here: " + err.Error()})
		return 1
	}
	for {
		m, files, err := s.receive()
		if err != nil {
			return 0 // sandboxd closed the socket
		}
		if m.Kind != msgRun || len(files) < 3 || len(files) > StandbyFD+1 {
			closeAll(files) // a kill that came after its run had ended
			continue
		}
		if !s.run(m, files) {
			return 0
		}
	}
}

type supervisor struct {
	self     int
	mayTrace bool // commands each other
	oom      int  // descriptor of /proc/self/oom_score_adj, or -1
	base     string

	kept      int  // a zygote, which is spared while a fork of it runs; 0: none
	keptEnded bool // is reaped

	serial uint64
	main   int
	status syscall.WaitStatus
	leave  bool // what outlives main
	ended  bool // main is reaped
	none   bool // no child is left
	cpu    time.Duration
	rss    int64
}

func (s *supervisor) harden() error {
	// Whatever PID 1 was started with stays with it.
	if err := unix.CloseRange(controlFD, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		unix.CloseOnExec(controlFD) // a kernel before 5.11
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("sub-reaper: %w", err)
	}
	// Opened first: a non-dumpable process may not open it. One whose program cannot be read begins as such.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("dumpable: %w", err)
	}
	if fd, err := unix.Open("/proc/self/oom_score_adj", unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
		var b [16]byte
		if n, err := unix.Read(fd, b[:]); err == nil && n > 0 {
			s.oom, s.base = fd, string(b[:n])
		}
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("non-dumpable: %w", err)
	}
	// For all threads: it leads a process group of its own. Fails only where it is higher already.
	_ = unix.Setpriority(unix.PRIO_PGRP, 0, supervisorNice)
	return filter.Install(s.self, s.mayTrace)
}

// run serves one run message. It returns false when sandboxd is gone.
func (s *supervisor) run(m message, files []int) bool {
	s.begin(m.Serial, 0)
	s.leave = m.Leave
	pidfd := -1
	why := s.start(m, files, &pidfd)
	closeAll(files)
	if why != nil {
		return s.send(message{Kind: msgFailed, Serial: s.serial, Code: why.code, Reason: why.reason})
	}
	alive := s.send(message{Kind: msgStarted, Serial: s.serial, PID: s.main})
	return s.finish(pidfd) && alive
}

func (s *supervisor) begin(serial uint64, pid int) {
	s.serial, s.main, s.status, s.leave, s.ended, s.none, s.cpu, s.rss = serial, pid, 0, false, false, false, 0, 0
}

// finish stays with the command until its tree is gone, and says how it ended. What the command may leave, it stays with
// after that.
func (s *supervisor) finish(pidfd int) bool {
	alive := s.wait(pidfd)
	if pidfd >= 0 {
		_ = unix.Close(pidfd)
	}
	left := 0
	if s.ended && s.leave {
		left = s.outlived()
	}
	if left == 0 {
		s.endTree()
	}
	m := message{Kind: msgExit, Serial: s.serial, Left: left, CPU: s.cpu.Microseconds(), MaxRSS: s.rss}
	if s.status.Signaled() {
		m.Signal = int(s.status.Signal())
	} else {
		m.Code = s.status.ExitStatus()
	}
	alive = s.send(m) && alive
	if left > 0 {
		return s.keep()
	}
	return alive
}

// outlived counts the processes that outlive the command, once they had leaveAfter to end.
func (s *supervisor) outlived() int {
	const rounds = 10
	for range rounds {
		if s.reap(); s.alone() {
			return 0
		}
		ts := unix.NsecToTimespec(int64(leaveAfter / rounds))
		_ = unix.Nanosleep(&ts, nil) // a SIGCHLD ends it early
	}
	s.reap()
	return len(s.tree())
}

// keep stays with what a command left until none of it is there, or sandboxd asks for its end. It returns false when sandboxd
// is gone.
func (s *supervisor) keep() bool {
	fds := []unix.PollFd{{Fd: controlFD, Events: unix.POLLIN}}
	for {
		if s.reap(); s.alone() {
			return s.send(message{Kind: msgGone, Serial: s.serial})
		}
		fds[0].Revents = 0
		if _, err := unix.Poll(fds, int(idlePoll.Milliseconds())); err != nil || fds[0].Revents == 0 {
			continue
		}
		m, files, err := s.receive()
		closeAll(files)
		if err != nil || m.Kind == msgKill && m.Serial == s.serial {
			s.endTree()
		}
		if err != nil {
			return false
		}
	}
}

// adopt serves the run of a process that the command has forked and that fell to this one. The command itself is left
// alone, and is waited for again when the run has ended.
func (s *supervisor) adopt(m message, pidfd int) bool {
	zygote, serial := s.main, s.serial
	s.kept, s.keptEnded = zygote, false
	s.begin(m.Serial, m.PID)
	var alive bool
	if isChild(m.PID) {
		alive = s.send(message{Kind: msgStarted, Serial: s.serial, PID: m.PID}) && s.finish(pidfd)
	} else {
		_ = unix.Close(pidfd)
		alive = s.send(message{Kind: msgFailed, Serial: s.serial, Code: codeCannotExecute, Reason: "what was forked is gone"})
	}
	ended := s.keptEnded
	s.begin(serial, zygote)
	s.kept, s.keptEnded, s.ended = 0, false, ended
	return alive
}

// isChild tells whether a process is a child of this one, ended or not.
func isChild(pid int) bool {
	return unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil) == nil
}

func (s *supervisor) start(m message, files []int, pidfd *int) *failure {
	path, why := findProgram(m)
	if why != nil {
		return why
	}
	inherited := make([]uintptr, len(files)) // the fourth becomes StandbyFD
	for i, fd := range files {
		inherited[i] = uintptr(fd)
	}
	s.setOOM("1000") // inherited: the kernel picks a command before it picks sandboxd
	pid, err := syscall.ForkExec(path, m.Argv, &syscall.ProcAttr{
		Dir:   m.Cwd,
		Env:   m.Env,
		Files: inherited,
		Sys:   &syscall.SysProcAttr{Setsid: true, Setctty: m.Terminal, PidFD: pidfd}, // Ctty is descriptor 0
	})
	s.setOOM(s.base)
	if err != nil {
		return startFailure(m, path, err)
	}
	// It leads a process group, which holds the processes that it has started meanwhile.
	_ = unix.Setpriority(unix.PRIO_PGRP, pid, commandNice)
	s.main = pid
	return nil
}

func (s *supervisor) setOOM(value string) {
	if s.oom >= 0 {
		_, _ = unix.Pwrite(s.oom, []byte(value), 0)
	}
}

// wait returns when the command has ended or is to be ended; false when sandboxd is gone.
func (s *supervisor) wait(pidfd int) bool {
	timeout := idlePoll
	if pidfd < 0 { // a kernel without them: SIGCHLD interrupts poll, unless it comes just before
		timeout = 2 * time.Millisecond
	}
	fds := []unix.PollFd{{Fd: controlFD, Events: unix.POLLIN}, {Fd: int32(pidfd), Events: unix.POLLIN}}
	for {
		s.reap()
		if s.ended {
			return true
		}
		fds[0].Revents, fds[1].Revents = 0, 0
		_, err := unix.Poll(fds, int(timeout.Milliseconds()))
		if err != nil || fds[0].Revents == 0 {
			continue
		}
		m, files, err := s.receive()
		if err == nil && m.Kind == msgAdopt && s.kept == 0 && m.Kept == s.main && len(files) == 1 {
			if !s.adopt(m, files[0]) {
				return false
			}
			continue
		}
		closeAll(files)
		switch {
		case err != nil:
			return false
		case m.Serial != s.serial: // meant for a run that has ended
		case m.Kind == msgKill:
			return true
		case m.Kind == msgSignal:
			s.signal(unix.Signal(m.Signal), m.Group)
			if m.Tell && !s.send(message{Kind: msgSignalled}) {
				return false
			}
		}
	}
}

// signal sends a signal to every process of the tree, or to the command's group.
func (s *supervisor) signal(sig unix.Signal, group bool) {
	if group {
		_ = unix.Kill(-s.main, sig)
		return
	}
	for _, pid := range s.tree() {
		_ = unix.Kill(pid, sig)
	}
}

// reap takes every child that has ended, and adds up what they used.
func (s *supervisor) reap() {
	for {
		var ws syscall.WaitStatus
		var ru syscall.Rusage
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, &ru)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid == 0 {
			s.none = err != nil
			return
		}
		s.cpu += time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
		s.rss = max(s.rss, ru.Maxrss<<10)
		switch pid {
		case s.main:
			s.status, s.ended = ws, true
		case s.kept:
			s.keptEnded = true
		}
	}
}

func (s *supervisor) tree() []int {
	procs, err := procfs.Scan()
	if err != nil {
		return nil
	}
	tree := procfs.Descendants(procs, s.self)
	if s.kept != 0 {
		tree = slices.DeleteFunc(tree, func(pid int) bool { return pid == s.kept })
	}
	return tree
}

// alone tells, after reap, whether no process of the run is left.
func (s *supervisor) alone() bool {
	if s.none || s.kept == 0 || s.keptEnded {
		return s.none
	}
	only, _ := procfs.OnlyChild(s.kept)
	return only
}

// endTree kills every descendant and waits until none is left. It has no deadline: sandboxd has one,
// and kills a supervisor that passes it.
func (s *supervisor) endTree() {
	pause := 100 * time.Microsecond
	for {
		s.reap()
		if s.alone() {
			return
		}
		killAll(s.tree)
		for range 8 {
			if s.reap(); s.alone() {
				return
			}
			ts := unix.NsecToTimespec(int64(pause))
			_ = unix.Nanosleep(&ts, nil) // a SIGCHLD ends it early
			pause = min(2*pause, 5*time.Millisecond)
		}
	}
}

func (s *supervisor) send(m message) bool {
	frame, err := encodeMessage(m, maxReport)
	for err == nil && len(frame) > 0 {
		var n int
		n, err = unix.SendmsgN(controlFD, frame, nil, nil, unix.MSG_NOSIGNAL)
		if errors.Is(err, unix.EINTR) {
			err = nil
		} else {
			frame = frame[max(n, 0):]
		}
	}
	return err == nil
}

func (s *supervisor) receive() (message, []int, error) {
	var length [4]byte
	oob := make([]byte, unix.CmsgSpace((StandbyFD+1)*4))
	n, oobn, err := recvmsg(length[:], oob)
	if err != nil {
		return message{}, nil, err
	}
	files := parseRights(oob[:oobn])
	if _, err := io.ReadFull(controlReader{}, length[n:]); err != nil {
		return message{}, files, err
	}
	if binary.LittleEndian.Uint32(length[:]) > maxRequest {
		return message{}, files, errors.New("message too long")
	}
	m, err := readBody(controlReader{}, length[:], maxRequest)
	return m, files, err
}

func recvmsg(p, oob []byte) (n, oobn int, err error) {
	for {
		n, oobn, _, _, err := unix.Recvmsg(controlFD, p, oob, unix.MSG_CMSG_CLOEXEC)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err == nil && n == 0 {
			err = io.EOF
		}
		return n, oobn, err
	}
}

func parseRights(oob []byte) []int {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	var files []int
	for i := range msgs {
		if fds, err := unix.ParseUnixRights(&msgs[i]); err == nil {
			files = append(files, fds...)
		}
	}
	return files
}

// controlReader reads the control socket, blocking.
type controlReader struct{}

func (controlReader) Read(p []byte) (int, error) {
	for {
		n, err := unix.Read(controlFD, p)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err == nil && n == 0 {
			err = io.EOF
		}
		return max(n, 0), err
	}
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

func signalReason(n int) string { return "killed by signal " + strconv.Itoa(n) }
