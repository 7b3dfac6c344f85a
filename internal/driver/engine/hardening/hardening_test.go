package hardening

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func goodSpec() sandbox.Spec {
	return sandbox.Spec{
		ID: "skerry-0123456789abcdef", Runtime: "runc", UID: 1_000_000, Daemon: "/daemon", Hostname: "a-b",
		Mounts: []sandbox.Mount{
			{Source: "/data/thread", Target: sandbox.UserDataDir},
			{Source: "/data/run", Target: sandbox.RunDir, ReadOnly: true},
			{Source: "/data/cache", Target: sandbox.HomeDir + "/.cache"},
		},
		Limits: sandbox.Limits{MemoryBytes: 1 << 30, CPUMillis: 1500, PIDs: 100, OpenFiles: 1000, FileBytes: 1 << 30, TmpBytes: 1 << 20, DiskBytes: 1},
		Labels: map[string]string{"a b": "c=d"},
	}
}

func TestCheckSpec(t *testing.T) {
	if err := CheckSpec(goodSpec()); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*sandbox.Spec){
		"short id":         func(s *sandbox.Spec) { s.ID = "skerry-0123" },
		"upper-case id":    func(s *sandbox.Spec) { s.ID = "skerry-0123456789ABCDEF" },
		"id with newline":  func(s *sandbox.Spec) { s.ID += "\n" },
		"overflowing uid":  func(s *sandbox.Spec) { s.UID = 1<<32 - 1 },
		"relative daemon":  func(s *sandbox.Spec) { s.Daemon = "daemon" },
		"NUL in argument":  func(s *sandbox.Spec) { s.Args = []string{"a\x00b"} },
		"hostname dash":    func(s *sandbox.Spec) { s.Hostname = "a-" },
		"long hostname":    func(s *sandbox.Spec) { s.Hostname = strings.Repeat("a", 64) },
		"tiny memory":      func(s *sandbox.Spec) { s.Limits.MemoryBytes = 1 << 20 },
		"empty label":      func(s *sandbox.Spec) { s.Labels = map[string]string{"": "x"} },
		"label with =":     func(s *sandbox.Spec) { s.Labels = map[string]string{"a=b": "x"} },
		"large labels":     func(s *sandbox.Spec) { s.Labels = map[string]string{"a": strings.Repeat("x", MaxLabelBytes)} },
		"home itself":      func(s *sandbox.Spec) { s.Mounts[0].Target = sandbox.HomeDir },
		"mnt itself":       func(s *sandbox.Spec) { s.Mounts[0].Target = "/mnt" },
		"beside run":       func(s *sandbox.Spec) { s.Mounts[0].Target = sandbox.RunDir + "x" },
		"trailing slash":   func(s *sandbox.Spec) { s.Mounts[0].Target = sandbox.UserDataDir + "/" },
		"the host's root":  func(s *sandbox.Spec) { s.Mounts[0].Source = "/" },
		"root in disguise": func(s *sandbox.Spec) { s.Mounts[0].Source = "/usr/.." },
		"unknown point":    func(s *sandbox.Spec) { s.Loosen = []sandbox.Loosening{"privileged"} },
		"point twice":      func(s *sandbox.Spec) { s.Loosen = []sandbox.Loosening{"large_shm", "large_shm"} },
		"no such dumps": func(s *sandbox.Spec) {
			s.Runtime, s.Loosen = "runsc", []sandbox.Loosening{sandbox.LoosenCoreDumps}
		},
		"too many mounts": func(s *sandbox.Spec) { s.Mounts = make([]sandbox.Mount, MaxMounts+1) },
	} {
		spec := goodSpec()
		change(&spec)
		if err := CheckSpec(spec); !errors.Is(err, sandbox.Invalid) {
			t.Errorf("%s: %v, want invalid", name, err)
		}
	}
}

