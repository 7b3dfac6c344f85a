package app

import (
	"log/slog"
	"os"
	"strconv"
	"strings"
)

const (
	inotifyFile = "/proc/sys/fs/inotify/max_user_instances"
	// inotifyInstances is more than one sandbox opens: the kernel counts about a kilobyte for each against its memory.
	inotifyInstances = 1 << 20
)

// raiseInotify makes the host's supply of inotify instances large. Root makes the user namespaces of sandboxes, so the
// kernel counts what code opens in them as root's, too. Of the usual 128, one sandbox would leave none to others.
func raiseInotify(file string, log *slog.Logger) {
	text, err := os.ReadFile(file)
	if err != nil {
		return // a kernel without inotify has nothing to take away
	}
	most, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || most >= inotifyInstances {
		return
	}
	if err := os.WriteFile(file, []byte(strconv.Itoa(inotifyInstances)), 0); err != nil { //nolint:gosec // a file of the kernel
		log.Warn("one sandbox can take all inotify instances of root: set fs.inotify.max_user_instances to 1048576 on the host", "instances", most, "error", err)
		return
	}
	log.Info("fs.inotify.max_user_instances of the host was raised, so that no sandbox takes the instances of others", "from", most, "to", inotifyInstances)
}
