package hardening

import (
	"maps"
	"slices"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// The rules compare whole 64-bit registers, of which the kernel may read the low half only. So each names
// what is allowed, and none what is not: a register with rubbish in its high half is refused.

// argumentRules let the calls of limited through with the arguments that programs need.
func argumentRules(r Runtime, loosen []sandbox.Loosening) []*seccomp.Syscall {
	rules := append(socketRules(), optionRules()...)
	for _, persona := range []uint64{0, 0xffffffff} { // Linux, as ever, and the question for it
		rules = append(rules, allow("personality", equal(0, persona)))
	}
	return append(rules, coreRules(r, slices.Contains(loosen, sandbox.LoosenCoreDumps))...)
}

// protocols are those of a socket of the Internet families, by its type. Others (SCTP, DCCP, MPTCP, UDP-Lite,
// raw) are pieces of kernel without use here, which the kernel would load for any process.
var protocols = map[uint64][]uint64{
	unix.SOCK_STREAM: {0, unix.IPPROTO_TCP},
	unix.SOCK_DGRAM:  {0, unix.IPPROTO_UDP},
}

// socketType is the part of socket's second argument that is not flags.
const socketType = 0xf

// socketRules let through unix, TCP and UDP sockets, and netlink for the list of network interfaces. Packet,
// vsock, alg, bluetooth and the like, and netlink's other protocols, are kernel surface without use here.
func socketRules() []*seccomp.Syscall {
	rules := []*seccomp.Syscall{
		allow("socket", equal(0, unix.AF_UNIX)),
		allow("socket", equal(0, unix.AF_NETLINK), equal(2, unix.NETLINK_ROUTE)),
		// The kernel makes both sockets, whatever the family, before it finds that they cannot be a pair.
		allow("socketpair", equal(0, unix.AF_UNIX)),
	}
	for _, family := range []uint64{unix.AF_INET, unix.AF_INET6} {
		for _, kind := range slices.Sorted(maps.Keys(protocols)) { // the same profile is the same text, each time
			for _, protocol := range protocols[kind] {
				rules = append(rules, allow("socket", equal(0, family), masked(1, socketType, kind), equal(2, protocol)))
			}
		}
	}
	return rules
}

// programOptions are the socket options that load a program into the kernel. The kernel compiles each program into
// memory that no sandbox's limit counts. All programs of the host share that memory, the filters of execs among them.
var programOptions = []uint64{unix.SO_ATTACH_FILTER, unix.SO_ATTACH_BPF, unix.SO_ATTACH_REUSEPORT_CBPF, unix.SO_ATTACH_REUSEPORT_EBPF}

// Bounds of what setsockopt lets through: the kernel's highest level is 287, and its highest option of SOL_SOCKET 84.
const (
	socketLevels  = 512
	socketOptions = 128
)

// optionRules let setsockopt through without programOptions.
func optionRules() []*seccomp.Syscall {
	var rules []*seccomp.Syscall
	for _, level := range without(1, 0, socketLevels, unix.SOL_SOCKET) {
		rules = append(rules, allow("setsockopt", level))
	}
	for _, option := range without(2, 0, socketOptions, programOptions...) {
		rules = append(rules, allow("setsockopt", equal(1, unix.SOL_SOCKET), option))
	}
	return rules
}

// without returns conditions that together allow the values from start, size of them, and not the refused ones. size is
// a power of two, and start a multiple of it.
func without(index uint, start, size uint64, refused ...uint64) []specs.LinuxSeccompArg {
	if !slices.ContainsFunc(refused, func(v uint64) bool { return v >= start && v-start < size }) {
		return []specs.LinuxSeccompArg{masked(index, ^(size - 1), start)}
	}
	if size == 1 {
		return nil
	}
	half := size / 2
	return append(without(index, start, half, refused...), without(index, start+half, half, refused...)...)
}

// CoreLimit is the limit of a core dump's size that stops all of them. With 0 the kernel would still hand
// the dump to a program of the host where core_pattern names one; 1 is what it takes for "none at all",
// and is too small for a file.
const CoreLimit = 1

// rlimits is the number of resource limits.
const rlimits = 16

// coreRules keep code from lowering CoreLimit to 0: the calls answer that it is done, as those programs
// expect that want no dump of theirs, and nothing changes. gVisor's kernel dumps nothing.
func coreRules(r Runtime, dumps bool) []*seccomp.Syscall {
	if r.OwnKernel || dumps {
		return []*seccomp.Syscall{allow("prlimit64"), allow("setrlimit")}
	}
	var rules []*seccomp.Syscall
	for _, call := range []struct {
		name string
		arg  uint
	}{{"prlimit64", 1}, {"setrlimit", 0}} {
		name, arg := call.name, call.arg
		for _, others := range without(arg, 0, rlimits, unix.RLIMIT_CORE) {
			rules = append(rules, allow(name, others))
		}
	}
	done := uint(0)
	core := equal(1, unix.RLIMIT_CORE)
	return append(rules,
		allow("prlimit64", core, equal(2, 0)), // a question
		&seccomp.Syscall{LinuxSyscall: specs.LinuxSyscall{
			Names: []string{"prlimit64"}, Action: specs.ActErrno, ErrnoRet: &done,
			Args: []specs.LinuxSeccompArg{core, {Index: 2, Value: 0, Op: specs.OpNotEqual}},
		}},
		&seccomp.Syscall{LinuxSyscall: specs.LinuxSyscall{
			Names: []string{"setrlimit"}, Action: specs.ActErrno, ErrnoRet: &done,
			Args: []specs.LinuxSeccompArg{equal(0, unix.RLIMIT_CORE)},
		}})
}

// noRandomize is ADDR_NO_RANDOMIZE of personality: debuggers set it, so that addresses stay the same.
const noRandomize = 0x0040000

// loosened are the rules that a loosened point adds.
func loosened(point sandbox.Loosening) []*seccomp.Syscall {
	var names []string
	var rules []*seccomp.Syscall
	switch point {
	case sandbox.LoosenPtrace:
		names = []string{"ptrace", "process_vm_readv", "process_vm_writev"}
		rules = append(rules, allow("personality", equal(0, noRandomize)))
	case sandbox.LoosenNamespaces:
		// clone3 stays unknown, so that programs take clone.
		names = []string{"clone", "unshare", "setns", "mount", "umount2", "pivot_root", "chroot"}
	case sandbox.LoosenCoreDumps, sandbox.LoosenShm: // see coreRules and ShmBytes
	}
	for _, name := range names {
		rules = append(rules, allow(name))
	}
	return rules
}

func allow(name string, args ...specs.LinuxSeccompArg) *seccomp.Syscall {
	return &seccomp.Syscall{LinuxSyscall: specs.LinuxSyscall{Names: []string{name}, Action: specs.ActAllow, Args: args}}
}

func equal(index uint, value uint64) specs.LinuxSeccompArg {
	return specs.LinuxSeccompArg{Index: index, Value: value, Op: specs.OpEqualTo}
}

// masked compares the bits of mask.
func masked(index uint, mask, value uint64) specs.LinuxSeccompArg {
	return specs.LinuxSeccompArg{Index: index, Value: mask, ValueTwo: value, Op: specs.OpMaskedEqual}
}
