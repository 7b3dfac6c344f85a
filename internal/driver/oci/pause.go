package oci

import (
	"context"
	"time"

	"github.com/skerry-sandbox/skerry/internal/driver/engine/freeze"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// pauseTimeout bounds freezing a sandbox: the kernel waits for each of its threads to stop.
const pauseTimeout = 10 * time.Second

// Pause implements driver.Pauser.
func (d *Driver) Pause(ctx context.Context, id sandbox.ID) error {
	return d.freeze(ctx, id, sandbox.Paused)
}

// Resume implements driver.Pauser.
func (d *Driver) Resume(ctx context.Context, id sandbox.ID) error {
	return d.freeze(ctx, id, sandbox.Running)
}

func (d *Driver) freeze(ctx context.Context, id sandbox.ID, want sandbox.State) error {
	if err := hardening.CheckID(id); err != nil {
		return err
	}
	f := freeze.Freezer{Locks: &d.locks, Timeout: pauseTimeout, Inspect: d.Inspect}
	return f.To(ctx, id, want, func(ctx context.Context, there sandbox.Instance) error {
		rt, err := d.runtimes.Find(there.Runtime)
		if err != nil {
			return err
		}
		if want == sandbox.Paused {
			err = rt.cli.Pause(ctx, string(id))
		} else {
			err = rt.cli.Resume(ctx, string(id))
		}
		if err != nil {
			return sandbox.Wrap(sandbox.Internal, err, "sandbox %s cannot become %s", id, want)
		}
		return nil
	})
}
