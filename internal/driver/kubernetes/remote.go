package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"net"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sidecar"
)

// tunnel is one attachment; *sidecar.Conn is.
type tunnel interface {
	Push(ctx context.Context, paths ...string) error
	Pull(ctx context.Context) (changed bool, err error)
	Remount(ctx context.Context, token int64, mounts []sandbox.Mount, uid int) error
	Reach(ctx context.Context, address string) (bool, error)
	Done() <-chan struct{}
	Close() error
}

// tunnels are the attachments of this process.
type tunnels struct {
	mu     sync.Mutex
	byID   map[sandbox.ID]tunnel
	closed bool
	ending sync.WaitGroup
}

// get returns the attachment of a sandbox; nil: there is none that lives.
func (t *tunnels) get(id sandbox.ID) tunnel {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.byID[id]
	if c == nil {
		return nil
	}
	select {
	case <-c.Done():
		return nil
	default:
		return c
	}
}

// put keeps an attachment in the place of a former one, unless the driver is closed.
func (t *tunnels) put(id sandbox.ID, c tunnel) error {
	t.mu.Lock()
	old, closed := t.byID[id], t.closed
	if !closed {
		if t.byID == nil {
			t.byID = make(map[sandbox.ID]tunnel)
		}
		t.byID[id] = c
	}
	t.mu.Unlock()
	if closed {
		return errors.Join(sandbox.Errorf(sandbox.Unavailable, "this server is stopping"), c.Close())
	}
	if old != nil {
		return old.Close()
	}
	return nil
}

// drop ends the attachment of a sandbox, without waiting for it.
func (t *tunnels) drop(id sandbox.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.byID[id]; c != nil {
		delete(t.byID, id)
		t.ending.Go(func() { _ = c.Close() }) // its pod is gone: there is nothing to lose
	}
}

func (t *tunnels) closeAll() error {
	t.mu.Lock()
	all := t.byID
	t.byID, t.closed = nil, true
	t.mu.Unlock()
	var errs []error
	for _, c := range all {
		errs = append(errs, c.Close())
	}
	t.ending.Wait()
	return errors.Join(errs...)
}

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
	if c := d.tunnel.get(a.ID); c != nil {
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
	return d.tunnel.put(a.ID, c)
}

// Detach implements driver.Remote.
func (d *Driver) Detach(_ context.Context, id sandbox.ID) error {
	d.tunnel.mu.Lock()
	c := d.tunnel.byID[id]
	delete(d.tunnel.byID, id)
	d.tunnel.mu.Unlock()
	if c == nil {
		return nil
	}
	return c.Close()
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

func (d *Driver) attached(id sandbox.ID) (tunnel, error) {
	if err := hardening.CheckID(id); err != nil {
		return nil, err
	}
	if c := d.tunnel.get(id); c != nil {
		return c, nil
	}
	return nil, sandbox.Errorf(sandbox.Unavailable, "sandbox %s is not attached to this server", id)
}
