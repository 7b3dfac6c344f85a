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

// Instance is the sandbox of one thread on this server, from the first call that asks for it until its last part is
// removed. The fields above mu do not change once Ready is closed, except those that name another mutex.
type Instance struct {
	Thread    sandbox.Thread
	Template  Template
	ID        sandbox.ID
	Dir       RunDir
	UID       int
	Conn      Conn
	Ready     chan struct{} // closed when the start has ended, well or with err
	Err       error
	Gone      chan struct{} // closed when the instance is out of the map
	ownership atomic.Pointer[ownership.Ownership]
	Seat      Seat           // what it counts against
	Asked     time.Time      // when its first caller did; zero: it was adopted
	Pooled    *Pooled        // it was this one in the pool; nil: it was made for the thread, or adopted
	FileSync  *filesync.Sync // nil: the sandbox sees this server's disk

	PauseMu sync.Mutex // serialises pause and resume

	mu     sync.Mutex
	info   sandbox.Info
	ending sandbox.Status // why its execs end: set before the sandbox is removed, "" while it lives
	use    Usage
	unused bool // its first exec is still to come

	Saved     Saved
	Turn      Turn
	Load      load
	Redaction redaction
	Tools     ToolsView
	Narrow    narrowed
	Skills    SkillsView
}

// Usage is what runs in an instance, and when something last did.
type Usage struct {
	Running    int // execs
	Waits      int // of them, those whose calls wait for people
	LastActive time.Time
	OverAge    bool // it is put away when nothing runs in it
}

// narrowed is what the instance's thread was narrowed to, when that is known.
type narrowed struct {
	Mu    sync.Mutex
	Only  []string
	Known bool
}

// Info returns what callers are told about the sandbox.
func (inst *Instance) Info() sandbox.Info {
	inst.mu.Lock()
	defer inst.mu.Unlock()
	return inst.info
}

// IsReady says whether the start has ended well.
func (inst *Instance) IsReady() bool {
	select {
	case <-inst.Ready:
		return inst.Err == nil
	default:
		return false
	}
}

// End says how the execs of an instance that is going away end; the first word counts.
func (inst *Instance) End(s sandbox.Status) {
	inst.mu.Lock()
	defer inst.mu.Unlock()
	if inst.endsAs() == "" {
		inst.ending = s
	}
}

// Ending says how the instance's execs end, "" while it lives.
func (inst *Instance) Ending() sandbox.Status {
	inst.mu.Lock()
	defer inst.mu.Unlock()
	return inst.endsAs()
}

// endsAs is Ending for callers that hold mu.
func (inst *Instance) endsAs() sandbox.Status {
	if inst.ending == "" && inst.Turn.gaveUp() {
		return sandbox.StatusLost
	}
	return inst.ending
}

// Close closes this process's side of the instance and leaves the sandbox alone.
func (inst *Instance) Close() error {
	detached := inst.detach()
	return errors.Join(detached, inst.Conn.Close())
}

