// Package ociconfig makes the config of an OCI runtime for a sandbox: all of the hardening, and nothing
// in a Spec can take any of it away. The drivers that write such a config share it, so that a sandbox
// is the same on each.
package ociconfig

import (
	"fmt"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/skerry-sandbox/skerry/internal/driver/engine/cgroup"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Input is what the config of a sandbox is made of.
type Input struct {
	Spec       sandbox.Spec
	Runtime    hardening.Runtime
	Rootfs     string            // a folder; not absolute: in the bundle
	RootMounts []specs.Mount     // what fills the root file system, before all others
	EtcMounts  []specs.Mount     // see EtcMounts
	Volumes    []hardening.Tmpfs // in the place of what the image declares, see hardening.VolumeMounts
	Cgroup     string            // absolute, in the hierarchy
	Binding    Binding           // what the runtime can do
	Seccomp    *specs.LinuxSeccomp
	// UserNamespace is set when the sandbox gets one of its own: see hardening.IDMappings. The root file system, and every
	// folder above it, must let others by, and hold the mount points.
	UserNamespace bool
}

// New returns the OCI config of a sandbox.
func New(in Input) *specs.Spec {
	spec := in.Spec
	out := &specs.Spec{
		Version:  "1.0.2", // the newest that runc 1.1 and runsc both take
		Hostname: hardening.Hostname(spec),
		Root:     &specs.Root{Path: in.Rootfs, Readonly: true},
		Process:  process1(in),
		Mounts:   mounts(in),
		Linux: &specs.Linux{
			CgroupsPath:       in.Cgroup,
			Namespaces:        namespaces(),
			Resources:         resources(in),
			Seccomp:           in.Seccomp,
			MaskedPaths:       hardening.MaskedPaths(),
			ReadonlyPaths:     hardening.ReadonlyPaths(),
			RootfsPropagation: "rprivate",
		},
	}
	if in.UserNamespace {
		out.Linux.Namespaces = append(out.Linux.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace})
		for _, m := range hardening.IDMappings(spec.UID) {
			out.Linux.UIDMappings = append(out.Linux.UIDMappings, specs.LinuxIDMapping{ContainerID: m.Inside, HostID: m.Host, Size: 1})
		}
		out.Linux.GIDMappings = out.Linux.UIDMappings
	}
	return out
}

func process1(in Input) *specs.Process {
	spec := in.Spec
	rlimits := make([]specs.POSIXRlimit, 0, 4)
	for _, r := range in.Runtime.Rlimits(spec) {
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
		OOMScoreAdj:     new(hardening.OOMScore),
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

func resources(in Input) *specs.LinuxResources {
	limits := in.Spec.Limits
	pids := in.Runtime.PIDs(limits)
	quota, cpuPeriod := hardening.CPUQuota(limits)
	period := uint64(cpuPeriod) //nolint:gosec // positive
	memory := &specs.LinuxMemory{Limit: &limits.MemoryBytes}
	if cgroup.SwapIsAccounted() {
		memory.Swap = &limits.MemoryBytes // memory and swap together: no swap
	}
	return &specs.LinuxResources{
		Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}, // the runtime adds the usual few
		Memory:  memory,
		CPU:     &specs.LinuxCPU{Quota: &quota, Period: &period},
		Pids:    &specs.LinuxPids{Limit: &pids},
	}
}

// terminalOptions are the mount options of pseudo terminals. A kernel of the runtime's own has its own supply of them.
func terminalOptions(in Input) []string {
	out := []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", fmt.Sprintf("gid=%d", hardening.TerminalGroup(in.Spec.UID, in.UserNamespace))}
	if !in.Runtime.OwnKernel {
		out = append(out, fmt.Sprintf("max=%d", hardening.MaxTerminals))
	}
	return out
}

func mounts(in Input) []specs.Mount {
	out := []specs.Mount{
		{Type: "proc", Source: "proc", Destination: "/proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Type: "tmpfs", Source: "tmpfs", Destination: "/dev", Options: []string{"nosuid", "strictatime", "mode=755", "size=64k"}},
		{Type: "devpts", Source: "devpts", Destination: "/dev/pts", Options: terminalOptions(in)},
		{Type: "tmpfs", Source: "shm", Destination: "/dev/shm", Options: []string{"nosuid", "noexec", "nodev", "mode=1777", fmt.Sprintf("size=%d", hardening.ShmBytes(in.Spec))}},
		{Type: "mqueue", Source: "mqueue", Destination: "/dev/mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
		{Type: "sysfs", Source: "sysfs", Destination: "/sys", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
		{Type: "cgroup", Source: "cgroup", Destination: "/sys/fs/cgroup", Options: []string{"nosuid", "noexec", "nodev", "relatime", "ro"}},
	}
	out = append(out, in.RootMounts...)
	out = append(out, in.EtcMounts...)
	for _, t := range slices.Concat(hardening.TmpfsMounts(in.Spec.Limits), in.Volumes) {
		out = append(out, specs.Mount{Type: "tmpfs", Source: "tmpfs", Destination: t.Target, Options: t.Options(in.Spec.UID)})
	}
	out = append(out, BindFile(in.Runtime.Daemon(in.Spec), sandbox.DaemonPath))
	for _, m := range in.Spec.Mounts {
		out = append(out, BindFolder(m.Source, m.Target, m.ReadOnly, in.Binding))
	}
	return slices.Clip(out)
}
