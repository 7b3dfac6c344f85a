package hardening

import (
	"os"
	"strconv"
	"strings"
)

const (
	// InotifyFile has the number of inotify instances that one user of the host may have.
	InotifyFile = "/proc/sys/fs/inotify/max_user_instances"
	// InotifyInstances is more than one sandbox opens: the kernel counts about a kilobyte for each against the
	// sandbox's memory.
	InotifyInstances = 1 << 20
)

// FewInotifyInstances reports whether one sandbox could take all inotify instances, of which the file says most.
// Root makes the user namespaces of sandboxes, so the kernel counts what code opens in them as root's, too. A
// kernel without inotify has nothing to take away.
func FewInotifyInstances(file string) (most int, few bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	most, err = strconv.Atoi(strings.TrimSpace(string(text)))
	return most, err == nil && most < InotifyInstances
}
