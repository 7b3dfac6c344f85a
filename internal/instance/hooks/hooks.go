package hooks

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/load"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/platform/deadline"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
	"github.com/skerry-sandbox/skerry/internal/skills"
	"github.com/skerry-sandbox/skerry/internal/skills/mounted"
	"github.com/skerry-sandbox/skerry/internal/store"
	"github.com/skerry-sandbox/skerry/internal/tools/bridge"
	"github.com/skerry-sandbox/skerry/internal/tools/wrappers"
	"github.com/skerry-sandbox/skerry/internal/workspace"
	"github.com/skerry-sandbox/skerry/internal/workspace/copies"
	"github.com/skerry-sandbox/skerry/internal/workspace/quota"
	"github.com/skerry-sandbox/skerry/internal/workspace/threads"
	"github.com/skerry-sandbox/skerry/internal/workspace/volumes"
)

const (
	// RemoveTimeout bounds the removal of a sandbox: an engine under load needs seconds to kill and unmount.
	RemoveTimeout = 30 * time.Second
	// adoptTimeout is how long the sandboxd of an adopted sandbox may take on a busy machine. It dials at
	// least once a second. It may have dialled a stopped server's socket just now, and waits there for the 5
	// s of a handshake.
	adoptTimeout = 15 * time.Second
	// inspectTimeout bounds the question how a sandbox died, which stands between an exec and its end.
	inspectTimeout = 2 * time.Second
	// aliveTimeout bounds the question whether a sandbox of the pool still answers.
	aliveTimeout = 10 * time.Second
)

// ErrNotFilled tells a caller to ask for a sandbox that is made for the thread.
var ErrNotFilled = sandbox.Errorf(sandbox.Unavailable, "a sandbox that waited could not be given the thread's files; try again")

// Warmer starts the interpreters that wait in an instance.
type Warmer interface {
	Warm(inst *instance.Instance, env map[string]string)
}

// Contexts are the interpreters that keep their variables between runs.
type Contexts interface {
	// Adopt takes over those of an adopted sandbox.
	Adopt(ctx context.Context, inst *instance.Instance, known []*sandboxv1.ContextStatus)
}

// Store says what sandbox a thread has, for the servers that do not run it.
type Store interface {
	PutSandbox(ctx context.Context, t sandbox.Thread, rec store.SandboxRecord) error
	DeleteSandbox(ctx context.Context, t sandbox.Thread, id sandbox.ID) error
}

// Parts are those of the server that hooks work with.
type Parts struct {
	Warmer   Warmer
	Contexts Contexts
	Owners   *ownership.Owners
	Threads  *threads.Threads
	Folders  *workspace.Folders
	Copies   *copies.Copies
	Volumes  *volumes.Volumes // nil when the driver keeps none
	Skills   *mounted.Skills
	Wrappers *wrappers.Wrappers
	Loads    *load.Watcher
}

// Options are all needed, but for what may be nil.
type Options struct {
	Parts
	Driver  driver.Driver
	Store   Store
	Views   *skills.Views
	Bridge  *bridge.Bridge
	Disk    *quota.Volume // nil: nothing bounds the folders of threads but the server's own counting
	RunRoot string        // of the run folders of sandboxes
	Install string        // id of the data folder
	Replica string
	Daemon  string // host path of skerry-sandboxd
	Log     *slog.Logger
	// Group counts what runs in the background, which ends with the context.
	Group *sync.WaitGroup
	// Passed is called behind each hook, up or down; nil: nothing is.
	Passed func(inst *instance.Instance, hook string, up bool)
}

// Hooks bring instances up, and take them down.
type Hooks struct {
	list      []hook
	copies    *copies.Copies
	passed    func(inst *instance.Instance, hook string, up bool)
	workspace *workspaceHook
	sockets   *socketsHook
	sandbox   *sandboxHook
	specs     specs
	publisher publisher
}

// hook is one step up.
type hook interface {
	name() string
	up(ctx context.Context, s *Start) error
}

