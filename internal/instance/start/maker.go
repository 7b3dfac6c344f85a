package start

import (
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/capacity"
	"github.com/skerry-sandbox/skerry/internal/instance/lifecycle"
	"github.com/skerry-sandbox/skerry/internal/instance/pool"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace"
	"github.com/skerry-sandbox/skerry/internal/workspace/copies"
	"github.com/skerry-sandbox/skerry/internal/workspace/volumes"
)

// Maker makes instances, with a sandbox of the pool or without.
type Maker struct {
	caps      driver.Capabilities
	copies    *copies.Copies
	folders   *workspace.Folders
	OnVolumes bool // files of new threads lie on volumes
	places    *capacity.Places
	pool      *pool.Pool
	queue     *lifecycle.Queue
	runRoot   string
	volumes   *volumes.Volumes
}

// takePooled takes a sandbox of the pool for a thread, and makes its place the tenant's; nil: there is none, or the thread
// may have none. Where sandboxes see the server's disk only a thread without files can: its files are those of the
// sandbox from then on. It runs in instance.Map.Put.
func (m *Maker) takePooled(t sandbox.Thread, o lifecycle.Order) (*instance.Pooled, *capacity.Ticket) {
	if !m.pool.Any() || o.Cold {
		return nil, nil
	}
	if _, err := workspace.UID(m.folders.Dir(t)); !errors.Is(err, fs.ErrNotExist) && (err != nil || !m.copies.Apart()) {
		return nil, nil
	}
	x := m.pool.Pick(o.Template.Name)
	if x == nil {
		return nil, nil
	}
	place, ok := m.places.Exchange(t.Tenant)
	if !ok { // the tenant waits for a place
		m.pool.PutBack(x)
		return nil, nil
	}
	return x, place
}

// newInstance makes the next instance of a thread, with its place. It runs in instance.Map.Put.
func (m *Maker) newInstance(t sandbox.Thread, o lifecycle.Order, former *instance.Instance) (*instance.Instance, error) {
	tmpl := o.Template
	var place *capacity.Ticket
	var x *instance.Pooled
	onVolume := m.onVolume(t)
	if former == nil && !onVolume { // a volume cannot be added to a sandbox that waits
		x, place = m.takePooled(t, o)
	}
	if x == nil {
		var err error
		if place, err = m.queue.TakeSlot(t, former); err != nil {
			return nil, err
		}
	}
	info := m.info(tmpl)
	if x != nil {
		info.ID, info.Warm = x.ID, true
	}
	inst := instance.NewStarting(t, tmpl, info, o.Env)
	inst.Seat.Slot = place
	if x != nil {
		inst.Pooled, inst.Dir, inst.FileSync = x, x.Dir, x.FileSync
		inst.Conn.Link, inst.Conn.Client, inst.Skills.Folder = x.Conn.Link, x.Conn.Client, x.Skills.Folder
		inst.FileSync.Shut()
	} else {
		inst.Dir = instance.RunDir(filepath.Join(m.runRoot, string(inst.ID)))
		inst.FileSync = m.copies.Sync(inst.ID)
	}
	if onVolume {
		inst.FileSync.OnVolume = true
	}
	m.copies.AskContexts(inst)
	return inst, nil
}

// info is what callers are told of an instance of a template that begins.
func (m *Maker) info(tmpl instance.Template) sandbox.Info {
	return sandbox.Info{
		ID: sandbox.NewID(), State: sandbox.Starting, Template: tmpl.Name, Driver: m.caps.Name, Runtime: tmpl.Runtime,
		CreatedAt: time.Now().UTC(), IdleTimeoutSeconds: tmpl.IdleSeconds, Loosened: tmpl.Loosened,
	}
}

// newSecond makes a second instance beside main, with its place. It runs in instance.Map.PutSecond.
func (m *Maker) newSecond(main *instance.Instance, tmpl instance.Template, former *instance.Instance) (*instance.Instance, error) {
	place, err := m.queue.TakeSlot(main.Thread, former)
	if err != nil {
		return nil, err
	}
	tmpl.IdleSeconds = secondIdleSeconds
	tmpl.Limits.DiskBytes = main.Template.Limits.DiskBytes // the files are those of the thread's own
	inst := instance.NewStarting(main.Thread, tmpl, m.info(tmpl), nil)
	inst.Main, inst.Seat.Slot = main, place
	inst.Dir = instance.RunDir(filepath.Join(m.runRoot, string(inst.ID)))
	inst.FileSync = m.copies.Sync(inst.ID)
	return inst, nil
}

// onVolume reports whether the next sandbox of a thread has its files on a volume.
func (m *Maker) onVolume(t sandbox.Thread) bool {
	return m.volumes != nil && (m.OnVolumes || m.volumes.On(t))
}
