package process

import (
	"bytes"
	"os"
	"strconv"
	"time"
)

// tick is what the kernel counts the time of a process in, whatever its own clock does (USER_HZ).
const tick = 10 * time.Millisecond

// usage is what a process and its ended children have used so far.
type usage struct {
	cpu time.Duration
	rss int64 // bytes, at most at any time, of the process itself
}

// usageOf reads it from /proc; what cannot be read is 0.
func usageOf(pid int) (u usage) {
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
	if _, rest, ok := bytes.Cut(status, []byte("\nVmHWM:")); ok {
		if f := bytes.Fields(rest); len(f) > 0 {
			kib, _ := strconv.ParseInt(string(f[0]), 10, 64)
			u.rss = kib << 10
		}
	}
	return u
}

func (u usage) since(before usage) (cpu time.Duration, rss int64) {
	return max(u.cpu-before.cpu, 0), u.rss
}
