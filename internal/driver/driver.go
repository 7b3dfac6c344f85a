// Package driver is the contract of what starts sandboxes. Each implementation lies in a folder of
// its own (oci, docker, containerd, memory) and passes the suite in drivertest.
//
// A driver only starts, ends and lists containers. Execs go through skerry-sandboxd, which dials the
// server's socket in the folder mounted at sandbox.RunDir. The driver takes no part in that, so no exec
// costs a call of a container engine.
//
// Lifecycle of a sandbox: Create makes and starts it; it is Running until its PID 1 ends, by Remove or by
// itself; then it is Lost until Remove takes away what is left. A driver keeps no state only in the
// server's memory: after kill -9 of the server, List names every sandbox that still exists, with its
// labels.
package driver

import (
	"context"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Capabilities is what a driver can do on this host. What a driver lacks is refused when a sandbox
// is created; nothing else asks for a driver's name.
type Capabilities struct {
	Name     string   // for people and records only
	Runtimes []string // "runc", "runsc": the ones that were probed and hold every promise
	// RuntimeProblems says for each other known runtime why it cannot be used.
	RuntimeProblems map[string]string
	Network         string // "none" (own network namespace with loopback only), "policy", or "shared" (memory driver)
	Isolated        bool   // false for the memory driver: nothing of design §4 holds
	HostRootfs      bool   // Spec.Image may be ""
	AtService       bool   // sandboxes are another service's: Spec.Image is a template of that service
	// OOMEndsSandbox lists the runtimes under which an exec out of memory ends the whole sandbox.
	OOMEndsSandbox []string
	// UserNamespaces lists the runtimes under which a sandbox has its own user namespace, in which the
	// host's root is the user "nobody". NoUserNamespace says for each other usable runtime why it has none.
	UserNamespaces  []string
	NoUserNamespace map[string]string
	// Unkept says of each point of the hardening that the driver cannot set, why, and what stands in its place.
	Unkept map[Promise]string
}

// Promise names a point of the hardening that depends on what a driver may ask for.
type Promise string

// The points that a driver may be unable to keep.
const (
	VolumeFlags  Promise = "volume_flags"  // what a sandbox can write is mounted with nosuid and nodev
	TmpfsFiles   Promise = "tmpfs_files"   // file systems in memory are bounded in files, not in bytes alone
	MaskedPaths  Promise = "masked_paths"  // all of hardening.MaskedPaths are masked
	LooseFilter  Promise = "loose_filter"  // a template may loosen the system call filter
	OwnCgroup    Promise = "own_cgroup"    // a cgroup namespace: the host's groups are not seen
	EngineLimits Promise = "engine_limits" // the cgroup holds all limits: no swap, a short CPU period, the processes
	Terminals    Promise = "terminals"     // a sandbox has hardening.MaxTerminals pseudo terminals at most
)

// Event says that a sandbox changed.
type Event struct {
	ID    sandbox.ID
	State sandbox.State // Running or Lost
	OOM   bool
}

// Driver starts and ends sandboxes. All methods may be called concurrently, also for one ID, and
// return when ctx ends. Errors carry a sandbox.Kind; their Detail is fit for callers, the engine's
// own words are only in the wrapped cause.
type Driver interface {
	// Capabilities probes the host once and remembers the answer.
	Capabilities(ctx context.Context) (Capabilities, error)
	// Create makes and starts a sandbox. When one with this ID runs already it returns that one.
	// When it fails nothing is left over. NotSupported: the runtime or image cannot be used here;
	// NotFound: there is no such image; Invalid: the Spec breaks a rule (uid 0, a zero limit).
	Create(ctx context.Context, spec sandbox.Spec) (sandbox.Instance, error)
	// Remove kills the sandbox and takes away all that is left of it (not the mounts' sources).
	// Removing a missing one is no error.
	Remove(ctx context.Context, id sandbox.ID) error
	// Inspect tells the present state. NotFound when there is no such sandbox.
	Inspect(ctx context.Context, id sandbox.ID) (sandbox.Instance, error)
	// List names the sandboxes with these labels, in any state, also those of a former server.
	List(ctx context.Context, labels map[string]string) ([]sandbox.Instance, error)
	// Watch reports every sandbox that ends, within a second, until ctx ends; then the channel is
	// closed. It may report one end twice, and reports those of sandboxes made by others too. What
	// ended before Watch was called is found with List.
	Watch(ctx context.Context) (<-chan Event, error)
	// Close releases what the driver holds. Sandboxes go on running.
	Close() error
}

// HasLabels reports whether List returns a sandbox with labels have when it is asked for want.
func HasLabels(have, want map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// Pauser is a driver that can freeze a sandbox. Both methods are idempotent.
type Pauser interface {
	Pause(ctx context.Context, id sandbox.ID) error
	Resume(ctx context.Context, id sandbox.ID) error
}

// Weight is what a sandbox counts when more CPU time is wanted than there is: as cpu.weight of control groups
// version 2, 1 to 10,000. A sandbox with a lower weight has as much as before while no other wants it.
type Weight int

const (
	UsualWeight Weight = 100 // of a sandbox that was not weighed
	LowWeight   Weight = 6   // of a sandbox that neighbours are not to wait for
)

// Weigher is a driver that can change the weight of a sandbox that runs. It is idempotent, and remembered by the
// sandbox alone. NotFound: there is no such sandbox.
type Weigher interface {
	Weigh(ctx context.Context, id sandbox.ID, weight Weight) error
}

// Load is what a sandbox has used since it was made.
type Load struct {
	CPU     time.Duration
	Refused uint64 // new processes and threads that its limit of them did not let be; not counted under a kernel of its own
	Memory  int64  // bytes that it has now, with the cache of its files
	PIDs    int64  // processes and threads that it has now; under a kernel of its own those of that kernel on the host
}

// Meter is a driver that tells what a sandbox uses, so cheaply that it can be asked ten times a second: it asks no
// container engine, but for the first time. NotFound: there is no such sandbox; NotSupported: this process does
// not see the control groups of sandboxes.
type Meter interface {
	Load(ctx context.Context, id sandbox.ID) (Load, error)
}

// ImageTeller is a driver that can tell whether an image was replaced under its name.
type ImageTeller interface {
	// ImageNow returns a text that names what Spec.Image stands for now: another one when it is another image.
	// NotFound: there is none.
	ImageNow(ctx context.Context, image string) (string, error)
}

// ImageStore is a driver that makes images of archives.
type ImageStore interface {
	// ImportImage makes the image that Spec.Image names from source, an absolute path on this host: an archive
	// in the format of OCI or of "docker save", or the folder of an unpacked root file system. imported is
	// false when that was done before and source is still the same, or when the image is a folder that the driver
	// did not make. NotFound: there is no such source.
	ImportImage(ctx context.Context, image, source string) (imported bool, err error)
}

// Existing answers a Create whose sandbox is there.
func Existing(there sandbox.Instance) (sandbox.Instance, error) {
	if there.State == sandbox.Lost {
		return sandbox.Instance{}, sandbox.Errorf(sandbox.Conflict, "sandbox %s has ended and is not removed", there.ID)
	}
	return there, nil
}
