package remote

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// statePaused is that of a sandbox of the service's that does not run. This driver pauses none.
const statePaused = "paused"

// asked is how many sandboxes are asked for their state at once.
const asked = 8

// idOf is the sandbox of ours that one of the service's is.
func idOf(m made) (sandbox.ID, error) {
	id := sandbox.ID(m.Metadata[metaID])
	return id, hardening.CheckID(id)
}

// isStarting reports whether a server is just making or removing the sandbox.
func (r *records) isStarting(id sandbox.ID) bool {
	if _, err := os.Stat(r.path(id, ".lock")); err != nil {
		return false
	}
	l, err := lockedfile.TryShare(r.path(id, ".lock"))
	if err != nil {
		return errors.Is(err, lockedfile.ErrBusy)
	}
	_ = l.Unlock()
	return false
}

// find returns the sandbox of the service's with an id of ours. There is one, unless a server ended while it made one: the
// oldest counts.
func (d *Driver) find(ctx context.Context, id sandbox.ID) (all []made, err error) {
	if err := hardening.CheckID(id); err != nil {
		return nil, err
	}
	if all, err = d.service.list(ctx, d.records.mine(id, nil)); err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(m made) bool {
		return m.Metadata[metaID] != string(id) || m.Metadata[metaInstall] != d.o.Authority.Fingerprint()
	})
	slices.SortFunc(all, func(a, b made) int { return cmp.Or(a.StartedAt.Compare(b.StartedAt), cmp.Compare(a.ID, b.ID)) })
	return all, nil
}

// instance is how a sandbox of the service's looks. locked: the caller has its lock, so that no server makes it just now.
func (d *Driver) instance(ctx context.Context, m made, locked bool) (sandbox.Instance, error) {
	id, err := idOf(m)
	if err != nil {
		return sandbox.Instance{}, err
	}
	out := sandbox.Instance{ID: id, Runtime: runtimeName, CreatedAt: m.StartedAt.UTC()}
	if out.Labels, err = d.records.labels(m); err != nil {
		return out, err
	}
	x := d.boxes.get(id)
	switch {
	case x == nil || x.made.ID != m.ID:
		out.State, err = d.discover(ctx, m, locked)
	case d.boxes.isOver(x) || m.State == statePaused:
		out.State = sandbox.Lost
	default:
		out.State = sandbox.Running
	}
	return out, err
}

// Inspect implements driver.Driver.
func (d *Driver) Inspect(ctx context.Context, id sandbox.ID) (sandbox.Instance, error) {
	all, err := d.find(ctx, id)
	if err != nil {
		return sandbox.Instance{}, err
	}
	if len(all) == 0 {
		return sandbox.Instance{}, notHere(id)
	}
	return d.instance(ctx, all[0], false)
}

// List implements driver.Driver.
func (d *Driver) List(ctx context.Context, labels map[string]string) ([]sandbox.Instance, error) {
	list, err := d.service.list(ctx, d.records.mine("", labels))
	if err != nil {
		return nil, err
	}
	out := make([]sandbox.Instance, len(list))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(asked)
	for i, m := range list {
		have, err := d.records.labels(m)
		if _, e := idOf(m); e != nil || err != nil || !driver.HasLabels(have, labels) {
			continue
		}
		group.Go(func() (err error) {
			out[i], err = d.instance(ctx, m, false)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(out, func(i sandbox.Instance) bool { return i.ID == "" }), nil
}
