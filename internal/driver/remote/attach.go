package remote

import (
	"cmp"
	"context"
	"net"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sidecar"
	"github.com/skerry-sandbox/skerry/internal/sidecar/pod"
)

type nestMount = pod.Mount

// Attach implements driver.Remote.
func (d *Driver) Attach(ctx context.Context, a driver.Attachment) error {
	if err := checkTargets(a.Mounts); err != nil {
		return err
	}
	all, err := d.find(ctx, a.ID)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return notHere(a.ID)
	}
	spec, err := recall(all[0])
	if err != nil {
		return err
	}
	there, err := d.instance(ctx, all[0], false)
	if err != nil {
		return err
	}
	x := d.boxes.get(a.ID)
	switch {
	case there.State == sandbox.Lost:
		return sandbox.Errorf(sandbox.Conflict, "sandbox %s has ended", a.ID)
	case there.State != sandbox.Running || x == nil:
		return sandbox.Errorf(sandbox.Unavailable, "sandbox %s starts at another server", a.ID)
	}
	if err := d.connect(ctx, x, spec, a); err != nil {
		return err
	}
	d.look()
	if len(a.Labels) > 0 {
		return d.records.add(a.ID, a.Labels)
	}
	return nil
}

// connect changes the attachment that is there, or makes one.
func (d *Driver) connect(ctx context.Context, x *box, spec remembered, a driver.Attachment) error {
	uid := cmp.Or(a.UID, spec.UID)
	if c := d.tunnel.Get(a.ID); c != nil {
		return c.Remount(ctx, a.Token, a.Mounts, uid)
	}
	c, err := sidecar.Dial(ctx, sidecar.Options{
		Dial: func(ctx context.Context) (net.Conn, error) { return d.relay(ctx, x.envd) },
		ID:   a.ID, Token: a.Token, Authority: d.o.Authority, Mounts: a.Mounts, Limits: spec.Limits, UID: uid, Digests: d.digests, Log: d.o.Log,
	})
	if err != nil {
		return err
	}
	d.boxes.mark(x, true)
	return d.tunnel.Put(a.ID, c)
}

// Detach implements driver.Remote.
func (d *Driver) Detach(_ context.Context, id sandbox.ID) error {
	if x := d.boxes.get(id); x != nil {
		d.boxes.mark(x, false)
	}
	return d.tunnel.Detach(id)
}

// Push implements driver.Remote.
func (d *Driver) Push(ctx context.Context, id sandbox.ID, paths ...string) error {
	if err := hardening.CheckID(id); err != nil {
		return err
	}
	c, err := d.tunnel.Attached(id)
	if err != nil {
		return err
	}
	return c.Push(ctx, paths...)
}

// Pull implements driver.Remote.
func (d *Driver) Pull(ctx context.Context, id sandbox.ID) (changed bool, err error) {
	if err := hardening.CheckID(id); err != nil {
		return false, err
	}
	c, err := d.tunnel.Attached(id)
	if err != nil {
		return false, err
	}
	return c.Pull(ctx)
}
