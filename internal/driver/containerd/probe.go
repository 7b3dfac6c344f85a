package containerd

import (
	"context"
	"os"

	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/runtimeprobe"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// probes find out what a runtime can do.
type probes struct{ *Driver }

// ProbeImage is the image of runtime probes: a few empty folders. The driver makes it when it is not
// there, and leaves it.
const ProbeImage = "docker.io/skerry/runtime-probe:1"

// probed tells why a runtime cannot be used here, or "". The first call for a runtime starts a
// sandbox on it; the answer is kept for the life of the driver. An error says that the probe could
// not be made, and the next call tries again.
func (d probes) probed(ctx context.Context, name string) (string, error) {
	rt := d.runtimes[name]
	if rt == nil {
		return "not installed on this host", nil
	}
	return d.answers.Ask(ctx, name, func() (string, error, error) {
		runtimeprobe.SweepSandboxes(ctx, d.Driver, d.log)
		problem, without, detail, err := d.probeRuntime(ctx, rt)
		if err == nil && problem != "" {
			d.log.Warn("a runtime cannot be used", "driver", Name, "runtime", name, "problem", problem, "error", detail)
		}
		if rt.without = without; without != "" {
			d.log.Warn("sandboxes get no user namespace of their own", "driver", Name, "runtime", name, "problem", without, "error", detail)
		}
		return problem, detail, err
	})
}

func (d probes) probeRuntime(ctx context.Context, rt *ociRuntime) (problem, without string, detail, err error) {
	if err := d.ensureProbeImage(ctx); err != nil {
		return "", "", nil, err
	}
	program := d.probe
	if program == "" {
		self, err := os.Executable()
		if err != nil {
			return "", "", nil, sandbox.Wrap(sandbox.Internal, err, "the runtime probe has no program")
		}
		program = self
	}
	if err := runtimeprobe.RequireStatic(program); err != nil {
		return "", "", nil, err
	}
	starter := func(userNamespace bool) runtimeprobe.Starter { return unprobed{d.Driver, rt, userNamespace} }
	return runtimeprobe.CheckUserNamespace(ctx, starter, runtimeprobe.Config{
		Runtime: rt.Name,
		Image:   ProbeImage,
		Program: program,
		Dir:     d.root + "/probe",
	})
}

// ensureProbeImage makes the image of probes when it is not there.
func (d probes) ensureProbeImage(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	_, err := d.engine.ImageService().Get(ctx, ProbeImage)
	if err == nil {
		return nil
	}
	if !isNotFound(err) {
		return engineError(err, "containerd does not tell its images")
	}
	rootfs, err := hardening.EmptyRootfs()
	if err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the image of the runtime probe could not be made")
	}
	if err := d.images.makeImage(ctx, ProbeImage, rootfs, nil); err != nil {
		return engineError(err, "the image of the runtime probe was not made")
	}
	return nil
}

// unprobed starts sandboxes on a runtime whose probe is under way.
type unprobed struct {
	*Driver
	rt            *ociRuntime
	userNamespace bool
}

// Create implements runtimeprobe.Starter.
func (u unprobed) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Instance, error) {
	return creation{u.Driver}.create(ctx, u.rt, u.userNamespace, spec)
}