// downer is a hook that takes away what its up has made, or began to make.
type downer interface {
	down(ctx context.Context, e *end)
}

// New returns the hooks of a server.
func New(ctx context.Context, o Options) *Hooks {
	pub := publisher{store: o.Store, replica: o.Replica}
	first := firstWrappers{ctx: ctx, wrappers: o.Wrappers, group: o.Group}
	specs := specs{folders: o.Folders, install: o.Install, replica: o.Replica, daemon: o.Daemon}
	h := &Hooks{
		copies: o.Copies, passed: o.Passed, specs: specs, publisher: pub,
		workspace: &workspaceHook{
			threads: o.Threads, folders: o.Folders, copies: o.Copies, disk: o.Disk, runRoot: o.RunRoot, group: o.Group, log: o.Log,
		},
		sockets: &socketsHook{ctx: ctx, driver: o.Driver, bridge: o.Bridge, wrappers: first, log: o.Log},
		sandbox: &sandboxHook{
			driver: o.Driver, owners: o.Owners, folders: o.Folders, copies: o.Copies, volumes: o.Volumes, loads: o.Loads,
			specs: specs, runRoot: o.RunRoot, log: o.Log,
		},
	}
	if h.passed == nil {
		h.passed = func(*instance.Instance, string, bool) {}
	}
	h.list = []hook{
		&ownershipHook{owners: o.Owners, store: o.Store, log: o.Log}, h.workspace,
		&folderHook{views: o.Views, skills: o.Skills, group: o.Group, log: o.Log}, h.sockets, h.sandbox,
		&skillsHook{skills: o.Skills, wrappers: first}, &daemonHook{contexts: o.Contexts, copies: o.Copies, log: o.Log},
		&runningHook{warmer: o.Warmer, owners: o.Owners, loads: o.Loads, publisher: pub, group: o.Group, log: o.Log},
	}
	return h
}

// Way is how an instance comes up.
type Way int

// The ways.
const (
	Cold    Way = iota // it is made for the thread
	Pooled             // it is made for the pool: no thread has it
	Claimed            // it waited in the pool: Instance.Pooled
	Adopted            // another server made it
)

// Start is how one instance comes up.
type Start struct {
	Way      Way
	Instance *instance.Instance
	Caller   sandbox.Caller
	Queued   time.Duration // it waited for its place
	// MakeWay waits until the sandboxes of the pool leave room for this one; nil unless Cold.
	MakeWay func(ctx context.Context) error
	Entry   sandbox.Instance // Adopted: the sandbox, as the driver has it

	began, made time.Time
	moved       bool // Claimed: the folder that waited is the thread's
	// What goes on beside the hooks. Each channel has room for its end.
	synced, skills, tools chan error
}

// Up starts an instance. When it fails, Down removes what is there by then.
func (h *Hooks) Up(ctx context.Context, s *Start) error {
	s.began = time.Now()
	for _, hook := range h.list {
		if err := hook.up(ctx, s); err != nil {
			s.settle() // they write into the instance's folder, which goes now
			return err
		}
		h.passed(s.Instance, hook.name(), true)
	}
	return nil
}

// settle waits for what goes on beside the hooks.
func (s *Start) settle() {
	for _, c := range []*chan error{&s.synced, &s.skills, &s.tools} {
		if *c != nil {
			<-*c //nolint:errcheck // the start failed for another reason
			*c = nil
		}
	}
}

// end is how one instance is taken down.
type end struct {
	inst   *instance.Instance
	leave  bool  // the sandbox is another server's, or will be: all that it needs stays
	held   bool  // the caller holds the thread, and goes on to
	failed error // of the removal of the sandbox
}

// Down takes all of an instance away whose ending is set. What the driver cannot remove now keeps its owner record: nothing
// begins for the thread before it is gone. A sandbox that another server has adopted is left to it.
func (h *Hooks) Down(ctx context.Context, inst *instance.Instance) {
	h.down(ctx, &end{inst: inst})
}

