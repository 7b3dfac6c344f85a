package docker

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"
)

// An engine that is killed while it starts a container believes from then on that it never ran. Its first process and its
// shim may be there all the same, and removing the container leaves them for good.

// startAgainTimeout bounds the start of a container that is to be removed. Removing it needs time, too.
const startAgainTimeout = 10 * time.Second

// remind has the engine start a container again that it believes never ran: so it finds what is there of it, and clears
// most of that away. That it may not come to a start then is no harm.
func (d *Driver) remind(ctx context.Context, container string) {
	ctx, cancel := context.WithTimeout(ctx, startAgainTimeout)
	defer cancel()
	_, _ = d.engine.ContainerStart(ctx, container, client.ContainerStartOptions{})
}

// endShim ends the shim of a container that is removed, where this process sees it. containerd then clears its folders away.
func endShim(container string) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return
	}
	for _, file := range files {
		line, err := os.ReadFile(file)
		argv := strings.Split(string(line), "\x00")
		if err != nil || !strings.HasPrefix(filepath.Base(argv[0]), "containerd-shim") {
			continue
		}
		at := slices.Index(argv, "-id")
		if pid, err := strconv.Atoi(strings.Split(file, "/")[2]); err == nil && at > 0 && at+1 < len(argv) && argv[at+1] == container {
			_ = unix.Kill(pid, unix.SIGKILL) // it may have ended by itself
		}
	}
}
