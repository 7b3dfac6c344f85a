package docker

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/moby/moby/client"

	"github.com/skerry-sandbox/skerry/internal/driver/hardening"
	"github.com/skerry-sandbox/skerry/internal/driver/runtimeprobe"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// ProbeImage is the image of runtime probes: a few empty folders. The driver makes it when it is not
// there, and leaves it.
const ProbeImage = "skerry/runtime-probe:1"

// probed gives a runtime and tells why it cannot be used here, or "". The first call for a runtime
// starts a sandbox on it; the answer is kept for the life of the driver. An error says that the
// runtime is unknown or that the probe could not be made; in the latter case the next call tries again.
func (d *Driver) probed(ctx context.Context, name string) (engineRuntime, string, error) {
	known, err := hardening.FindRuntime(name)
	if err != nil {
		return engineRuntime{}, "", err
	}
	if err := d.probing.lock(ctx); err != nil {
		return engineRuntime{}, "", err
	}
	defer d.probing.unlock()
	if d.names == nil {
		names, parent, err := d.ask(ctx)
		if err != nil {
			return engineRuntime{}, "", err
		}
		d.names, d.parent = names, parent
		runtimeprobe.SweepSandboxes(ctx, d, d.log)
	}
	rt := engineRuntime{known, d.names[name], d.parent}
	if problem, done := d.problems[name]; done {
		return rt, problem, nil
	}
	if rt.engineName == "" {
		d.problems[name] = "the container engine has not registered it"
		return rt, d.problems[name], nil
	}
	problem, err := d.probeRuntime(ctx, rt)
	return rt, problem, err
}

// probeRuntime probes a runtime and remembers the answer.
func (d *Driver) probeRuntime(ctx context.Context, rt engineRuntime) (string, error) {
	if err := d.ensureProbeImage(ctx); err != nil {
		return "", err
	}
	program := d.probe
	if program == "" {
		self, err := os.Executable()
		if err != nil {
			return "", sandbox.Wrap(sandbox.Internal, err, "the runtime probe has no program")
		}
		program = self
	}
	if err := runtimeprobe.RequireStatic(program); err != nil {
		return "", err
	}
	problem, detail, err := runtimeprobe.Check(ctx, unprobed{d, rt}, runtimeprobe.Config{
		Runtime: rt.Name,
		Image:   ProbeImage,
		Program: program,
		Dir:     d.root + "/probe",
	})
	if err != nil {
		return "", err
	}
	if problem != "" {
		d.log.Warn("a runtime cannot be used", "driver", Name, "runtime", rt.Name, "problem", problem, "error", detail)
	}
	// What only took too long, on a host under load, may go better the next time.
	if problem == "" || !errors.Is(detail, context.DeadlineExceeded) {
		d.problems[rt.Name] = problem
	}
	return problem, nil
}

// ensureProbeImage makes the image of probes when it is not there.
func (d *Driver) ensureProbeImage(ctx context.Context) error {
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
	return u.create(ctx, u.rt, spec)
}
