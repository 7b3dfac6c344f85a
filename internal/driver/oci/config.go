package oci

import (
	"os"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/skerry-sandbox/skerry/internal/driver/hardening"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// configInput is what the config of a sandbox is made of.
type configInput struct {
	spec       sandbox.Spec
	runtime    hardening.Runtime
	rootfs     string
	rootMounts []specs.Mount // what fills the root file system, before all others
	etcMounts  []specs.Mount
	cgroup     string // absolute, in the hierarchy
	how        binding
	seccomp    *specs.LinuxSeccomp
}

// config is the OCI config of a sandbox: all of the hardening, and nothing in a Spec can take any of
// it away.
func config(in configInput) *specs.Spec {
	spec := in.spec
	return &specs.Spec{
		Version:  "1.0.2", // the newest that runc 1.1 and runsc both take
		Hostname: hardening.Hostname(spec),
		Root:     &specs.Root{Path: in.rootfs, Readonly: true},
		Process:  process1(in),
		Mounts:   mounts(in),
		Linux: &specs.Linux{
			CgroupsPath:       in.cgroup,
			Namespaces:        namespaces(),
			Resources:         resources(in),
			Seccomp:           in.seccomp,
			MaskedPaths:       hardening.MaskedPaths(),
			ReadonlyPaths:     hardening.ReadonlyPaths(),
			RootfsPropagation: "rprivate",
		},
	}
}

func process1(in configInput) *specs.Process {
	spec := in.spec
	rlimits := make([]specs.POSIXRlimit, 0, 4)
	for _, r := range in.runtime.Rlimits(spec.Limits) {
		rlimits = append(rlimits, specs.POSIXRlimit{Type: r.Name, Hard: r.Value, Soft: r.Value})
	}
	id := uint32(spec.UID) //nolint:gosec // CheckSpec bounds it by hardening.MaxUID
	return &specs.Process{
		User:            specs.User{UID: id, GID: id},
		Args:            append([]string{sandbox.DaemonPath}, spec.Args...),
		Env:             hardening.Environment(),
		Cwd:             "/",
		Capabilities:    &specs.LinuxCapabilities{}, // all five sets empty
		Rlimits:         rlimits,
		NoNewPrivileges: true,
	}
}

func namespaces() []specs.LinuxNamespace {
	types := []specs.LinuxNamespaceType{
		specs.PIDNamespace, specs.IPCNamespace, specs.UTSNamespace,
		specs.NetworkNamespace, specs.MountNamespace, specs.CgroupNamespace,
	}
	out := make([]specs.LinuxNamespace, 0, len(types))
	for _, t := range types {
		out = append(out, specs.LinuxNamespace{Type: t})
	}
	return out
}

func resources(in configInput) *specs.LinuxResources {
	limits := in.spec.Limits
	pids := in.runtime.PIDs(limits)
	quota, period := hardening.CPUQuota(limits), uint64(hardening.CPUPeriod)
	memory := &specs.LinuxMemory{Limit: &limits.MemoryBytes}
	if swapIsAccounted() {
		memory.Swap = &limits.MemoryBytes // memory and swap together: no swap
	}
	return &specs.LinuxResources{
		Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}, // the runtime adds the usual few
		Memory:  memory,
		CPU:     &specs.LinuxCPU{Quota: &quota, Period: &period},
		Pids:    &specs.LinuxPids{Limit: &pids},
	}
}

// swapIsAccounted reports whether the kernel can limit swap. One that cannot refuses the setting.
func swapIsAccounted() bool {
	if _, v1 := cgroupMount("memory"); !v1 {
		return true // version 2 always can, unless there is no swap at all
	}
	mount, _ := cgroupMount("memory")
	_, err := os.Stat(mount + "/memory.memsw.limit_in_bytes")
	return err == nil
}

func mounts(in configInput) []specs.Mount {
	out := []specs.Mount{
		{Type: "proc", Source: "proc", Destination: "/proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Type: "tmpfs", Source: "tmpfs", Destination: "/dev", Options: []string{"nosuid", "strictatime", "mode=755", "size=64k"}},
		{Type: "devpts", Source: "devpts", Destination: "/dev/pts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
		{Type: "tmpfs", Source: "shm", Destination: "/dev/shm", Options: []string{"nosuid", "noexec", "nodev", "mode=1777", sizeOption(hardening.ShmBytes)}},
		{Type: "mqueue", Source: "mqueue", Destination: "/dev/mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
		{Type: "sysfs", Source: "sysfs", Destination: "/sys", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
		{Type: "cgroup", Source: "cgroup", Destination: "/sys/fs/cgroup", Options: []string{"nosuid", "noexec", "nodev", "relatime", "ro"}},
	}
	out = append(out, in.rootMounts...)
	out = append(out, in.etcMounts...)
	for _, t := range hardening.TmpfsMounts(in.spec.Limits) {
		out = append(out, specs.Mount{Type: "tmpfs", Source: "tmpfs", Destination: t.Target, Options: t.Options(in.spec.UID)})
	}
	out = append(out, bindFile(in.spec.Daemon, sandbox.DaemonPath))
	for _, m := range in.spec.Mounts {
		out = append(out, bindFolder(m.Source, m.Target, m.ReadOnly, in.how))
	}
	return slices.Clip(out)
}
