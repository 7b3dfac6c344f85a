package containerd

import (
	"context"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/cgroup"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Weigh implements driver.Weigher.
func (d *Driver) Weigh(ctx context.Context, id sandbox.ID, weight driver.Weight) error {
	if err := hardening.CheckID(id); err != nil {
		return err
	}
	return d.unseen(ctx, id, cgroup.SetWeight(d.cgroups.Of(string(id)), int(weight)))
}

// Load implements driver.Meter.
func (d *Driver) Load(ctx context.Context, id sandbox.ID) (driver.Load, error) {
	if err := hardening.CheckID(id); err != nil {
		return driver.Load{}, err
	}
	used, err := cgroup.Usage(d.cgroups.Of(string(id)))
	return driver.Load(used), d.unseen(ctx, id, err)
}

// unseen tells a control group that is not visible from a missing one.
func (d *Driver) unseen(ctx context.Context, id sandbox.ID, err error) error {
	if err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	switch c, asked := d.container(ctx, id); {
	case asked != nil:
		return asked
	case c == nil || !isMine(*c):
		return sandbox.Errorf(sandbox.NotFound, "there is no sandbox %s", id)
	}
	return sandbox.Wrap(sandbox.NotSupported, err, "the control group of sandbox %s cannot be used", id)
}
