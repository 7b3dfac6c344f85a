package kubernetes

import (
	"cmp"
	"context"
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/tunnels"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sidecar"
)

// fill attaches a sandbox that was made just now and copies the sources of its mounts.
func (d *Driver) fill(ctx context.Context, spec sandbox.Spec) error {
	attach := d.Attach
	if spec.Volume != nil && spec.Volume.Bare {
		attach = volumeClaims{d}.attachBare
	}
	if err := attach(ctx, driver.Attachment{ID: spec.ID, Token: spec.Token, Mounts: spec.Mounts}); err != nil {
		return err
	}
	var targets []string
	for _, m := range spec.Mounts {
		if m.Target == sandbox.UserDataDir && spec.Volume != nil && spec.Volume.Ahead {
			continue
		}
		if m.Target != sandbox.RunDir {
			targets = append(targets, m.Target)
		}
	}
	return d.Push(ctx, spec.ID, targets...)
}

// Attach implements driver.Remote. Labels are on the pod soon after it returns: a claim does not wait for them.
func (d *Driver) Attach(ctx context.Context, a driver.Attachment) error {
	if err := hardening.CheckID(a.ID); err != nil {
		return err
	}
	if err := checkTargets(sandbox.Spec{Mounts: a.Mounts}); err != nil {
		return err
	}
	p, err := d.runningPod(ctx, a.ID)
	if err != nil {
		return err
	}
	if err := d.connect(ctx, p, a); err != nil {
		return err
	}
	if len(a.Labels) > 0 {
		d.labels.put(p, a.Labels)
	}
	return nil
}

// runningPod returns the pod of a sandbox that runs. What the informer has not seen yet the API server is asked for.
func (d *Driver) runningPod(ctx context.Context, id sandbox.ID) (*corev1.Pod, error) {
	p := d.pods.now(id)
	if p == nil || p.Status.PodIP == "" {
		var err error
		if p, err = d.lookup.pod(ctx, id); err != nil {
			return nil, err
		}
	}
	if p == nil || !isMine(p) {
		return nil, notHere(id)
	}
	if s, _, _ := state(p); s == sandbox.Lost {
		return nil, sandbox.Errorf(sandbox.Conflict, "sandbox %s has ended", id)
	}
	if p.Status.PodIP == "" {
		return nil, sandbox.Errorf(sandbox.Unavailable, "sandbox %s has no address yet", id)
	}
	return p, nil
}

// connect changes the attachment that is there, or makes one.
func (d *Driver) connect(ctx context.Context, p *corev1.Pod, a driver.Attachment) error {
	spec, err := recall(p)
	if err != nil {
		return err
	}
	uid := cmp.Or(a.UID, spec.UID)
	if c := d.tunnel.Get(a.ID); c != nil {
		return c.Remount(ctx, a.Token, a.Mounts, uid)
	}
	certificate := a.ID
	if spec.Pool != "" {
		certificate = poolID(spec.Pool)
	}
	c, err := d.dial(ctx, sidecar.Options{
		Addr: net.JoinHostPort(p.Status.PodIP, strconv.Itoa(sidecar.Port)), ID: a.ID, Certificate: certificate, Token: a.Token, Authority: d.o.Authority,
		Mounts: a.Mounts, Limits: spec.Limits, UID: uid, Digests: d.digests, Log: d.o.Log,
		Heard: func() { d.pods.markHeard(p) },
	})
	if err != nil {
		return err
	}
	return d.tunnel.Put(a.ID, c)
}

// Detach implements driver.Remote.
func (d *Driver) Detach(_ context.Context, id sandbox.ID) error {
	return d.tunnel.Detach(id)
}

// Push implements driver.Remote.
func (d *Driver) Push(ctx context.Context, id sandbox.ID, paths ...string) error {
	c, err := d.attached(id)
	if err != nil {
		return err
	}
	return c.Push(ctx, paths...)
}

// Pull implements driver.Remote.
func (d *Driver) Pull(ctx context.Context, id sandbox.ID) (changed bool, err error) {
	c, err := d.attached(id)
	if err != nil {
		return false, err
	}
	return c.Pull(ctx)
}

func (d *Driver) attached(id sandbox.ID) (tunnels.Tunnel, error) {
	if err := hardening.CheckID(id); err != nil {
		return nil, err
	}
	return d.tunnel.Attached(id)
}
