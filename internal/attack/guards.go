package attack

// Guards of the product, as the table names them. control_test.go knows for each how a sandbox is made
// without it.
const (
	guardSeccomp     = "seccomp profile"
	guardFilter      = "filter of execs"
	guardNotRoot     = "not root"
	guardUID         = "uid of its own"
	guardRoot        = "root of its own" // the host's files are not there
	guardPIDs        = "pid namespace"
	guardNet         = "network namespace"
	guardIPC         = "ipc namespace"
	guardCgroupNS    = "cgroup namespace"
	guardLoopback    = "loopback only"
	guardMasks       = "masked paths"
	guardReadonly    = "read-only paths"
	guardROMounts    = "read-only mounts"
	guardRORoot      = "read-only root"
	guardNosuid      = "nosuid mounts"
	guardNodev       = "nodev mounts"
	guardDevices     = "device cgroup"
	guardNoNodes     = "no such device node"
	guardNoNewPrivs  = "no_new_privs"
	guardBounding    = "empty bounding set"
	guardDumpable    = "PID 1 is not dumpable"
	guardDescriptors = "no descriptor left open"
	guardOwner       = "root owns the mount point"
	guardNoSocket    = "no socket of the host"
	guardCoreLimit   = "no core dumps"
	guardPolicy      = "NetworkPolicy"     // its control is TestNetwork of the driver kubernetes
	guardInodes      = "inodes of its own" // no other tenant opens or locks the same ones
	guardCopies      = "not copied"        // a pod has copies of regular files, which are its own, in the place of a mount
)

// capability is the guard that a capability is not there.
func capability(name string) string { return capabilityGuard + name }

const capabilityGuard = "no CAP_"
