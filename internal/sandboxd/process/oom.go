package process

import (
	"os"
	"strconv"
	"strings"
)

// OOMCounters are the files in which a cgroup counts the processes that the kernel killed for want
// of memory, as the sandbox sees them: cgroup v2 and v1.
var OOMCounters = []string{"/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"}

// oomKills reads the first counter there is; -1 when there is none.
func oomKills(files []string) int64 {
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(data)) {
			value, ok := strings.CutPrefix(strings.TrimSpace(line), "oom_kill ")
			if !ok {
				continue
			}
			if n, err := strconv.ParseInt(value, 10, 64); err == nil {
				return n
			}
		}
	}
	return -1
}
