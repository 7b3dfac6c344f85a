package instance

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills"
	"github.com/skerry-sandbox/skerry/internal/workspace/filesync"
)

// Instance is a sandbox of one thread on this server: what it is, and parts that have a mutex each. What it is does
// not change once Ready is closed.
type Instance struct {
	Thread   sandbox.Thread
	Template Template
	ID       sandbox.ID
	Dir      RunDir
	UID      int
	Pooled   *Pooled        // it waits or waited as this one in the pool; nil: it was made for the thread, or adopted
	Main     *Instance      // the thread's own, beside which it runs scripts of skills; nil: it is the thread's own
	FileSync *filesync.Sync // nil: the sandbox sees this server's disk

	Life
	Conn      Conn
	ownership atomic.Pointer[ownership.Ownership]
	Seat      Seat // what it counts against
	Saved     Saved
	Used      Used
	Load      load
	Disk      disk
	Redaction redaction
	Tools     ToolsView
	Narrow    narrowed
	Skills    SkillsView
}

// narrowed is what the instance's thread was narrowed to, when that is known.
type narrowed struct {
	Mu    sync.Mutex
	Only  []string
	Known bool
}

// Close closes this process's side of the instance and leaves the sandbox alone.
func (inst *Instance) Close() error {
	detached := inst.detach()
	return errors.Join(detached, inst.Conn.Close())
}

// New returns an instance that has its place. info says what it is.
func New(t sandbox.Thread, tmpl Template, info sandbox.Info) *Instance {
	return &Instance{
		Thread: t, Template: tmpl, ID: info.ID,
		Life: Life{
			Ready: make(chan struct{}), Gone: make(chan struct{}), info: info, use: Usage{LastActive: time.Now()}, Turn: Turn{placed: true},
		},
	}
}

// NewStarting returns an instance that a caller asked for, and that waits for its place.
func NewStarting(t sandbox.Thread, tmpl Template, info sandbox.Info, env map[string]string) *Instance {
	inst := New(t, tmpl, info)
	inst.Asked, inst.unused, inst.Saved.env, inst.Load.cpuShares = info.CreatedAt, true, env, driver.UsualWeight
	inst.Turn.placed, inst.Turn.unwanted = false, make(chan struct{})
	return inst
}

// RunDir is an instance's folder on the host, <data>/run/<id>. Two folders of the view are seen inside, of the secret's
// file nothing.
type RunDir string

// Sock returns the folder of the sockets to sandboxd and to the bridge.
func (d RunDir) Sock() string { return filepath.Join(string(d), "sock") }

// CodeAPI returns the folder that is seen as /mnt/code-api.
func (d RunDir) CodeAPI() string { return filepath.Join(string(d), "code-api") }

// View returns the folder of what is seen as /mnt/skills and /mnt/plugins.
func (d RunDir) View() string { return filepath.Join(string(d), "view") }

// SecretFile returns the file with the key that sandboxd proves itself with.
func (d RunDir) SecretFile() string { return filepath.Join(string(d), "secret.json") }

// Own returns the thread's own instance: this one, or the one beside which it is.
func (inst *Instance) Own() *Instance {
	if inst.Main != nil {
		return inst.Main
	}
	return inst
}

// Waiting counts the execs whose calls wait for people. What waits in a second instance keeps the thread's own, too.
func (inst *Instance) Waiting(n int) {
	inst.Life.Waiting(n)
	if inst.Main != nil {
		inst.Main.Life.Waiting(n)
	}
}

// Owned returns the ownership of the instance's thread, nil while it has none. Others may ask for it while the
// instance starts.
func (inst *Instance) Owned() *ownership.Ownership { return inst.ownership.Load() }

// SetOwnership says whose the thread is.
func (inst *Instance) SetOwnership(own *ownership.Ownership) { inst.ownership.Store(own) }

// Enter counts an exec in and returns the environment that all have; Leave counts it out. An instance with
// execs in it is never idle.
func (inst *Instance) Enter() (map[string]string, error) {
	return inst.EnterFor("")
}

// EnterFor is Enter for a script that runs in a second instance of a template. Where sandboxes have disks of their own, the
// thread's files go there until Life.EndLoan; Conflict: something else may change them.
func (inst *Instance) EnterFor(template string) (map[string]string, error) {
	if inst.FileSync == nil {
		template = ""
	}
	if err := inst.enter(template); err != nil {
		return nil, err
	}
	return inst.Saved.Env(), nil
}

// Holder returns the instance that has the thread's files, of which this is the own one.
func (inst *Instance) Holder() *Instance {
	if second := inst.holder(); second != nil {
		return second
	}
	return inst
}

// OnVolume reports whether the sandbox writes the thread's files on the user's volume itself.
func (inst *Instance) OnVolume() bool { return inst.FileSync != nil && inst.FileSync.OnVolume }

// Mounts are those of the sandbox. files is the folder that it has as its own.
func (inst *Instance) Mounts(files string) []sandbox.Mount {
	return []sandbox.Mount{
		{Source: files, Target: sandbox.UserDataDir},
		{Source: inst.Skills.Folder.Skills(), Target: sandbox.SkillsDir, ReadOnly: true},
		{Source: inst.Skills.Folder.Plugins(), Target: sandbox.PluginsDir, ReadOnly: true},
		{Source: inst.Dir.CodeAPI(), Target: sandbox.CodeAPIDir, ReadOnly: true},
		{Source: inst.Dir.Sock(), Target: sandbox.RunDir, ReadOnly: true},
	}
}

// detach ends this process's part in a sandbox.
func (inst *Instance) detach() error {
	fs := inst.FileSync
	if fs == nil {
		return nil
	}
	fs.Close(filesync.ErrSyncEnded)
	ctx, cancel := context.WithTimeout(context.Background(), detachTimeout)
	defer cancel()
	return fs.Remote.Detach(ctx, inst.ID)
}

// Show makes an instance's folder show a view.
func (inst *Instance) Show(view *skills.View) error {
	if inst.FileSync == nil {
		return inst.Skills.Folder.Show(inst.Thread.Tenant, view)
	}
	inst.FileSync.Showing.Lock() // who finds it shown finds it due
	defer inst.FileSync.Showing.Unlock()
	if inst.Skills.Folder.Shows(view) {
		return nil
	}
	err := inst.Skills.Folder.Show(inst.Thread.Tenant, view)
	inst.FileSync.Views.Add(sandbox.SkillsDir, sandbox.PluginsDir)
	inst.FileSync.Follow()
	return err
}

// detachTimeout bounds the end of a connection with a sandbox that has a disk of its own.
const detachTimeout = 10 * time.Second
