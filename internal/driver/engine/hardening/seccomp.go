package hardening

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// neverNeeded are the system calls that Docker's default lets through and no agent needs: each is a piece of
// kernel that hostile code cannot then attack. The list also has the calls that Docker's default allows only
// with a capability (mount, unshare, setns, bpf, perf_event_open …). So they stay out whatever a later
// default says.
var neverNeeded = []string{
	"add_key", "keyctl", "request_key",
	"bpf", "perf_event_open", "userfaultfd", "fanotify_init", "fanotify_mark", "lookup_dcookie",
	"io_uring_setup", "io_uring_enter", "io_uring_register",
	// The kernel has a fixed number of these requests for the whole host, and counts them for nobody.
	"io_setup", "io_destroy", "io_submit", "io_cancel", "io_getevents", "io_pgetevents", "io_pgetevents_time64",
	"unshare", "setns",
	"mount", "umount", "umount2", "pivot_root", "chroot", "open_tree", "open_tree_attr", "move_mount", "mount_setattr",
	"fsopen", "fsconfig", "fsmount", "fspick", "listmount", "statmount", "quotactl", "quotactl_fd",
	"name_to_handle_at", "open_by_handle_at",
	"ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd", "process_madvise", "process_mrelease",
	"kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "reboot", "acct",
	"swapon", "swapoff", "settimeofday", "stime", "clock_settime", "clock_settime64", "adjtimex", "clock_adjtime", "clock_adjtime64",
	"sethostname", "setdomainname", "syslog", "vhangup", "iopl", "ioperm", "modify_ldt", "memfd_secret",
	"lsm_get_self_attr", "lsm_list_modules", "lsm_set_self_attr", "uretprobe",
	// Only reachable by 32-bit programs, which the profile refuses altogether.
	"socketcall", "ipc", "vm86", "vm86old",
}

// limited are the system calls that the profile lets through with some arguments only: see argumentRules.
var limited = []string{"socket", "socketpair", "setsockopt", "personality", "prlimit64", "setrlimit"}

// profile is Docker's default for a container without capabilities, less neverNeeded. It allows the calls in
// limited for a few arguments only, and only programs of the machine's own word size.
func profile(r Runtime, loosen []sandbox.Loosening) *seccomp.Seccomp {
	p := seccomp.DefaultProfile()
	kept := p.Syscalls[:0]
	for _, rule := range p.Syscalls {
		if rule.Action == specs.ActAllow {
			if rule.Includes != nil && len(rule.Includes.Caps) > 0 {
				continue // no sandbox has a capability
			}
			rule.Names = slices.DeleteFunc(rule.Names, func(name string) bool {
				return slices.Contains(limited, name) || slices.Contains(neverNeeded, name)
			})
			if len(rule.Names) == 0 {
				continue
			}
		}
		kept = append(kept, rule)
	}
	kept = append(kept, argumentRules(r, loosen)...)
	if r.OwnKernel {
		// A filter cannot see the flags of clone3, so the profile refuses it with ENOSYS and the C library
		// falls back to clone. After EPERM, gVisor's only answer, it does not, and no program
		// could start a thread. The namespaces that clone3 can make there are gVisor's, not the host's.
		kept = slices.DeleteFunc(kept, func(rule *seccomp.Syscall) bool { return slices.Contains(rule.Names, "clone3") })
		kept = append(kept, allow("clone3"))
	}
	for _, point := range loosen {
		kept = append(kept, loosened(point)...)
	}
	p.Syscalls = kept
	for i := range p.ArchMap {
		p.ArchMap[i].SubArches = nil
	}
	return p
}

// SeccompJSON returns the profile as Docker's engine reads it in a security option.
func SeccompJSON(r Runtime, loosen ...sandbox.Loosening) (string, error) {
	data, err := json.Marshal(profile(r, loosen))
	if err != nil {
		return "", fmt.Errorf("encode the seccomp profile: %w", err)
	}
	return string(data), nil
}

// SeccompOCI returns the profile as an OCI runtime reads it, for this machine and kernel.
func SeccompOCI(r Runtime, loosen ...sandbox.Loosening) (*specs.LinuxSeccomp, error) {
	data, err := SeccompJSON(r, loosen...)
	if err != nil {
		return nil, err
	}
	none := &specs.Spec{Process: &specs.Process{Capabilities: &specs.LinuxCapabilities{}}}
	out, err := seccomp.LoadProfile(data, none)
	if err != nil {
		return nil, fmt.Errorf("resolve the seccomp profile: %w", err)
	}
	return out, nil
}
