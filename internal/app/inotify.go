package app

import (
	"log/slog"
	"os"
	"strconv"

	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
)

// raiseInotify makes the host's supply of inotify instances large. Of the usual 128, one sandbox would leave none
// to others.
func raiseInotify(file string, log *slog.Logger) {
	most, few := hardening.FewInotifyInstances(file)
	if !few {
		return
	}
	if err := os.WriteFile(file, []byte(strconv.Itoa(hardening.InotifyInstances)), 0); err != nil { //nolint:gosec // a file of the kernel
		log.Warn("one sandbox can take all inotify instances of root: set fs.inotify.max_user_instances to 1048576 on the host", "instances", most, "error", err)
		return
	}
	log.Info("fs.inotify.max_user_instances of the host was raised, so that no sandbox takes the instances of others", "from", most, "to", hardening.InotifyInstances)
}
