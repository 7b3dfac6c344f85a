package doctor

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/driver/engine/cgroup"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
)

// feature is something of the kernel that Skerry uses.
type feature struct {
	name  string
	since string // the kernel that has it
	need  State  // how a kernel without it is
	means string // what is lost without it
	there func() bool
}

// there reports whether a system call is known: any answer but ENOSYS is one. EPERM is what root hears of a
// filter around this process, and what others hear of a call that is root's.
func there(err error) bool {
	return !errors.Is(err, unix.ENOSYS) && (os.Geteuid() != 0 || !errors.Is(err, unix.EPERM))
}

var features = []feature{
	{"openat2", "5.6", Warning, "runtimes resolve the paths of mounts step by step, which is less safe", func() bool {
		fd, err := unix.Openat2(unix.AT_FDCWD, "/", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC})
		if err == nil {
			_ = unix.Close(fd)
		}
		return there(err)
	}},
	{"pidfd", "5.3", Problem, "the end of sandboxes cannot be seen", func() bool {
		fd, err := unix.PidfdOpen(os.Getpid(), 0)
		if err == nil {
			_ = unix.Close(fd)
		}
		return there(err)
	}},
	{"mount_setattr", "5.12", Warning, "file systems mounted below a folder of a sandbox are left out there", func() bool {
		return there(unix.MountSetattr(-1, "", 0, &unix.MountAttr{}))
	}},
	{"user namespaces", "3.8", Warning, "sandboxes have host uids of their own, but no user namespace; gVisor wants one, too", userNamespaces},
	{"seccomp", "4.14", Problem, "system calls cannot be filtered, and no sandbox starts without a filter", func() bool {
		actions, err := os.ReadFile("/proc/sys/kernel/seccomp/actions_avail")
		return err == nil && slices.Contains(strings.Fields(string(actions)), "errno")
	}},
}

func userNamespaces() bool {
	most, err := os.ReadFile("/proc/sys/user/max_user_namespaces")
	if err != nil || strings.TrimSpace(string(most)) == "0" {
		return false
	}
	_, err = os.Stat("/proc/self/ns/user")
	return err == nil
}

// Kernel looks at the kernel's version, at what Skerry uses of it, and at what it has once for all sandboxes.
func Kernel(_ context.Context, r *Report) {
	kernel(r, features)
	watchers(r, hardening.InotifyFile)
}

func kernel(r *Report, features []feature) {
	version := "an unknown kernel"
	var u unix.Utsname
	if err := unix.Uname(&u); err == nil {
		version = unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
	}
	var have []string
	for _, f := range features {
		if f.there() {
			have = append(have, f.name)
		}
	}
	r.OK("", "%s with %s", version, strings.Join(have, ", "))
	for _, f := range features {
		if !slices.Contains(have, f.name) {
			r.Add(Line{Name: f.name, State: f.need, Detail: "is missing: " + f.means, Fix: "use Linux " + f.since + " or newer, with " + f.name + " allowed for this process"})
		}
	}
}

// watchers looks at the number of inotify instances of a user.
func watchers(r *Report, file string) {
	if most, few := hardening.FewInotifyInstances(file); few {
		r.Warn("inotify", "sysctl -w fs.inotify.max_user_instances=1048576, and the same line in /etc/sysctl.d",
			"%d instances for root and all sandboxes with a user namespace: one sandbox can take them all, and no other program of root's gets one", most)
	}
}

// needed are the controllers by which sandboxes are limited, and what is lost without each.
var needed = map[string]string{"cpu": "CPU time", "memory": "memory", "pids": "the number of processes"}

// Cgroups looks at the control groups, which hold the limits of sandboxes.
func Cgroups(_ context.Context, r *Report) {
	version, names := cgroup.Controllers()
	cgroups(r, version, names, cgroup.SwapIsAccounted())
}

func cgroups(r *Report, version int, names []string, swap bool) {
	const fix = "mount the control groups of this host (in a container: give it the host's /sys/fs/cgroup)"
	if version == 0 {
		r.Problem("", fix, "no control groups are mounted: nothing of a sandbox could be limited")
		return
	}
	missing := false
	for _, c := range []string{"cpu", "memory", "pids"} {
		if !slices.Contains(names, c) {
			missing = true
			r.Problem(c, "turn the controller on: in cgroup.subtree_control, or on the kernel's command line (cgroup_enable="+c+")",
				"version %d without the controller %s: %s of a sandbox cannot be limited", version, c, needed[c])
		}
	}
	if !missing {
		r.OK("", "version %d with %s", version, strings.Join(names, ", "))
	}
	if !swap {
		r.Warn("swap", "turn swap off, or boot with swapaccount=1", "the kernel does not count swap: with swap on, a sandbox could use more than its memory limit")
	}
}
