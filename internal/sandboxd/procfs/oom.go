package procfs

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// OOMCounters are the files in which a cgroup counts the processes that the kernel killed for want
// of memory, as the sandbox sees them: cgroup v2 and v1.
var OOMCounters = []string{"/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"}

// OOMCounter is the first counter there is, kept open: it is read before each exec, and opening it costs ten times
// as much as reading it.
type OOMCounter struct{ file *os.File } // nil: there is none

// OpenOOMCounter opens the first of these files that can be read.
func OpenOOMCounter(names []string) OOMCounter {
	for _, name := range names {
		// As a descriptor only, so that no poller gets to know it.
		fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		c := OOMCounter{os.NewFile(uintptr(fd), name)}
		if c.Kills() >= 0 {
			return c
		}
		c.Close()
	}
	return OOMCounter{}
}

// Kills is the number of processes that were killed; -1 when it cannot be read.
func (c OOMCounter) Kills() int64 {
	if c.file == nil {
		return -1
	}
	var buf [1024]byte // either file has less than 200
	n, err := unix.Pread(int(c.file.Fd()), buf[:], 0)
	if err != nil {
		return -1
	}
	for line := range bytes.Lines(buf[:n]) {
		value, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("oom_kill "))
		if !ok {
			continue
		}
		if n, err := strconv.ParseInt(string(value), 10, 64); err == nil {
			return n
		}
	}
	return -1
}

// Close closes the file.
func (c OOMCounter) Close() {
	if c.file != nil {
		_ = c.file.Close()
	}
}
