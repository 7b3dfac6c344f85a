package oci

import (
	"context"
	"errors"

	"github.com/skerry-sandbox/skerry/internal/driver/engine/runtimeprobe"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/runtimes"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// probed tells why a runtime cannot be used here, or "". The first call for a runtime starts a
// sandbox on it; the answer is kept for the life of the driver. An error says that the probe could
// not be made, and the next call tries again.
func (d *Driver) probed(ctx context.Context, name string) (string, error) {
	rt := d.runtimes[name]
	if rt == nil {
		return "not installed on this host", nil
	}
	problem, err := d.answers.Ask(ctx, name, func() (string, error, error) {
		d.sweepProbes(ctx)
		prober := runtimes.Prober{Driver: Name, Program: d.probe, Dir: d.root + "/probe", Log: d.log}
		return prober.CheckProgram(ctx, rt.Program, func(userNamespace bool) runtimeprobe.Starter {
			return unprobed{d, rt, userNamespace}
		})
	})
	// Here each runtime is a program of its own: one that hangs is no reason to do without the others. The next call
	// asks it again.
	if e := new(sandbox.Error); errors.As(err, &e) && e.Kind == sandbox.Unavailable && ctx.Err() == nil {
		d.log.Warn("a runtime cannot be probed", "driver", Name, "runtime", name, "error", err)
		return e.Detail, nil
	}
	return problem, err
}

// sweepProbes removes the sandboxes of probes that a crash of the server interrupted.
func (d *Driver) sweepProbes(ctx context.Context) {
	records, err := readRecords(d.bundles())
	if err != nil {
		d.log.Warn("looking for old runtime probes failed", "error", err)
		return
	}
	for _, rec := range records {
		if _, isProbe := rec.Labels[runtimeprobe.LabelProbe]; isProbe && !rec.Maker.Alive() {
			if err := d.Remove(ctx, rec.ID); err != nil {
				d.log.Warn("removing an old runtime probe failed", "sandbox", rec.ID, "error", err)
			}
		}
	}
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
