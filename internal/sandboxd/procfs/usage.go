package procfs

import (
	"bytes"
	"os"
	"strconv"
	"time"
)

// tick is what the kernel counts the time of a process in, whatever its own clock does (USER_HZ).
const tick = 10 * time.Millisecond

// Usage is what a process and its ended children have used so far.
type Usage struct {
	cpu time.Duration
	rss int64 // bytes, at most at any time, of the process itself
}

// UsageOf reads the usage of a process from /proc; what cannot be read is 0.
func UsageOf(pid int) (u Usage) {
	dir := "/proc/" + strconv.Itoa(pid)
	if line, err := os.ReadFile(dir + "/stat"); err == nil {
		if i := bytes.LastIndexByte(line, ')'); i >= 0 {
			// The fields behind the name are numbered from 3; utime, stime, cutime and cstime are 14 to 17.
			for n, f := range bytes.Fields(line[i+1:]) {
				if n >= 11 && n <= 14 {
					ticks, _ := strconv.ParseInt(string(f), 10, 64)
					u.cpu += time.Duration(ticks) * tick
				}
			}
		}
	}
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		return u
	}
	u.rss = kibibytes(status, "VmHWM")
	return u
}

// Anonymous is the memory of a process that is not of files, in bytes; what cannot be read is 0.
func Anonymous(pid int) int64 {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0
	}
	return kibibytes(status, "RssAnon")
}

// kibibytes reads a field of /proc/<pid>/status, which has this unit, and returns bytes.
func kibibytes(status []byte, name string) int64 {
	_, rest, _ := bytes.Cut(status, []byte("\n"+name+":"))
	if f := bytes.Fields(rest); len(f) > 0 {
		n, _ := strconv.ParseInt(string(f[0]), 10, 64)
		return n << 10
	}
	return 0
}

// Since is what was used after before; the memory is the most at any time.
func (u Usage) Since(before Usage) (cpu time.Duration, rss int64) {
	return max(u.cpu-before.cpu, 0), u.rss
}
