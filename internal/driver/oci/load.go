package oci

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/cgroup"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Weigh implements driver.Weigher.
func (d *Driver) Weigh(_ context.Context, id sandbox.ID, weight driver.Weight) error {
	if err := hardening.CheckID(id); err != nil {
		return err
	}
	return d.unseen(id, cgroup.SetWeight(d.cgroupPath(id), int(weight)))
}

// Load implements driver.Meter.
func (d *Driver) Load(_ context.Context, id sandbox.ID) (driver.Load, error) {
	if err := hardening.CheckID(id); err != nil {
		return driver.Load{}, err
	}
	used, err := cgroup.Usage(d.cgroupPath(id))
	return driver.Load(used), d.unseen(id, err)
}

// unseen tells a control group that is not visible from a missing one.
func (d *Driver) unseen(id sandbox.ID, err error) error {
	if err == nil {
		return nil
	}
	if _, there := os.Stat(d.bundle(id)); errors.Is(there, fs.ErrNotExist) {
		return sandbox.Errorf(sandbox.NotFound, "there is no sandbox %s", id)
	}
	return sandbox.Wrap(sandbox.NotSupported, err, "the control group of sandbox %s cannot be used", id)
}
