package oci

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func sizeOption(bytes int64) string { return fmt.Sprintf("size=%d", bytes) }

// kernelHasMountSetattr reports whether flags can be set on a whole tree of mounts (Linux 5.12).
var kernelHasMountSetattr = sync.OnceValue(func() bool {
	// An invalid request on purpose: only a kernel without the call answers ENOSYS.
	err := unix.MountSetattr(-1, "", 0, &unix.MountAttr{})
	return !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM)
})

// hierarchy is one mounted cgroup file system.
type hierarchy struct {
	mount       string
	controllers []string // of version 1; none for version 2
}

// hierarchies are the cgroup file systems of this host. They do not change while it runs.
var hierarchies = sync.OnceValue(func() []hierarchy {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	defer f.Close() //nolint:errcheck // only read
	var out []hierarchy
	for scanner := bufio.NewScanner(f); scanner.Scan(); {
		before, after, ok := strings.Cut(scanner.Text(), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 5 || len(right) < 3 {
			continue
		}
		switch right[0] {
		case "cgroup":
			out = append(out, hierarchy{mount: left[4], controllers: strings.Split(right[2], ",")})
		case "cgroup2":
			out = append(out, hierarchy{mount: left[4]})
		}
	}
	return out
})

// cgroupMount gives where a controller is mounted, and whether that is a hierarchy of version 1.
func cgroupMount(controller string) (mount string, v1 bool) {
	unified := ""
	for _, h := range hierarchies() {
		if len(h.controllers) == 0 && unified == "" {
			unified = h.mount
		}
		for _, c := range h.controllers {
			if c == controller {
				return h.mount, true
			}
		}
	}
	return unified, false
}

// cgroupPath is the sandbox's cgroup in every hierarchy.
func (d *Driver) cgroupPath(id sandbox.ID) string {
	return "/" + d.cgroupParent + "/" + string(id)
}

// oomKilled reports whether the kernel ended a process of the sandbox for lack of memory. The
// cgroup is there until the sandbox is removed, also after its end.
func (d *Driver) oomKilled(id sandbox.ID) bool {
	mount, v1 := cgroupMount("memory")
	file := "memory.events"
	if v1 {
		file = "memory.oom_control"
	}
	data, err := os.ReadFile(filepath.Join(mount, d.cgroupPath(id), file))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(data)) {
		if name, count, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name == "oom_kill" {
			return count != "0"
		}
	}
	return false
}

// inCgroup reports whether pid is a process of the sandbox. It tells a pid that is in use by another
// process now from the one that was written down.
func (d *Driver) inCgroup(pid int, id sandbox.ID) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return false
	}
	suffix := d.cgroupPath(id)
	for line := range strings.Lines(string(data)) {
		if strings.HasSuffix(strings.TrimSpace(line), suffix) {
			return true
		}
	}
	return false
}

// thaw lets the processes of a frozen sandbox run again: with cgroup version 1 not even SIGKILL
// reaches a frozen one.
func (d *Driver) thaw(id sandbox.ID) {
	mount, v1 := cgroupMount("freezer")
	if !v1 {
		return
	}
	// No such file: the sandbox is not there or not frozen, and then there is nothing to do.
	_ = os.WriteFile(filepath.Join(mount, d.cgroupPath(id), "freezer.state"), []byte("THAWED"), 0)
}

// cgroupEmptyWait bounds how long killed processes may take to leave their cgroup. One that sits in
// an uninterruptible call can take long; then the cgroup stays, and Remove says so.
const cgroupEmptyWait = 5 * time.Second

// sweepCgroups ends what still runs in the sandbox's cgroups and removes them. The runtime does so
// itself, unless it was killed at work.
func (d *Driver) sweepCgroups(ctx context.Context, id sandbox.ID) error {
	ctx, cancel := context.WithTimeout(ctx, cgroupEmptyWait)
	defer cancel()
	for {
		var left error
		for _, h := range hierarchies() {
			left = errors.Join(left, removeCgroup(filepath.Join(h.mount, d.cgroupPath(id))))
		}
		if left == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return left
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// removeCgroup kills the processes of a cgroup and of those below it, and removes them.
func removeCgroup(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeCgroup(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, field := range strings.Fields(string(procs)) {
		if pid, err := strconv.Atoi(field); err == nil && pid > 1 {
			_ = unix.Kill(pid, unix.SIGKILL) // gone already is fine; still there shows at rmdir
		}
	}
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove a cgroup: %w", err)
	}
	return nil
}
