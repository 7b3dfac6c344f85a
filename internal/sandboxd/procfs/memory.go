package procfs

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Cgroups is the folder in which a sandbox sees its cgroup.
const Cgroups = "/sys/fs/cgroup"

// MemoryUse tells how much memory the cgroup in dir uses and may use, in bytes. The used part counts only
// memory that the end of a process or a file in memory would free. ok is false where that is unknown, or has
// no limit.
func MemoryUse(dir string) (used, limit int64, ok bool) {
	for _, v := range []struct {
		limit, stat string
		kinds       []string
	}{
		{"memory.max", "memory.stat", []string{"anon", "shmem"}},
		{"memory/memory.limit_in_bytes", "memory/memory.stat", []string{"total_rss", "total_shmem"}},
	} {
		text, err := os.ReadFile(filepath.Join(dir, v.limit))
		if err != nil {
			continue
		}
		limit, err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err != nil || limit <= 0 || limit > 1<<60 { // "max", or what version 1 has in its place
			return 0, 0, false
		}
		stat, err := os.ReadFile(filepath.Join(dir, v.stat))
		if err != nil {
			return 0, 0, false
		}
		for line := range strings.Lines(string(stat)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			for _, kind := range v.kinds {
				if n, err := strconv.ParseInt(value, 10, 64); err == nil && name == kind {
					used += n
				}
			}
		}
		return used, limit, true
	}
	return 0, 0, false
}