// Leave takes an instance out of this process and leaves all of it in place, for another server.
func (h *Hooks) Leave(ctx context.Context, inst *instance.Instance) {
	h.down(ctx, &end{inst: inst, leave: true})
}

// Undo takes down an instance of a thread that the caller holds, and goes on to: its sandbox could not be adopted, or is to be
// another server's. leave leaves the sandbox in place.
func (h *Hooks) Undo(ctx context.Context, inst *instance.Instance, leave bool) error {
	e := &end{inst: inst, leave: leave, held: true}
	h.down(ctx, e)
	return e.failed
}

func (h *Hooks) down(ctx context.Context, e *end) {
	if !e.leave && !e.held && !e.inst.Waits() { // of a sandbox that was not adopted the server before it had the last
		h.copies.Last(ctx, e.inst)
	}
	ctx, cancel := deadline.Detached(ctx, RemoveTimeout)
	defer cancel()
	for i := len(h.list) - 1; i >= 0; i-- {
		if d, ok := h.list[i].(downer); ok {
			d.down(ctx, e)
		}
		h.passed(e.inst, h.list[i].name(), false)
	}
}

// OpenBridge makes the socket for tool calls, which knows the thread.
func (h *Hooks) OpenBridge(inst *instance.Instance) error { return h.sockets.openBridge(inst) }

// PassWorkspace moves the folder that waited with a sandbox. moved is false when the thread has files of its own,
// which the sandbox can be filled with; instance.ErrGivenUp: it cannot.
func (h *Hooks) PassWorkspace(ctx context.Context, t sandbox.Thread, x *instance.Pooled) (moved bool, err error) {
	return h.workspace.pass(ctx, t, x)
}

// AttachClaimed makes a sandbox with a disk of its own the thread's: what it writes goes into the thread's folder.
// instance.ErrGivenUp: the sandbox cannot be reached.
func (h *Hooks) AttachClaimed(ctx context.Context, inst *instance.Instance) error {
	return h.sandbox.attachClaimed(ctx, inst)
}

// Fill copies the thread's files into a sandbox of the pool, and notes that they are there. The API changes none of
// them meanwhile.
func (h *Hooks) Fill(ctx context.Context, inst *instance.Instance) error {
	return h.sandbox.fill(ctx, inst)
}

// ThreadSpec is that of the sandbox of a thread.
func (h *Hooks) ThreadSpec(inst *instance.Instance) sandbox.Spec { return h.specs.ofThread(inst) }

// Publish says in the store what sandbox the thread has, for the servers that do not run it.
func (h *Hooks) Publish(ctx context.Context, inst *instance.Instance) error {
	return h.publisher.publish(ctx, inst)
}

// logOf returns a log that names the thread and the sandbox.
func logOf(log *slog.Logger, inst *instance.Instance) *slog.Logger {
	return log.With("thread", inst.Thread.String(), "sandbox", string(inst.ID))
}

// ownershipHook holds the thread. The caller that found a sandbox to adopt holds it already.
type ownershipHook struct {
	owners *ownership.Owners
	store  Store
	log    *slog.Logger
}

func (h *ownershipHook) name() string { return "ownership" }

func (h *ownershipHook) up(ctx context.Context, s *Start) error {
	if s.Way == Pooled || s.Way == Adopted {
		return nil
	}
	if main := s.Instance.Main; main != nil { // which holds the thread for as long as this one lives
		s.Instance.SetOwnership(main.Owned())
		return nil
	}
	own, err := h.owners.Acquire(ctx, s.Instance.Thread, "")
	if err != nil {
		return ownership.NotHere(err)
	}
	s.Instance.SetOwnership(own)
	if err := h.owners.SetSandbox(ctx, own, s.Instance.ID); err != nil {
		return ownership.NotHere(err)
	}
	return nil
}

