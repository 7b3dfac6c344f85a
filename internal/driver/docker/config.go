package docker

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/docker/go-units"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// containerOptions returns the whole container configuration of a sandbox, hardening included; nothing in a
// Spec can remove a part of that. etc is the folder with the sandbox's files of /etc.
func containerOptions(spec sandbox.Spec, rt engineRuntime, seccomp, etc string) (client.ContainerCreateOptions, error) {
	labels, err := encodeLabels(spec)
	if err != nil {
		return client.ContainerCreateOptions{}, err
	}
	return client.ContainerCreateOptions{
		Name: string(spec.ID),
		Config: &container.Config{
			Image:      spec.Image,
			User:       fmt.Sprintf("%d:%d", spec.UID, spec.UID),
			Hostname:   hardening.Hostname(spec),
			Entrypoint: []string{sandbox.DaemonPath},
			Cmd:        spec.Args,
			Env:        hardening.Environment(),
			WorkingDir: "/",
			Labels:     labels,
			// A health check of the image would run a program of it again and again.
			Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
		},
		HostConfig: &container.HostConfig{
			Runtime:        rt.engineName,
			OomScoreAdj:    hardening.OOMScore,
			CapDrop:        []string{"ALL"},
			SecurityOpt:    []string{"no-new-privileges:true", "seccomp=" + seccomp},
			ReadonlyRootfs: true,
			NetworkMode:    "none",
			IpcMode:        container.IPCModePrivate,
			CgroupnsMode:   container.CgroupnsModePrivate,
			UsernsMode:     "host", // the engine has one for all containers, in which a sandbox's uid is not
			MaskedPaths:    hardening.MaskedPaths(),
			ReadonlyPaths:  hardening.ReadonlyPaths(),
			ShmSize:        hardening.ShmBytes(spec),
			Tmpfs:          tmpfs(spec),
			Mounts:         mounts(spec, etc, rt.Runtime),
			Init:           new(bool), // sandboxd is PID 1
			RestartPolicy:  container.RestartPolicy{Name: container.RestartPolicyDisabled},
			// Output of PID 1 would fill the engine's disk, without a bound that we set.
			LogConfig: container.LogConfig{Type: "none"},
			Resources: resources(spec, rt),
		},
	}, nil
}

// withoutImages adds to the variables of PID 1 the names of an image's variables: one without a value is taken away.
func withoutImages(env, names []string) []string {
	for _, name := range names {
		if !slices.ContainsFunc(env, func(own string) bool { return strings.HasPrefix(own, name+"=") }) {
			env = append(env, name)
		}
	}
	return env
}

func resources(spec sandbox.Spec, rt engineRuntime) container.Resources {
	l := spec.Limits
	pids := rt.PIDs(l)
	quota, period := hardening.CPUQuota(l)
	ulimits := make([]*container.Ulimit, 0, 4)
	for _, r := range rt.Rlimits(spec) {
		name := strings.ToLower(strings.TrimPrefix(r.Name, "RLIMIT_"))
		value := int64(r.Value) //nolint:gosec // Limits are positive int64
		ulimits = append(ulimits, &units.Ulimit{Name: name, Soft: value, Hard: value})
	}
	return container.Resources{
		Memory:     l.MemoryBytes,
		MemorySwap: l.MemoryBytes, // memory and swap together: no swap
		CPUPeriod:  period,
		CPUQuota:   quota,
		PidsLimit:  &pids,
		Ulimits:    ulimits,

		CgroupParent: rt.cgroupParent,
	}
}

func tmpfs(spec sandbox.Spec) map[string]string {
	out := make(map[string]string)
	for _, t := range hardening.TmpfsMounts(spec.Limits) {
		out[t.Target] = strings.Join(t.Options(spec.UID), ",")
	}
	return out
}

func mounts(spec sandbox.Spec, etc string, runtime hardening.Runtime) []mount.Mount {
	out := []mount.Mount{bind(runtime.Daemon(spec), sandbox.DaemonPath, true, runtime)}
	for _, name := range hardening.NewEtcFiles(spec, nil, nil).Names() {
		out = append(out, bind(filepath.Join(etc, name), "/etc/"+name, true, runtime))
	}
	for _, m := range spec.Mounts {
		out = append(out, bind(m.Source, m.Target, m.ReadOnly, runtime))
	}
	return out
}

// bind mounts only the source's own file system: what is mounted below it would stay writable, as the
// engine cannot set flags on a whole tree before API 1.44. A kernel of the runtime's own has the flags
// for the mount as a whole, and its file server cannot leave anything out.
func bind(source, target string, readOnly bool, runtime hardening.Runtime) mount.Mount {
	return mount.Mount{
		Type: mount.TypeBind, Source: source, Target: target, ReadOnly: readOnly,
		BindOptions: &mount.BindOptions{Propagation: mount.PropagationRPrivate, NonRecursive: !runtime.OwnKernel},
	}
}

// Labels of the driver's own, beside those of the Spec.
const (
	labelMine    = "io.skerry.docker"         // "1" on every container of this driver
	labelRuntime = "io.skerry.docker.runtime" // Spec.Runtime; the engine's name for it may differ
	labelNames   = "io.skerry.docker.labels"  // names of the Spec's labels: the image adds its own
)

func encodeLabels(spec sandbox.Spec) (map[string]string, error) {
	names, err := encodeNames(spec.Labels)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "the labels cannot be stored")
	}
	out := maps.Clone(spec.Labels)
	if out == nil {
		out = make(map[string]string)
	}
	for name, value := range map[string]string{labelMine: "1", labelRuntime: spec.Runtime, labelNames: names} {
		if _, taken := out[name]; taken {
			return nil, sandbox.Errorf(sandbox.Invalid, "label %q is the driver's own", name)
		}
		out[name] = value
	}
	return out, nil
}
