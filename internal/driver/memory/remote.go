package memory

import (
	"context"
	"maps"
	"os"
	"path/filepath"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Remote is a Driver whose sandboxes have a disk of their own, a folder each: what is mounted elsewhere is copied into it, and
// what runs inside reaches the server's sockets through others that pass on what comes. Each Remote is a process
// that may be attached to a sandbox; all those of one Host see the same sandboxes.
type Remote struct{ *Driver }

var (
	_ driver.Driver  = (*Remote)(nil)
	_ driver.Pauser  = (*Remote)(nil)
	_ driver.Weigher = (*Remote)(nil)
	_ driver.Meter   = (*Remote)(nil)
	_ driver.Volumes = (*Remote)(nil)
)

// NewRemote makes a driver.
func NewRemote(opts Options) *Remote { return &Remote{New(opts)} }

// RemoteName is its name in records.
const RemoteName = "memory remote"

// Capabilities implements driver.Driver.
func (d *Remote) Capabilities(ctx context.Context) (driver.Capabilities, error) {
	caps, err := d.Driver.Capabilities(ctx)
	caps.Name = RemoteName
	return caps, err
}

// Create implements driver.Driver.
func (d *Remote) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Instance, error) {
	if err := d.check(ctx, spec); err != nil {
		return sandbox.Instance{}, err
	}
	unlock, err := d.host.starts.Lock(ctx, spec.ID)
	if err != nil {
		return sandbox.Instance{}, err
	}
	defer unlock()
	kept, err := d.host.folder(spec.Volume)
	var p *pod
	if err == nil {
		p, err = newPod(spec, kept)
	}
	if err != nil {
		return sandbox.Instance{}, sandbox.Wrap(sandbox.Internal, err, "the sandbox's disk cannot be made")
	}
	inst, used, err := d.host.create(spec, p)
	if !used {
		p.end()
		p.remove()
	}
	if err != nil {
		return inst, err
	}
	return inst, d.Attach(ctx, driver.Attachment{ID: spec.ID, Token: spec.Token, Mounts: spec.Mounts})
}

// Remove implements driver.Driver.
func (d *Remote) Remove(ctx context.Context, id sandbox.ID) error {
	unlock, err := d.host.starts.Lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	return d.Driver.Remove(ctx, id)
}

// Attach implements driver.Remote.
func (d *Remote) Attach(_ context.Context, a driver.Attachment) error {
	p, err := d.pod(a.ID)
	if err != nil {
		return err
	}
	if err := p.attach(d, a); err != nil {
		return err
	}
	d.host.label(a.ID, a.Labels)
	return nil
}

// Detach implements driver.Remote.
func (d *Remote) Detach(_ context.Context, id sandbox.ID) error {
	if p, err := d.pod(id); err == nil {
		p.detach(d)
	}
	return nil
}

// Push implements driver.Remote.
func (d *Remote) Push(ctx context.Context, id sandbox.ID, paths ...string) error {
	p, err := d.pod(id)
	if err != nil {
		return err
	}
	return p.push(ctx, d, paths)
}

// Pull implements driver.Remote.
func (d *Remote) Pull(ctx context.Context, id sandbox.ID) (changed bool, err error) {
	p, err := d.pod(id)
	if err != nil {
		return false, err
	}
	return p.pull(ctx, d)
}

// RemoveFolder implements driver.Volumes.
func (d *Remote) RemoveFolder(ctx context.Context, spec sandbox.Spec) error {
	if err := d.check(ctx, spec); err != nil {
		return err
	}
	d.host.mu.Lock()
	defer d.host.mu.Unlock()
	if d.host.volumes == "" {
		return nil
	}
	return os.RemoveAll(d.host.folderOf(spec.Volume))
}

// folder returns where the files of a volume's folder are, and makes it; "": they are on none.
func (h *Host) folder(v *sandbox.Volume) (string, error) {
	if v == nil {
		return "", nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.volumes == "" {
		var err error
		if h.volumes, err = os.MkdirTemp("", "volumes"); err == nil {
			err = os.Chmod(h.volumes, 0o755) //nolint:gosec // what plays the sandbox may have any uid
		}
		if err != nil {
			return "", err
		}
	}
	dir := h.folderOf(v)
	return dir, os.MkdirAll(dir, 0o755) //nolint:gosec // as above
}

func (h *Host) folderOf(v *sandbox.Volume) string {
	return filepath.Join(h.volumes, v.Tenant, v.User, v.Thread)
}

// OnVolume returns where the folder of a volume is on this machine.
func (h *Host) OnVolume(v sandbox.Volume) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.folderOf(&v)
}

// pod returns the disk of a sandbox that is there.
func (d *Remote) pod(id sandbox.ID) (*pod, error) {
	if err := hardening.CheckID(id); err != nil {
		return nil, err
	}
	d.host.mu.Lock()
	defer d.host.mu.Unlock()
	b := d.host.containers[id]
	switch {
	case b == nil:
		return nil, sandbox.Errorf(sandbox.NotFound, "there is no sandbox %s", id)
	case b.pod == nil:
		return nil, sandbox.Errorf(sandbox.NotSupported, "sandbox %s has no disk of its own", id)
	}
	return b.pod, nil
}

func (h *Host) label(id sandbox.ID, labels map[string]string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b := h.containers[id]; b != nil && len(labels) > 0 {
		all := maps.Clone(b.seen.Labels)
		maps.Copy(all, labels)
		b.seen.Labels = all
	}
}

// Cut breaks all ways between servers and a sandbox of a Remote, as a network does, or makes them whole again.
func (h *Host) Cut(id sandbox.ID, broken bool) {
	if p := h.podOf(id); p != nil {
		p.setCut(broken)
	}
}

// Inside returns where the path of a sandbox of a Remote is on this machine; "": there is no such sandbox.
func (h *Host) Inside(id sandbox.ID, path string) string {
	if p := h.podOf(id); p != nil {
		return p.at(path)
	}
	return ""
}

func (h *Host) podOf(id sandbox.ID) *pod {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b := h.containers[id]; b != nil {
		return b.pod
	}
	return nil
}