// New returns an instance that has its place. info says what it is.
func New(t sandbox.Thread, tmpl Template, info sandbox.Info) *Instance {
	return &Instance{
		Thread: t, Template: tmpl, ID: info.ID, info: info, Ready: make(chan struct{}), Gone: make(chan struct{}),
		use: Usage{LastActive: time.Now()}, Turn: Turn{placed: true},
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

// Owned returns the ownership of the instance's thread, nil while it has none. Others may ask for it while the
// instance starts.
func (inst *Instance) Owned() *ownership.Ownership { return inst.ownership.Load() }

// SetOwnership says whose the thread is.
func (inst *Instance) SetOwnership(own *ownership.Ownership) { inst.ownership.Store(own) }

// BeginStop takes an instance that is ready out of use if ok agrees. ok is asked in the same step, so that no exec comes
// in between. The instance's execs end as killed.
func (inst *Instance) BeginStop(ok func(Usage) bool) bool {
	if !inst.IsReady() {
		return false
	}
	inst.mu.Lock()
	defer inst.mu.Unlock()
	if inst.endsAs() != "" || !ok(inst.use) {
		return false
	}
	inst.ending = sandbox.StatusKilled
	inst.info.State = sandbox.Stopping
	return true
}

// LastUse returns when the instance was last active.
func (inst *Instance) LastUse() time.Time {
	inst.mu.Lock()
	defer inst.mu.Unlock()
	return inst.use.LastActive
}

// BeginPause shuts the door for execs. done: it is paused already.
func (inst *Instance) BeginPause() (done bool, err error) {
	inst.mu.Lock()
	defer inst.mu.Unlock()
	switch {
	case inst.endsAs() != "":
		return false, sandbox.Errorf(sandbox.SandboxLost, "the sandbox ended just now")
	case inst.info.State == sandbox.Paused:
		return true, nil
	case inst.use.Running > 0:
		return false, sandbox.Errorf(sandbox.Conflict, "%d execs run in the sandbox, and their deadlines would go on: wait for them, or kill them", inst.use.Running)
	}
	inst.info.State = sandbox.Paused
	return false, nil
}

// ChangeState changes the state of an instance that is in another one.
func (inst *Instance) ChangeState(from, to sandbox.State) {
	inst.mu.Lock()
	defer inst.mu.Unlock()
	if inst.info.State == from {
		inst.info.State = to
	}
}

// MarkRunning makes the instance run.
func (inst *Instance) MarkRunning(took sandbox.Timings) {
	inst.mu.Lock()
	defer inst.mu.Unlock()
	inst.info.State = sandbox.Running
	inst.info.Timings = took
}

// StopAs begins to stop the instance, whatever runs in it, and reports whether this is the first to do so.
func (inst *Instance) StopAs(status sandbox.Status) bool {
	inst.mu.Lock()
	defer inst.mu.Unlock()
	if inst.endsAs() != "" {
		return false
	}
	inst.ending = status
	inst.info.State = sandbox.Stopping
	return true
}

// StopIdle takes the instance out of use, without ending its sandbox, if nothing runs in it.
func (inst *Instance) StopIdle() bool {
	inst.mu.Lock()
	defer inst.mu.Unlock()
	if inst.endsAs() != "" || inst.use.Running > 0 {
		return false
	}
	inst.ending = sandbox.StatusLost
	return true
}

// MarkOverAge has the instance put away as soon as nothing runs in it.
func (inst *Instance) MarkOverAge() {
	inst.mu.Lock()
	defer inst.mu.Unlock()
	inst.use.OverAge = true
}

// MarkActive notes a use.
func (inst *Instance) MarkActive() {
	inst.mu.Lock()
	defer inst.mu.Unlock()
	inst.use.LastActive = time.Now()
}

// Busy reports whether an exec runs in the instance.
func (inst *Instance) Busy() bool {
	inst.mu.Lock()
	defer inst.mu.Unlock()
	return inst.use.Running > 0
}

// FirstUse reports whether no exec asked before.
func (inst *Instance) FirstUse() bool {
	inst.mu.Lock()
	defer inst.mu.Unlock()
	first := inst.unused
	inst.unused = false
	return first
}

// Enter counts an exec in and returns the environment that all have; leave counts it out. An instance with
// execs in it is never idle.
func (inst *Instance) Enter() (map[string]string, error) {
	inst.mu.Lock()
	defer inst.mu.Unlock()
	if inst.endsAs() != "" {
		return nil, sandbox.Errorf(sandbox.SandboxLost, "the sandbox ended just now; try again")
	}
	if inst.info.State == sandbox.Paused {
		return nil, ErrPaused
	}
	if inst.use.Running >= maxRunning {
		return nil, sandbox.Errorf(sandbox.CapacityExceeded, "the sandbox runs %d execs, its most", maxRunning)
	}
	inst.use.Running++
	return inst.Saved.Env(), nil
}

// Leave counts an exec out.
func (inst *Instance) Leave() {
	inst.mu.Lock()
	defer inst.mu.Unlock()
	inst.use.Running--
	inst.use.LastActive = time.Now()
}

// Waiting counts the execs of an instance whose calls wait for people.
func (inst *Instance) Waiting(n int) {
	inst.mu.Lock()
	defer inst.mu.Unlock()
	inst.use.Waits += n
}

// OnVolume reports whether the sandbox writes the thread's files on the user's volume itself.
func (inst *Instance) OnVolume() bool { return inst.FileSync != nil && inst.FileSync.OnVolume }

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
		return inst.Skills.Folder.Show(view)
	}
	inst.FileSync.Showing.Lock() // who finds it shown finds it due
	defer inst.FileSync.Showing.Unlock()
	if inst.Skills.Folder.Shows(view) {
		return nil
	}
	err := inst.Skills.Folder.Show(view)
	inst.FileSync.Views.Add(sandbox.SkillsDir, sandbox.PluginsDir)
	inst.FileSync.Follow()
	return err
}

// ErrPaused is the error of an exec that comes while the sandbox is being paused.
var ErrPaused = sandbox.Errorf(sandbox.Conflict, "the sandbox was paused just now; try again")

// maxRunning is how many execs run at once in one sandbox.
const maxRunning = 256

// detachTimeout bounds the end of a connection with a sandbox that has a disk of its own.
const detachTimeout = 10 * time.Second

// Backdate makes the instance older than it is, and longer unused: tests of lifetimes do not wait.
func (inst *Instance) Backdate(d time.Duration) {
	inst.mu.Lock()
	defer inst.mu.Unlock()
	inst.use.LastActive = inst.use.LastActive.Add(-d)
	inst.info.CreatedAt = inst.info.CreatedAt.Add(-d)
}
