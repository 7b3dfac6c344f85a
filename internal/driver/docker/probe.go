package docker

import (
	"context"
	"io"

	"github.com/moby/moby/client"

	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/runtimeprobe"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/runtimes"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// probes find out what a runtime can do.
type probes struct{ *Driver }

// ProbeImage is the image of runtime probes: a few empty folders. The driver makes it when it is not
// there, and leaves it.
const ProbeImage = "skerry/runtime-probe:1"

// probed returns a runtime and tells why it cannot be used here, or "". The first call for a runtime
// starts a sandbox on it; the answer is kept for the life of the driver. An error says that the
// runtime is unknown or that the probe could not be made; in the latter case the next call tries again.
func (d probes) probed(ctx context.Context, name string) (engineRuntime, string, error) {
	known, err := hardening.FindRuntime(name)
	if err != nil {
		return engineRuntime{}, "", err
	}
	problem, err := d.answers.Ask(ctx, name, func() (string, error, error) {
		rt, err := d.runtime(ctx, known)
		if err != nil {
			return "", nil, err
		}
		if rt.engineName == "" {
			return "the container engine has not registered it", nil, nil
		}
		return d.probeRuntime(ctx, rt)
	})
	if err != nil {
		return engineRuntime{}, "", err
	}
	rt, err := d.runtime(ctx, known)
	return rt, problem, err
}

// runtime returns what the engine calls a runtime. The engine is asked once.
func (d probes) runtime(ctx context.Context, known hardening.Runtime) (engineRuntime, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.names == nil {
		names, parent, err := d.ask(ctx)
		if err != nil {
			return engineRuntime{}, err
		}
		d.names, d.parent = names, parent
	}
	return engineRuntime{known, d.names[known.Name], d.parent}, nil
}

// probeRuntime answers as runtimeprobe.Check does.
func (d probes) probeRuntime(ctx context.Context, rt engineRuntime) (problem string, detail, err error) {
	d.sweepProbes.Do(func() { runtimeprobe.SweepSandboxes(ctx, d.Driver, d.log) })
	if err := d.ensureProbeImage(ctx); err != nil {
		return "", nil, err
	}
	prober := runtimes.Prober{Driver: Name, Image: ProbeImage, Program: d.probe, Dir: d.root + "/probe", Log: d.log}
	return prober.Check(ctx, rt.Name, unprobed{d.Driver, rt})
}

// ensureProbeImage makes the image of probes when it is not there.
func (d probes) ensureProbeImage(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	if _, err := d.engine.ImageInspect(ctx, ProbeImage); err == nil {
		return nil
	} else if !isNotFound(err) {
		return engineError(err, "the container engine does not tell its images")
	}
	archive, err := hardening.EmptyRootfs()
	if err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the image of the runtime probe could not be made")
	}
	answer, err := d.engine.ImageImport(ctx, client.ImageImportSource{Source: archive, SourceName: "-"}, ProbeImage, client.ImageImportOptions{})
	if err != nil {
		return engineError(err, "the image of the runtime probe was not made")
	}
	defer answer.Close() //nolint:errcheck // read to its end below
	// The import is done when the answer ends.
	if _, err := io.Copy(io.Discard, io.LimitReader(answer, 1<<20)); err != nil {
		return engineError(err, "the image of the runtime probe was not made")
	}
	return nil
}

// unprobed starts sandboxes on a runtime whose probe is under way.
type unprobed struct {
	*Driver
	rt engineRuntime
}

// Create implements runtimeprobe.Starter.
func (u unprobed) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Instance, error) {
	return creation{u.Driver}.create(ctx, u.rt, spec)
}