func (h *ownershipHook) down(ctx context.Context, e *end) {
	if e.inst.Waits() || e.inst.Main != nil {
		return
	}
	if !e.leave && (e.failed == nil || !e.held) {
		if err := h.store.DeleteSandbox(ctx, e.inst.Thread, e.inst.ID); err != nil {
			logOf(h.log, e.inst).Warn("sandbox record not deleted", "error", err)
		}
	}
	own := e.inst.Owned()
	switch {
	case own == nil || e.held:
	case e.leave:
		h.owners.Forget(own)
	default:
		if e.failed != nil {
			own.Unremoved.Store(true)
			h.owners.LeftBehind.Store(true)
		}
		h.owners.Release(own)
	}
}

// runningHook makes known that an instance runs.
type runningHook struct {
	warmer    Warmer
	owners    *ownership.Owners
	loads     *load.Watcher
	publisher publisher
	group     *sync.WaitGroup
	log       *slog.Logger
}

func (h *runningHook) name() string { return "running" }

func (h *runningHook) up(ctx context.Context, s *Start) error {
	inst := s.Instance
	if s.Way == Pooled {
		h.warmer.Warm(inst, nil)
		return nil
	}
	if s.Way == Adopted {
		if err := h.publisher.publish(ctx, inst); err != nil {
			return err
		}
		h.loads.Watch(inst) // and weigh it: the server before may have died while it counted little
		return nil
	}
	if s.synced != nil {
		err := <-s.synced
		s.synced = nil
		if err != nil {
			return workspace.NoRoom(err, "the thread's files cannot be made")
		}
	}
	if !h.owners.Confirm(inst.Owned()) { // this server was stopped meanwhile
		return ownership.NotHere(&ownership.Elsewhere{})
	}
	if inst.Main != nil && inst.Main.Ending() != "" {
		return sandbox.Errorf(sandbox.SandboxLost, "the thread's own sandbox ended just now; try again")
	}
	inst.MarkRunning(sandbox.Timings{Queue: millis(s.Queued), Create: millis(s.made.Sub(s.began)), Ready: millis(time.Since(s.made))})
	tools := s.tools
	s.tools = nil
	h.group.Go(func() {
		if err := <-tools; err != nil {
			h.log.Warn("wrappers not written; they are when code runs", "thread", inst.Thread.String(), "error", err)
		}
	})
	if inst.Main != nil { // no program waits in it, and no other server asks for it
		return nil
	}
	h.warmer.Warm(inst, inst.Saved.Env())
	return h.publisher.publish(ctx, inst)
}

// publisher says in the store what sandbox a thread has.
type publisher struct {
	store   Store
	replica string
}

func (p publisher) publish(ctx context.Context, inst *instance.Instance) error {
	return p.store.PutSandbox(ctx, inst.Thread, store.SandboxRecord{ID: inst.ID, Info: inst.Info(), Replica: p.replica})
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// firstWrappers writes the wrappers of an instance that starts.
type firstWrappers struct {
	ctx      context.Context // ends with the server
	wrappers *wrappers.Wrappers
	group    *sync.WaitGroup
}

// write begins to write. That takes as long as the slowest MCP server; nothing need wait for it but the end of a start
// that failed.
func (f firstWrappers) write(s *Start) {
	s.tools = make(chan error, 1)
	tools := s.tools
	f.group.Go(func() { tools <- f.wrappers.Refresh(f.ctx, s.Caller, s.Instance) })
}

// skillsHook waits until the view shows what the thread has.
type skillsHook struct {
	skills   *mounted.Skills
	wrappers firstWrappers
}

func (h *skillsHook) name() string { return "skills" }

func (h *skillsHook) up(ctx context.Context, s *Start) error {
	switch s.Way {
	case Pooled: // its folder hook has shown what most users see
		return nil
	case Cold:
		return s.shown()
	case Claimed:
		h.wrappers.write(s)
	}
	err := h.skills.First(ctx, s.Instance)
	s.made = time.Now()
	return err
}

// shown waits for the skills of a cold start, once.
func (s *Start) shown() error {
	if s.skills == nil {
		return nil
	}
	err := <-s.skills
	s.skills = nil
	return err
}
