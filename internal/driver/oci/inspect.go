package oci

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"time"

	"github.com/containerd/go-runc"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/cgroup"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// stateTimeout bounds asking a runtime for states: 15 ms when all is well.
const stateTimeout = 10 * time.Second

// Inspect implements driver.Driver.
func (d *Driver) Inspect(ctx context.Context, id sandbox.ID) (sandbox.Instance, error) {
	if err := hardening.CheckID(id); err != nil {
		return sandbox.Instance{}, err
	}
	rec, err := readRecord(d.bundle(id))
	if errors.Is(err, fs.ErrNotExist) {
		return sandbox.Instance{}, sandbox.Errorf(sandbox.NotFound, "there is no sandbox %s", id)
	}
	if err != nil {
		return sandbox.Instance{}, sandbox.Wrap(sandbox.Internal, err, "the record of sandbox %s cannot be read", id)
	}
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	out, err := d.instances(ctx, []record{rec})
	if err != nil {
		return sandbox.Instance{}, err
	}
	return out[0], nil
}

// List implements driver.Driver.
func (d *Driver) List(ctx context.Context, labels map[string]string) ([]sandbox.Instance, error) {
	all, err := readRecords(d.bundles())
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "the records of sandboxes cannot be read")
	}
	matching := all[:0]
	for _, rec := range all {
		if driver.HasLabels(rec.Labels, labels) {
			matching = append(matching, rec)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	return d.instances(ctx, matching)
}

// instances joins records with what the runtimes say of them: one question a runtime.
func (d *Driver) instances(ctx context.Context, records []record) ([]sandbox.Instance, error) {
	known := make(map[string]map[string]*runc.Container)
	out := make([]sandbox.Instance, 0, len(records))
	for _, rec := range records {
		containers, asked := known[rec.Runtime]
		if rt := d.runtimes[rec.Runtime]; rt != nil && !asked {
			var err error
			if containers, err = rt.list(ctx); err != nil {
				return nil, sandbox.Wrap(sandbox.Unavailable, err, "runtime %q does not tell what runs", rec.Runtime)
			}
			known[rec.Runtime] = containers
		}
		out = append(out, d.instance(rec, containers[string(rec.ID)]))
	}
	return out, nil
}

// instance returns the state of one sandbox; c is nil when its runtime does not know it.
func (d *Driver) instance(rec record, c *runc.Container) sandbox.Instance {
	status := ""
	if c != nil {
		status = c.Status
	}
	// A runtime notices the end of PID 1 a moment after the kernel.
	ended := removal{d}.hasEnded(rec.ID)
	switch {
	case ended:
	case status == "running":
		return rec.instance(sandbox.Running)
	case status == "paused":
		return rec.instance(sandbox.Paused)
	case status == "stopped":
	case rec.Maker.Alive() && time.Since(rec.Created) < startTimeout:
		// Not known to the runtime yet, or "creating" or "created". Without its maker it stays so for ever.
		return rec.instance(sandbox.Starting)
	}
	out := rec.instance(sandbox.Lost)
	out.ExitCode = UnknownExitCode
	out.OOMKilled = cgroup.OOMKilled(d.cgroupPath(rec.ID))
	return out
}

func (r record) instance(state sandbox.State) sandbox.Instance {
	return sandbox.Instance{ID: r.ID, State: state, Runtime: r.Runtime, Labels: maps.Clone(r.Labels), CreatedAt: r.Created}
}