func TestCheckSources(t *testing.T) {
	dir := t.TempDir()
	text, plain := filepath.Join(dir, "text"), filepath.Join(dir, "plain")
	for path, mode := range map[string]os.FileMode{text: 0o755, plain: 0o644} {
		if err := os.WriteFile(path, []byte("#!/bin/sh\necho this is no program\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := CheckSources(sandbox.Spec{Daemon: self, Mounts: []sandbox.Mount{{Source: dir, Target: "/mnt/x"}}}); err != nil {
		t.Error(err)
	}
	for _, spec := range []sandbox.Spec{
		{Daemon: text}, {Daemon: plain}, {Daemon: dir}, {Daemon: dir + "/none"},
		{Daemon: self, Mounts: []sandbox.Mount{{Source: dir + "/none", Target: "/mnt/x"}}},
	} {
		err := CheckSources(spec)
		var e *sandbox.Error
		if !errors.As(err, &e) || e.Kind != sandbox.Invalid || strings.Contains(e.Detail, dir) {
			t.Errorf("%+v: %v, want invalid, without a host path in the detail", spec, err)
		}
	}
}

// TestSeccomp: the profile allows a part of what Docker's default allows a container without
// capabilities, and neither more calls nor looser ones.
func TestSeccomp(t *testing.T) {
	none := &specs.Spec{Process: &specs.Process{Capabilities: &specs.LinuxCapabilities{}}}
	docker, err := seccomp.GetDefaultProfile(none)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range Runtimes() {
		ours, err := SeccompOCI(r)
		if err != nil {
			t.Fatal(err)
		}
		if ours.DefaultAction != specs.ActErrno || len(ours.Architectures) != 1 {
			t.Errorf("%s: default %s, architectures %v; want errno and this machine's alone", r.Name, ours.DefaultAction, ours.Architectures)
		}
		theirs := allowed(docker)
		for name, unconditional := range allowed(ours) {
			if name == "clone3" && r.OwnKernel {
				continue
			}
			if was, ok := theirs[name]; !ok || (unconditional && !was) {
				t.Errorf("%s: %s is allowed (without condition: %v), Docker's default: %v %v", r.Name, name, unconditional, ok, was)
			}
			if slices.Contains(neverNeeded, name) {
				t.Errorf("%s: %s is allowed", r.Name, name)
			}
		}
		text, err := SeccompJSON(r)
		if err != nil || !json.Valid([]byte(text)) {
			t.Errorf("%s: the engine's form is no JSON: %v", r.Name, err)
		}
	}
}

// TestWhatTheHostHasOnce: code gets nothing of which the kernel has one supply for the whole host.
func TestWhatTheHostHasOnce(t *testing.T) {
	t.Parallel()
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("no filter is known for this machine")
	}
	const garbage = 1 << 40 // in the half of a register that the kernel does not read
	for _, r := range Runtimes() {
		vm := filterVM(t, r)
		for _, call := range []struct {
			name string
			args [2]uint64 // the second and third one
			want bool
		}{
			{"io_setup", [2]uint64{}, false},
			{"io_submit", [2]uint64{}, false},
			{"setsockopt", [2]uint64{unix.SOL_SOCKET, unix.SO_ATTACH_FILTER}, false},
			{"setsockopt", [2]uint64{unix.SOL_SOCKET, unix.SO_ATTACH_BPF}, false},
			{"setsockopt", [2]uint64{unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF}, false},
			{"setsockopt", [2]uint64{unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_EBPF}, false},
			{"setsockopt", [2]uint64{unix.SOL_SOCKET | garbage, unix.SO_ATTACH_FILTER}, false},
			{"setsockopt", [2]uint64{unix.SOL_SOCKET, unix.SO_ATTACH_FILTER | garbage}, false},
			{"setsockopt", [2]uint64{unix.SOL_SOCKET, unix.SO_REUSEADDR}, true},
			{"setsockopt", [2]uint64{unix.SOL_SOCKET, unix.SO_DETACH_FILTER}, true},
			{"setsockopt", [2]uint64{unix.SOL_SOCKET, unix.SO_INCOMING_CPU}, true},
			{"setsockopt", [2]uint64{unix.SOL_SOCKET, unix.SO_RCVTIMEO_NEW}, true},
			{"setsockopt", [2]uint64{unix.SOL_SOCKET, unix.SO_BUSY_POLL_BUDGET}, true},
			{"setsockopt", [2]uint64{unix.IPPROTO_IP, unix.IP_TTL}, true},
			{"setsockopt", [2]uint64{unix.IPPROTO_TCP, unix.TCP_NODELAY}, true},
			{"setsockopt", [2]uint64{unix.IPPROTO_TCP, unix.TCP_FASTOPEN_CONNECT}, true},
			{"setsockopt", [2]uint64{unix.IPPROTO_IPV6, unix.IPV6_V6ONLY}, true},
			{"setsockopt", [2]uint64{unix.SOL_NETLINK, unix.NETLINK_EXT_ACK}, true},
			{"prlimit64", [2]uint64{unix.RLIMIT_NOFILE, 0}, true},
		} {
			// The machine of package bpf reads the high byte first.
			data := make([]byte, 64)
			binary.BigEndian.PutUint32(data[dataNumber:], syscallNumbers[call.name])
			binary.BigEndian.PutUint32(data[dataArch:], filterArch[runtime.GOARCH])
			for i, arg := range call.args {
				binary.BigEndian.PutUint32(data[dataArgs+8*(i+1):], uint32(arg))
				binary.BigEndian.PutUint32(data[dataArgs+8*(i+1)+4:], uint32(arg>>32))
			}
			got, err := vm.Run(data)
			if err != nil || (got == answerAllow) != call.want {
				t.Errorf("%s: %s %#x: %#x, %v; want it let through: %v", r.Name, call.name, call.args, got, err, call.want)
			}
		}
	}
}

func filterVM(t *testing.T, r Runtime) *bpf.VM {
	t.Helper()
	profile, err := SeccompOCI(r)
	if err != nil {
		t.Fatal(err)
	}
	instructions, err := compile(profile)
	if err != nil {
		t.Fatal(err)
	}
	vm, err := bpf.NewVM(instructions)
	if err != nil {
		t.Fatal(err)
	}
	return vm
}

// allowed returns the calls that a profile allows, and whether without a condition.
func allowed(p *specs.LinuxSeccomp) map[string]bool {
	out := make(map[string]bool)
	for _, rule := range p.Syscalls {
		if rule.Action != specs.ActAllow {
			continue
		}
		for _, name := range rule.Names {
			out[name] = out[name] || len(rule.Args) == 0
		}
	}
	return out
}

func TestRlimitsNeverExceedOurs(t *testing.T) {
	limits := goodSpec().Limits
	limits.OpenFiles = 1 << 40
	for _, r := range Runtimes() {
		for _, l := range r.Rlimits(sandbox.Spec{Limits: limits}) {
			if l.Name == "RLIMIT_NOFILE" && l.Value >= 1<<40 {
				t.Errorf("%s: %s is %d, beyond this process's own", r.Name, l.Name, l.Value)
			}
		}
	}
}

func TestEtcFiles(t *testing.T) {
	files := NewEtcFiles(goodSpec(), []byte("root:x:0:0::/:/bin/sh"), nil)
	if got := string(files["passwd"]); got != "root:x:0:0::/:/bin/sh\nagent:x:1000000:1000000:agent:/home/agent:/bin/sh\n" {
		t.Errorf("passwd is %q", got)
	}
	if got := string(files["hosts"]); !strings.Contains(got, "127.0.1.1\ta-b\n") {
		t.Errorf("hosts is %q", got)
	}
	dir := filepath.Join(t.TempDir(), "etc")
	if err := files.Write(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range files.Names() {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != 0o644 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}

// TestMaskedPaths: what a host has for each processor is masked for each.
func TestMaskedPaths(t *testing.T) {
	t.Parallel()
	sys := t.TempDir()
	for _, dir := range []string{"cpu0/thermal_throttle", "cpu1/thermal_throttle", "cpu1/topology", "cpufreq"} {
		if err := os.MkdirAll(filepath.Join(sys, "devices/system/cpu", dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	got := maskedPaths(sys)
	for _, want := range []string{
		"/sys/devices/system/cpu/cpu0/thermal_throttle", "/sys/devices/system/cpu/cpu1/thermal_throttle",
		"/sys/devices/virtual/dmi", "/sys/hypervisor", "/proc/kcore",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is not masked: %v", want, got)
		}
	}
	for _, path := range got {
		if strings.Contains(path, "topology") || strings.Contains(path, sys) {
			t.Errorf("%s is masked", path)
		}
	}
}

// TestCPUQuota: the kernel refuses a quota below 1 ms, and the share must be that of the limit.
func TestCPUQuota(t *testing.T) {
	for _, millis := range []int64{MinCPUMillis, 11, 33, 40, 99, 100, 101, 250, 1000, 1500, 2000, 64_000} {
		quota, period := CPUQuota(sandbox.Limits{CPUMillis: millis})
		if quota < 1000 || period < 10_000 || period > 100_000 {
			t.Errorf("%dm: %d us in %d us", millis, quota, period)
		}
		if period > 10_000 && millis >= 100 {
			t.Errorf("%dm: a period of %d us, want 10 ms", millis, period)
		}
		if share := float64(quota) / float64(period) * 1000; share < float64(millis) || share > 1.01*float64(millis) {
			t.Errorf("%dm: %d us in %d us is %.1fm", millis, quota, period, share)
		}
	}
}

// TestFilterIsAlwaysTheSame: the server compares sandboxes described ahead of a request with the ones that
// it would make.
func TestFilterIsAlwaysTheSame(t *testing.T) {
	for _, r := range Runtimes() {
		first, err := SeccompFilter(r)
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if again, err := SeccompFilter(r); err != nil || !bytes.Equal(again, first) {
				t.Fatalf("%s: the filter is another one each time, %v", r.Name, err)
			}
		}
	}
}
