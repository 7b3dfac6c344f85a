package pool

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace"
)

// newPooled is an instance without a thread, of which nothing is there yet.
func (p *Pool) newPooled(t instance.Template) *instance.Pooled {
	now := time.Now().UTC()
	x := &instance.Pooled{Made: now, Instance: instance.New(sandbox.Thread{}, t, sandbox.Info{
		ID: sandbox.NewID(), State: sandbox.Starting, Template: t.Name, Driver: p.o.DriverName, Runtime: t.Runtime, Warm: true,
	})}
	x.Asked = now
	x.FileSync = p.o.Sandboxes.NewFileSync(x.ID)
	x.Dir = instance.RunDir(filepath.Join(p.o.RunRoot, string(x.ID)))
	x.Files = p.o.Root.folder(x.ID, p.o.Peers.ID())
	return x
}

// bringUp makes the sandbox, from its folder to the first answer of its daemon.
func (p *Pool) bringUp(ctx context.Context, x *instance.Pooled) (err error) {
	if x.UID, err = p.o.Folders.Make(ctx, x.Files, workspace.Fill); err != nil {
		return err
	}
	if err := os.MkdirAll(string(x.Dir), 0o711); err != nil {
		return err
	}
	if x.Skills.Folder, err = p.o.Views.Folder(x.Dir.View()); err != nil {
		return err
	}
	// What most users see; a claim changes what its own does not.
	if err := x.Show(p.o.Library.Everybody()); err != nil {
		return err
	}
	if err := p.o.Sandboxes.OpenLink(x.Instance); err != nil {
		return err
	}
	if x.Image, err = prepareImage(ctx, p.o.Driver, x.Template); err != nil { // before: a newer one counts as the older
		return err
	}
	if _, err := p.o.Driver.Create(ctx, p.spec(x)); err != nil {
		return err
	}
	if x.FileSync != nil {
		x.FileSync.Opened(true)
	}
	if err := x.Conn.Hello(ctx); err != nil {
		return err
	}
	p.o.Sandboxes.Warm(x.Instance)
	return nil
}

// takeDown removes all of it.
func (p *Pool) takeDown(ctx context.Context, x *instance.Pooled) error {
	if err := x.Close(); err != nil {
		p.o.Log.Warn("sockets not closed", "sandbox", string(x.ID), "error", err)
	}
	err := p.o.Driver.Remove(ctx, x.ID)
	p.o.Skills.End(x.Instance, err == nil)
	if err == nil {
		err = errors.Join(os.RemoveAll(string(x.Dir)), p.o.Folders.Drop(x.Files, x.UID))
	}
	return err
}

// spec is as that of a thread's sandbox, but for the labels: they cannot be changed later.
func (p *Pool) spec(x *instance.Pooled) sandbox.Spec {
	spec := p.o.Sandboxes.Spec(x.Instance, x.Files)
	spec.Labels = map[string]string{
		sandbox.LabelInstall: p.o.Install, sandbox.LabelRole: sandbox.RolePool, sandbox.LabelUID: strconv.Itoa(x.UID),
		sandbox.LabelTemplate: x.Template.Name, sandbox.LabelReplica: p.o.Peers.ID(),
	}
	instance.Loosen(&spec, x.Template.Loosened)
	return spec
}
