package hardening

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Runtime is what is known of an OCI runtime before it is run.
type Runtime struct {
	Name string // as in sandbox.Spec
	// OwnKernel: the sandbox runs on a kernel in user space (gVisor), a process of the host that lives
	// under the sandbox's limits itself. So what runs out of memory is that kernel, and the whole
	// sandbox ends; it counts its own processes, because on the host each is several threads; and it
	// answers a refused system call with EPERM only.
	OwnKernel bool
}

// Runtimes returns the runtimes that Skerry knows.
func Runtimes() []Runtime {
	return []Runtime{{Name: "runc"}, {Name: "runsc", OwnKernel: true}}
}

// Advice says for each runtime what to do when a driver cannot use it. It is for drivers that find its
// program on PATH and set its flags themselves.
func Advice() map[string]string {
	return map[string]string{
		"runc":  "install runc 1.1 or newer where PATH leads (apt install runc)",
		"runsc": "install a newer runsc (gVisor) where PATH leads, such as /usr/local/bin",
	}
}

// FindRuntime returns the runtime of a name, or a NotSupported error.
func FindRuntime(name string) (Runtime, error) {
	for _, r := range Runtimes() {
		if r.Name == name {
			return r, nil
		}
	}
	return Runtime{}, sandbox.Errorf(sandbox.NotSupported, "runtime %.40q is unknown", name)
}

// Daemon returns the program to mount as a sandbox's PID 1. All sandboxes have its inode in common: code that can read it
// sees by inotify when any of them starts an exec, and can lock it by flock. So it is the sealed copy, where there is
// one. gVisor has both in its own kernel, and cannot start a program that the code's uid cannot read.
func (r Runtime) Daemon(spec sandbox.Spec) string {
	if sealed := sandbox.SealedDaemon(spec.Daemon); !r.OwnKernel {
		if info, err := os.Stat(sealed); err == nil && info.Mode().IsRegular() {
			return sealed
		}
	}
	return spec.Daemon
}

// Threads of the host that gVisor needs: some for itself, and a few for each process inside.
const (
	ownKernelThreads   = 128
	threadsEachProcess = 4
)

// PIDs returns the pids limit of the sandbox's cgroup. With a kernel of its own, that is only a backstop
// behind RLIMIT_NPROC: reaching it would end that kernel.
func (r Runtime) PIDs(l sandbox.Limits) int64 {
	if r.OwnKernel {
		return ownKernelThreads + threadsEachProcess*l.PIDs
	}
	return l.PIDs
}

// Rlimit is one resource limit of every process of a sandbox: soft and hard value are the same.
type Rlimit struct {
	Name  string // as in the OCI config, "RLIMIT_NOFILE"
	Value uint64
}

// PendingSignals bounds queued signals and, what matters more, timers: each is an interrupt of the host's
// that no CPU quota counts, as often as the program likes.
const PendingSignals = 256

// Rlimits returns the resource limits of the processes of a sandbox. None is above the hard limit of
// this process: raising one needs CAP_SYS_RESOURCE, which a server in a container lacks.
func (r Runtime) Rlimits(spec sandbox.Spec) []Rlimit {
	l, core := spec.Limits, uint64(CoreLimit) // a core dump would hold other execs' memory
	if slices.Contains(spec.Loosen, sandbox.LoosenCoreDumps) {
		core = atMost(unix.RLIMIT_CORE, l.FileBytes)
	}
	out := []Rlimit{
		{"RLIMIT_NOFILE", atMost(unix.RLIMIT_NOFILE, l.OpenFiles)},
		{"RLIMIT_FSIZE", atMost(unix.RLIMIT_FSIZE, l.FileBytes)},
		{"RLIMIT_CORE", core},
	}
	out = append(out, Rlimit{"RLIMIT_SIGPENDING", atMost(unix.RLIMIT_SIGPENDING, PendingSignals)})
	if r.OwnKernel {
		out = append(out, Rlimit{"RLIMIT_NPROC", atMost(unix.RLIMIT_NPROC, l.PIDs)})
	}
	return out
}

func atMost(resource int, value int64) uint64 {
	want := uint64(value) //nolint:gosec // CheckSpec refuses what is below 1
	var have unix.Rlimit
	if err := unix.Getrlimit(resource, &have); err == nil && have.Max < want {
		return have.Max
	}
	return want
}

// OwnRlimits are limits that the sandbox's first process sets itself, where the engine sets none: by number, of another
// machine than this one. Those of processes are among them.
func OwnRlimits(spec sandbox.Spec) map[int]uint64 {
	l := spec.Limits
	core := uint64(CoreLimit)
	if slices.Contains(spec.Loosen, sandbox.LoosenCoreDumps) {
		core = uint64(l.FileBytes) //nolint:gosec // CheckSpec refuses what is below 1
	}
	return map[int]uint64{
		unix.RLIMIT_NOFILE: uint64(l.OpenFiles), //nolint:gosec // as above
		unix.RLIMIT_FSIZE:  uint64(l.FileBytes), //nolint:gosec // as above
		unix.RLIMIT_CORE:   core,
		unix.RLIMIT_NPROC:  uint64(l.PIDs), //nolint:gosec // as above
	}
}
