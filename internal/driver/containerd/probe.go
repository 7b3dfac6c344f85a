package containerd

import (
	"context"

	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/runtimeprobe"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/runtimes"
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
		if err := d.ensureProbeImage(ctx); err != nil {
			return "", nil, err
		}
		prober := runtimes.Prober{Driver: Name, Image: ProbeImage, Program: d.probe, Dir: d.root + "/probe", Log: d.log}
		return prober.CheckProgram(ctx, rt.Program, func(userNamespace bool) runtimeprobe.Starter {
			return unprobed{d.Driver, rt, userNamespace}
		})
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
