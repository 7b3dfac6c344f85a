package filter

import (
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// A template can let commands trace each other; nothing else is let through then.
func TestMayTrace(t *testing.T) {
	strict, loose := rules(77, false), rules(77, true)
	if len(strict)-len(loose) != len(tracing) {
		t.Errorf("%d rules, and %d for who may trace", len(strict), len(loose))
	}
	for _, r := range loose {
		for _, call := range tracing {
			if r.call == call.call {
				t.Errorf("call %d is still denied", r.call)
			}
		}
	}
}

// The program itself, for every architecture, on a simulated kernel.
func TestProgram(t *testing.T) {
	const self = 77
	for arch, number := range map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64} {
		raw, err := assemble(number, rules(self, false))
		if err != nil {
			t.Fatal(arch, err)
		}
		prog, ok := bpf.Disassemble(raw)
		if !ok {
			t.Fatal(arch, "does not disassemble")
		}
		vm, err := bpf.NewVM(prog)
		if err != nil {
			t.Fatal(arch, err)
		}
		minus := func(n int) uint32 { return uint32(-n) }
		for _, c := range []struct {
			nr, arch   uint32
			arg0, arg1 uint32
			deny       bool
		}{
			{unix.SYS_READ, number, 1, 1, false},
			{unix.SYS_READ, number ^ 1, 0, 0, true},
			{unix.SYS_READ | x32Bit, number, 0, 0, true},
			{unix.SYS_PTRACE, number, 9, 9, true},
			{unix.SYS_KILL, number, 1, 9, true},
			{unix.SYS_KILL, number, minus(1), 9, true},
			{unix.SYS_KILL, number, self, 9, true},
			{unix.SYS_KILL, number, minus(self), 9, true},
			{unix.SYS_KILL, number, 78, 9, false},
			{unix.SYS_KILL, number, 0, 9, false},
			{unix.SYS_SETPRIORITY, number, 0, 1, true},
			{unix.SYS_SETPRIORITY, number, unix.PRIO_USER, 0, true},
			{unix.SYS_SETPRIORITY, number, 0, 0, false},
			{unix.SYS_FCNTL, number, 1, unix.F_SETSIG, true},
			{unix.SYS_IOCTL, number, 1, 0x401c5820, true},
			{unix.SYS_IOCTL, number, 1, unix.TCGETS, false},
			{unix.SYS_IOCTL, number, 0x401c5820, unix.FICLONE, false},
			{unix.SYS_FCNTL, number, unix.F_SETSIG, unix.F_GETFD, false},
		} {
			got, err := vm.Run(seccompData(c.nr, c.arch, c.arg0, c.arg1))
			if err != nil || (uint32(got) == retDeny) != c.deny || !c.deny && got != retAllow {
				t.Errorf("%s: %+v: %#x, %v", arch, c, got, err)
			}
		}
	}
}

// A C library that is told anything but ENOSYS by clone3 does not fall back to clone, and starts no thread.
func TestClone3IsUnknown(t *testing.T) {
	raw, err := assemble(unix.AUDIT_ARCH_X86_64, rules(77, false))
	if err != nil {
		t.Fatal(err)
	}
	prog, _ := bpf.Disassemble(raw)
	vm, err := bpf.NewVM(prog)
	if err != nil {
		t.Fatal(err)
	}
	got, err := vm.Run(seccompData(unix.SYS_CLONE3, unix.AUDIT_ARCH_X86_64, 0, 0))
	if want := retErrno | uint32(unix.ENOSYS); err != nil || uint32(got) != want {
		t.Errorf("%#x, %v, want %#x", got, err, want)
	}
}

// seccompData is struct seccomp_data as the simulation reads it: big endian words.
func seccompData(nr, arch, arg0, arg1 uint32) []byte {
	b := make([]byte, 64)
	for off, v := range map[int]uint32{offNumber: nr, offArch: arch, offArgs: arg0, offArgs + 8: arg1} {
		b[off], b[off+1], b[off+2], b[off+3] = byte(v>>24), byte(v>>16), byte(v>>8), byte(v)
	}
	return b
}

// TestQuotaRules: a tool server keeps its files in their quota, and may do all else.
func TestQuotaRules(t *testing.T) {
	raw, err := assemble(unix.AUDIT_ARCH_X86_64, quotaRules)
	if err != nil {
		t.Fatal(err)
	}
	prog, ok := bpf.Disassemble(raw)
	if !ok {
		t.Fatal("does not disassemble")
	}
	vm, err := bpf.NewVM(prog)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		nr, arg1 uint32
		deny     bool
	}{{unix.SYS_IOCTL, uncounted[0], true}, {unix.SYS_IOCTL, unix.TCGETS, false}, {sysFileSetattr, 0, true}, {unix.SYS_PTRACE, 0, false}, {unix.SYS_KILL, 0, false}} {
		got, err := vm.Run(seccompData(c.nr, unix.AUDIT_ARCH_X86_64, 0, c.arg1))
		if err != nil || (got != retAllow) != c.deny {
			t.Errorf("call %d with %x: %x, %v", c.nr, c.arg1, got, err)
		}
	}
}
