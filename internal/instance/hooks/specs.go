package hooks

import (
	"context"
	"strconv"
	"time"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace"
)

// hostname is that of all sandboxes.
const hostname = "skerry"

// PoolSpec is what is alike in all sandboxes of a template: what a warm pool of the cluster can have before it is known for whom.
func PoolSpec(t instance.Template) sandbox.Spec {
	spec := sandbox.Spec{Image: t.Image, Runtime: t.Runtime, Hostname: hostname, Limits: t.Limits, Labels: map[string]string{}}
	instance.Loosen(&spec, t.Loosened)
	return spec
}

// specs are what the driver makes sandboxes of.
type specs struct {
	folders *workspace.Folders
	install string
	replica string
	daemon  string
}

// ofThread is that of a sandbox of a thread.
func (p specs) ofThread(inst *instance.Instance) sandbox.Spec {
	spec := p.common(inst, p.folders.Dir(inst.Thread))
	spec.Labels = map[string]string{
		sandbox.LabelInstall: p.install, sandbox.LabelTenant: inst.Thread.Tenant, sandbox.LabelUser: inst.Thread.User,
		sandbox.LabelThread: inst.Thread.ID, sandbox.LabelTemplate: inst.Template.Name, sandbox.LabelReplica: p.replica,
	}
	if inst.Main != nil {
		spec.Labels[sandbox.LabelRole] = sandbox.RoleSecond
	}
	instance.Loosen(&spec, inst.Template.Loosened)
	if inst.Owned() != nil {
		spec.Token = inst.Owned().Token.Load()
	}
	return spec
}

// ofPooled is that of a sandbox that waits. It differs from a thread's in the labels: they cannot be changed later.
func (p specs) ofPooled(x *instance.Pooled) sandbox.Spec {
	spec := p.common(x.Instance, x.Files)
	spec.Labels = map[string]string{
		sandbox.LabelInstall: p.install, sandbox.LabelRole: sandbox.RolePool, sandbox.LabelUID: strconv.Itoa(x.UID),
		sandbox.LabelTemplate: x.Template.Name, sandbox.LabelReplica: p.replica,
	}
	instance.Loosen(&spec, x.Template.Loosened)
	return spec
}

// common is what sandboxes with a thread and without one have in common.
func (p specs) common(inst *instance.Instance, files string) sandbox.Spec {
	return sandbox.Spec{
		ID: inst.ID, Image: inst.Template.Image, Runtime: inst.Template.Runtime, UID: inst.UID,
		Daemon: p.daemon, Hostname: hostname, Limits: inst.Template.Limits, ClaimPool: inst.Template.ClaimPool,
		Mounts: inst.Mounts(files),
	}
}

// imageTimeout bounds the question what a template's image is now.
const imageTimeout = 10 * time.Second

// ImageNow makes sure that the driver finds a template's image, and names it for good; "" where the driver cannot name it.
func ImageNow(ctx context.Context, d driver.Driver, t instance.Template) (string, error) {
	if t.Prepare != nil {
		if err := t.Prepare(ctx); err != nil {
			return "", err
		}
	}
	teller, ok := d.(driver.ImageTeller)
	if !ok {
		return "", nil
	}
	ctx, stop := context.WithTimeout(ctx, imageTimeout)
	defer stop()
	return teller.ImageNow(ctx, t.Image)
}
