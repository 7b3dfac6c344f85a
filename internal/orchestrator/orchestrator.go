package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/execution"
	"github.com/skerry-sandbox/skerry/internal/execution/contexts"
	"github.com/skerry-sandbox/skerry/internal/execution/rootfs"
	"github.com/skerry-sandbox/skerry/internal/execution/run"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/capacity"
	"github.com/skerry-sandbox/skerry/internal/instance/hooks"
	"github.com/skerry-sandbox/skerry/internal/instance/lifecycle"
	"github.com/skerry-sandbox/skerry/internal/instance/load"
	"github.com/skerry-sandbox/skerry/internal/instance/pool"
	"github.com/skerry-sandbox/skerry/internal/instance/savedspec"
	"github.com/skerry-sandbox/skerry/internal/instance/start"
	"github.com/skerry-sandbox/skerry/internal/instance/usage"
	"github.com/skerry-sandbox/skerry/internal/limits"
	"github.com/skerry-sandbox/skerry/internal/observe/metrics"
	"github.com/skerry-sandbox/skerry/internal/observe/tracing"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/ownership/drain"
	"github.com/skerry-sandbox/skerry/internal/ownership/ownerrecord"
	"github.com/skerry-sandbox/skerry/internal/ownership/placement"
	"github.com/skerry-sandbox/skerry/internal/ownership/recovery"
	"github.com/skerry-sandbox/skerry/internal/prompt"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills"
	"github.com/skerry-sandbox/skerry/internal/skills/mounted"
	"github.com/skerry-sandbox/skerry/internal/skills/upstream"
	"github.com/skerry-sandbox/skerry/internal/store"
	"github.com/skerry-sandbox/skerry/internal/threadevents"
	"github.com/skerry-sandbox/skerry/internal/tools/activation"
	"github.com/skerry-sandbox/skerry/internal/tools/bridge"
	"github.com/skerry-sandbox/skerry/internal/tools/call"
	"github.com/skerry-sandbox/skerry/internal/tools/channels"
	"github.com/skerry-sandbox/skerry/internal/tools/codeapi"
	"github.com/skerry-sandbox/skerry/internal/tools/wrappers"
	"github.com/skerry-sandbox/skerry/internal/workspace"
	"github.com/skerry-sandbox/skerry/internal/workspace/copies"
	"github.com/skerry-sandbox/skerry/internal/workspace/files"
	"github.com/skerry-sandbox/skerry/internal/workspace/quota"
	"github.com/skerry-sandbox/skerry/internal/workspace/snapshot"
	"github.com/skerry-sandbox/skerry/internal/workspace/threads"
	"github.com/skerry-sandbox/skerry/internal/workspace/volumes"
)

// toolHub is what the orchestrator needs of the guard that stands before the hub.
type toolHub interface {
	call.Hub
	run.Hub
	// Version changes whenever a set of tools may have changed.
	Version() uint64
	// Announce moves Version on: who may use which tools has changed.
	Announce()
	// ForgetThread ends what is kept for a thread that no longer exists.
	ForgetThread(t sandbox.Thread)
	channels.Guard
}

// Options are the parts that an Orchestrator works with. A field is needed unless its comment says what nil means.
type Options struct {
	Driver driver.Driver
	Store  *store.Store
	Audit  *audit.Log
	Skills *skills.Library
	Views  *skills.Views
	// Switches say which skills are on; the library reads them, too.
	Switches  mounted.Switches
	Templates map[string]instance.Template
	Default   string // name of the default template
	Daemon    string // host path of skerry-sandboxd
	Install   string // id of the data folder
	// Limits are those of tenants, users and keys; nil: there are none, and nothing is counted.
	Limits *limits.Gate
	Instances
	Lifecycle lifecycle.Bounds
	Metrics   *metrics.Metrics
	Tracer    *tracing.Tracer // nil: nothing is traced
	StartTime time.Duration   // bound of one start
	Log       *slog.Logger
	Tools     Tools
	Storage   Storage
	Replicas  Replicas
}

// Instances are those of this server.
type Instances struct {
	MaxInstances int
	// Live are the instances, and Execs what runs in them. Parts that the Orchestrator is built on may have them; nil: none
	// has.
	Live  *instance.Map
	Execs *execution.Registry
	// Feeds tell those who follow threads; nil: new ones.
	Feeds *threadevents.Feeds
	quiet bool // nothing is done again and again: a test does it
}

// Replicas are the other servers of the data folder.
type Replicas struct {
	// Peers are the other servers of the data folder; nil: there are none, and never will be.
	Peers ownership.Peers
	// SettleReplicas calls settle for each replica that ended and was not settled yet, one at a time among all servers;
	// nil: there is none.
	SettleReplicas func(settle func(ownership.ExitedReplica) error) error
	// OpenAudit opens the audit log of a replica that ended, to be closed by the caller.
	OpenAudit func(slot int) (*audit.Log, error)
	// SweepReplica removes what else a replica that ended left running.
	SweepReplica func(ctx context.Context, replica string) error
}

// Storage is where files of threads lie, and what else is kept on disk.
type Storage struct {
	DataDir string
	// Sealer encrypts the environments that are kept; nil: they are kept as they are. UserEnvBytes bounds
	// those of one user together; 0: nothing does.
	Sealer       savedspec.Sealer
	UserEnvBytes int64
	// Snapshots keep the files of threads elsewhere, before a change is acknowledged, or SnapshotDelay later when that is
	// not 0; nil: they are on this disk alone.
	Snapshots     *snapshot.Snapshots
	SnapshotDelay time.Duration
	// OnVolumes: files of threads lie on volumes of their users', which the Driver, a driver.Volumes, knows.
	OnVolumes bool
	// Folders are those of threads; nil: New makes them with the Disk.
	Folders *workspace.Folders
	// Disk makes the folders of threads and bounds them. nil: nothing but this server's own counting does.
	Disk *quota.Volume
}

// Tools are what code and agents reach.
type Tools struct {
	// Secrets returns values by name; nil: there are none.
	Secrets run.SecretValues
	Hub     toolHub
	// Channels know the skills whose tools programs provide, and are before Hub; nil: there are none.
	Channels *channels.Channels
	Bridge   *bridge.Bridge
	CodeAPI  *codeapi.Store
	// ApprovalWait is how long, altogether, an exec's deadline is held while calls of it wait for people.
	ApprovalWait time.Duration
	// ForgetApprovals takes back what a thread that no longer exists was given; nil: nothing was.
	ForgetApprovals func(ctx context.Context, t sandbox.Thread) error
	// CodeSettings are the settings of a tenant.
	CodeSettings func(tenant string) sandbox.CodeSettings
	// Commands returns the commands that a user's plugins add to prompts.
	Commands func(o sandbox.Owner) ([]prompt.Command, error)
}

// Orchestrator is the sandboxes of this server, with what callers do with them. Make one with New.
type Orchestrator struct {
	// Sandboxes are those of threads, for callers.
	Sandboxes Sandboxes
	// Starts bring them up, and Lifecycle pauses and hibernates them.
	Starts    *start.Starts
	Lifecycle *lifecycle.Lifecycle
	// Shutdown ends this server's work.
	Shutdown *drain.Drain
	// Placement says which server answers a request.
	Placement *placement.Placement
	// Threads are those of callers.
	Threads *Threads
	// Files are those of threads.
	Files *files.Files
	// Roots are the files that only sandboxes have.
	Roots *rootfs.Roots
	// Skills are those of users and threads.
	Skills *mounted.Skills
	// Execs are the execs of threads, for callers who look at them, follow them, and steer them.
	Execs *execution.Execs
	// Runs starts execs.
	Runs *run.Runner
	// Contexts are the interpreters that keep their variables between runs.
	Contexts *contexts.Contexts
	// Probes run in sandboxes of templates.
	Probes *Probes
	Agents

	o    Options
	ctx  context.Context // ends with Close; owns every goroutine
	stop context.CancelFunc
	wg   *sync.WaitGroup
	parts
}

// Agents is what the agent of a thread is told, and what it may call.
type Agents struct {
	// Prompts are the sections of prompts.
	Prompts *Prompts
	// Calls are the tool calls of agents.
	Calls *call.Calls
	// ActiveTools are those that agents activated.
	ActiveTools *activation.Activations
	// ThreadSkills are the skills of threads, with those of their MCP servers, and their channels.
	ThreadSkills *channels.Skills
	// Events are those of threads, for callers who follow them.
	Events *threadevents.Events
}

// Sandboxes is what callers do with the sandboxes of their threads: acquire, pause, resume, hibernate, release.
type Sandboxes struct {
	*start.Starts
	*lifecycle.Lifecycle
	*Threads
}

// parts are what the exported parts of an Orchestrator share.
type parts struct {
	registries
	runRoot    string // has the run folders of sandboxes
	folders    *workspace.Folders
	threads    *threads.Threads
	wrappers   *wrappers.Wrappers
	peers      ownership.Peers
	owners     *ownership.Owners
	renewal    *ownership.Renewal
	takeover   *ownership.Takeover
	volumes    *volumes.Volumes // nil when the driver keeps none
	copies     *copies.Copies
	loads      *load.Watcher
	hooks      *hooks.Hooks
	pool       *pool.Pool
	teardown   *lifecycle.Teardown
	recovery   *recovery.Recovery
	reaper     *recovery.Reaper
	settlement *recovery.Settlement
	usage      *usage.Writer
}

// registries are what this server knows of its instances and of what runs in them. They call no other part.
type registries struct {
	live        *instance.Map
	execs       *execution.Registry
	contexts    *contexts.Registry
	places      *capacity.Places
	retirements *instance.Retirements
	Specs       *savedspec.Specs
}

// New adopts what a former server of the same data folder left running, and removes what it cannot adopt. It
// ends the execs that the former server left open, and starts to watch.
func New(ctx context.Context, o Options) (*Orchestrator, error) {
	caps, err := o.Driver.Capabilities(ctx)
	if err != nil {
		return nil, fmt.Errorf("driver: %w", err)
	}
	own, stop := context.WithCancel(context.Background())
	if o.Live == nil {
		o.Live = &instance.Map{}
	}
	if o.Feeds == nil {
		o.Feeds = &threadevents.Feeds{}
	}
	if o.Execs == nil {
		o.Execs = execution.NewRegistry(o.Feeds)
	}
	if o.Storage.Folders == nil {
		o.Storage.Folders = workspace.New(workspace.Options{DataDir: o.Storage.DataDir, Disk: o.Storage.Disk, UIDs: o.Store, Log: o.Log})
	}
	r := &Orchestrator{o: o, ctx: own, stop: stop, wg: new(sync.WaitGroup)}
	if err := r.build(caps); err != nil {
		stop()
		return nil, err
	}
	events, err := o.Driver.Watch(own)
	if err != nil {
		stop()
		return nil, fmt.Errorf("watch sandboxes: %w", err)
	}
	r.wg.Go(r.teardown.Serve)
	if !o.quiet {
		r.wg.Go(r.renewal.Run) // recovering may take longer than a lease lasts
	}
	if err := r.recovery.Recover(ctx); err != nil {
		stop()
		r.wg.Wait()
		return nil, err
	}
	if o.quiet {
		return r, nil
	}
	for _, loop := range []func(){
		func() { r.teardown.Watch(events) }, r.takeover.Watch, r.reaper.Watch, r.Lifecycle.Watch, r.wrappers.Push, r.Skills.Push,
		r.Skills.PrepareSpares, func() { r.folders.Sweep(own) }, func() { r.pool.Run(r.Shutdown) }, r.threads.SavePending,
		func() { r.Events.Watch(own) },
	} {
		r.wg.Go(loop)
	}
	return r, nil
}

// build makes the parts, those first that others are made of. Only the owners call parts that are made after them: see
// ownedSandboxes.
func (r *Orchestrator) build(caps driver.Capabilities) error {
	o := r.o
	r.runRoot, r.live, r.execs = filepath.Join(o.Storage.DataDir, "run"), o.Live, o.Execs
	for _, dir := range []string{r.runRoot, filepath.Join(o.Storage.DataDir, "tenants")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("data folder: %w", err)
		}
	}
	r.Specs = savedspec.New(savedspec.Options{DataDir: o.Storage.DataDir, Sealer: o.Storage.Sealer, UserBytes: o.Storage.UserEnvBytes, Log: o.Log})
	r.folders = o.Storage.Folders
	r.places = capacity.New(capacity.Limits{Total: o.MaxInstances, PerTenant: o.Lifecycle.PerTenant, Queue: o.Lifecycle.Queue})
	r.contexts = contexts.NewRegistry(o.Audit, o.Log)
	r.retirements = instance.NewRetirements()
	if err := r.buildOwnership(); err != nil {
		return err
	}
	r.buildWorkspace()
	r.buildHooks()
	r.buildInstances(caps)
	r.buildRuns(caps)
	r.buildUseCases()
	return nil
}

func (r *Orchestrator) buildOwnership() error {
	o := r.o
	if r.peers = o.Replicas.Peers; r.peers == nil {
		r.peers = ownership.Alone(o.Install + "-" + string(sandbox.NewID())) // not the one of the process before
	}
	book, err := ownerrecord.Open(filepath.Join(r.runRoot, "claims"))
	if err != nil {
		return err
	}
	r.owners = ownership.New(r.ctx, ownership.Options{Store: o.Store, Book: book, Peers: r.peers, Sandboxes: ownedSandboxes{r}, Log: o.Log, Group: r.wg})
	r.settlement = recovery.NewSettlement(r.execs, o.Replicas.OpenAudit, o.Replicas.SweepReplica)
	r.takeover = ownership.NewTakeover(r.owners, r.settlement, o.Replicas.SettleReplicas)
	return nil
}

// buildWorkspace makes the parts that have the files of threads, and what sandboxes show of skills and tools.
func (r *Orchestrator) buildWorkspace() {
	o := r.o
	virtuals := skills.NewVirtuals(o.Skills)
	r.threads = threads.New(r.ctx, threads.Options{
		Folders: r.folders, Disk: o.Storage.Disk, Specs: r.Specs, Live: r.live, Retirements: r.retirements,
		Forgetter: forgetter{hub: o.Tools.Hub, virtuals: virtuals, contexts: r.contexts, approvals: o.Tools.ForgetApprovals, feeds: o.Feeds},
		Store:     o.Store, Snapshots: o.Storage.Snapshots, Delay: o.Storage.SnapshotDelay, Log: o.Log,
	})
	if onVolumes, ok := o.Driver.(volumes.Driver); ok {
		r.volumes = volumes.New(r.ctx, volumes.Options{
			DataDir: o.Storage.DataDir, Driver: onVolumes, Live: r.live, Folders: r.folders, Owners: r.owners, Peers: r.peers,
			Specs: r.Specs, Templates: o.Templates, Default: o.Default, Daemon: o.Daemon, Install: o.Install, StartTime: o.StartTime, Log: o.Log, Group: r.wg,
		})
	}
	remote, _ := o.Driver.(driver.Remote)
	r.copies = copies.New(r.ctx, copies.Options{
		Remote: remote, Volumes: r.volumes, Live: r.live, Owners: r.owners, Retirements: r.retirements, Contexts: r.contexts, Folders: r.folders,
		Spool: r.runRoot, Log: o.Log,
	})
	r.Skills = mounted.New(r.ctx, mounted.Options{
		Library: o.Skills, Views: o.Views, Switches: o.Switches, Virtuals: virtuals, Live: r.live, Copies: r.copies, Threads: r.threads,
		Store: o.Store, Audit: o.Audit, Log: o.Log,
	})
	r.wrappers = wrappers.New(r.ctx, wrappers.Options{Hub: o.Tools.Hub, Store: o.Tools.CodeAPI, All: r.live.All, Log: o.Log})
}

// buildHooks makes the parts that bring sandboxes up and take them down.
func (r *Orchestrator) buildHooks() {
	o := r.o
	r.loads = load.New(r.ctx, load.Options{
		Driver: o.Driver, Execs: r.execs, Contexts: r.contexts, Sandboxes: r.retirements, Limits: o.Limits, Log: o.Log, Group: r.wg,
	})
	r.hooks = hooks.New(r.ctx, hooks.Options{
		Parts: hooks.Parts{
			Warmer: run.NewWarmer(r.ctx, r.wg, o.Log), Contexts: r.contexts, Owners: r.owners, Threads: r.threads, Folders: r.folders,
			Copies: r.copies, Volumes: r.volumes, Skills: r.Skills, Wrappers: r.wrappers, Loads: r.loads,
		},
		Driver: o.Driver, Store: o.Store, Views: o.Views, Bridge: o.Tools.Bridge, Disk: o.Storage.Disk, RunRoot: r.runRoot, Install: o.Install, Replica: r.peers.ID(),
		Daemon: o.Daemon, Log: o.Log, Group: r.wg, Passed: o.Lifecycle.PassedHook,
	})
	r.reaper = recovery.NewReaper(r.ctx, recovery.ReaperOptions{
		Live: r.live, Execs: r.execs, Contexts: r.contexts, Owners: r.owners, Peers: r.peers, Volumes: r.volumes, Driver: o.Driver, Audit: o.Audit, Metrics: o.Metrics,
		StartTime: o.StartTime, DataDir: o.Storage.DataDir, RunRoot: r.runRoot, Install: o.Install, Log: o.Log,
	})
}

// buildInstances makes the parts that begin and end instances.
func (r *Orchestrator) buildInstances(caps driver.Capabilities) {
	o := r.o
	waiting := o.Templates
	if o.Storage.OnVolumes { // a sandbox that waits has no volume
		waiting = nil
	}
	r.pool = pool.New(r.ctx, pool.Options{
		Templates: waiting, Root: pool.RootIn(o.Storage.DataDir), RunRoot: r.runRoot, StartTime: o.StartTime, Driver: o.Driver, DriverName: caps.Name,
		Copies: r.copies, Reaper: r.reaper, Peers: r.peers, Places: r.places, Folders: r.folders, Records: r.owners.Book, Hooks: r.hooks,
		Store: o.Store, Audit: o.Audit, Metrics: o.Metrics, Log: o.Log, Group: r.wg,
	})
	r.usage = usage.New(r.ctx, usage.Options{
		Store: o.Store, Meter: files.NewMeter(o.Storage.DataDir, r.folders), Folders: r.folders, Live: r.live, Log: o.Log, Group: r.wg,
	})
	watches := &files.Watches{}
	var orders *lifecycle.Orders
	var queue *lifecycle.Queue
	orders, queue, r.teardown, r.Lifecycle = lifecycle.New(r.ctx, caps, lifecycle.Options{
		Parts: lifecycle.Parts{
			Live: r.live, Specs: r.Specs, Slots: r.places, Owners: r.owners, Copies: r.copies, Hooks: r.hooks, Pool: r.pool, Threads: r.threads, Watcher: watches,
			Followers: o.Feeds, Retirements: r.retirements, Usage: r.usage,
		},
		Driver: o.Driver, Audit: o.Audit, Metrics: o.Metrics, Limits: o.Limits, Templates: o.Templates, Default: o.Default,
		Bounds: o.Lifecycle, StartTime: o.StartTime, Log: o.Log, Group: r.wg,
	})
	r.renewal = ownership.NewRenewal(r.owners, r.teardown)
	r.Shutdown = drain.New(r.ctx, drain.Options{
		Live: r.live, Execs: r.execs, Hooks: r.hooks, Teardown: r.teardown, Owners: r.owners, Takeover: r.takeover, Peers: r.peers, Audit: o.Audit, Log: o.Log,
	})
	r.Starts = start.New(r.ctx, caps, start.Options{
		Parts: start.Parts{
			Live: r.live, Execs: r.execs, Slots: r.places, Owners: r.owners, Drain: r.Shutdown, Hooks: r.hooks, Pool: r.pool, Orders: orders, Queue: queue,
			Teardown: r.teardown, Lifecycle: r.Lifecycle,
		},
		Workspace: start.Workspace{
			Skills: r.Skills, Threads: r.threads, Folders: r.folders, Copies: r.copies, Volumes: r.volumes, OnVolumes: o.Storage.OnVolumes,
		},
		Hub: o.Tools.Hub, Store: o.Store, Audit: o.Audit, StartTime: o.StartTime, RunRoot: r.runRoot, Log: o.Log, Group: r.wg,
	})
	r.recovery = recovery.New(caps, recovery.Options{
		Parts: recovery.Parts{
			Live: r.live, Specs: r.Specs, Slots: r.places, Owners: r.owners, Takeover: r.takeover, Peers: r.peers, Volumes: r.volumes, Copies: r.copies,
			Hooks: r.hooks, Orders: orders, Reaper: r.reaper, Settlement: r.settlement,
		},
		Driver: o.Driver, Audit: o.Audit, Limits: o.Limits, RunRoot: r.runRoot, Install: o.Install, Log: o.Log,
	})
	r.Placement = placement.New(placement.Options{
		Live: r.live, Execs: r.execs, Owners: r.owners, Peers: r.peers, Drain: r.Shutdown, Teardown: r.teardown,
	})
	r.Files = files.New(r.ctx, files.Options{
		Parts: files.Parts{
			Live: r.live, Owners: r.owners, Drain: r.Shutdown, Lifecycle: r.Lifecycle, Skills: r.Skills, Threads: r.threads, Folders: r.folders,
			Copies: r.copies, Watches: watches,
		},
		Audit: o.Audit, Limits: o.Limits, Views: o.Views, Templates: o.Templates, Default: o.Default, DataDir: o.Storage.DataDir, RunRoot: r.runRoot, Log: o.Log,
	})
}

// buildRuns makes the parts that run something in instances, or call tools for them.
func (r *Orchestrator) buildRuns(caps driver.Capabilities) {
	o := r.o
	r.Execs = execution.New(execution.Options{Registry: r.execs, Live: r.live, Folders: r.folders, Audit: o.Audit})
	inside := contextSandboxes{
		Map: r.live, Starts: r.Starts, Threads: r.threads, lifecycle: r.Lifecycle, execs: r.execs, wrappers: r.wrappers, copies: r.copies, log: o.Log,
	}
	r.Roots = rootfs.New(inside, o.Audit, o.Limits)
	r.Contexts = contexts.New(contexts.Options{
		Registry: r.contexts, Sandboxes: inside,
		Language: func(tenant string) string { return o.Tools.CodeSettings(tenant).Language },
	})
	r.Runs = run.New(r.ctx, run.Options{
		Parts: run.Parts{
			Live: r.live, Starts: r.Starts, Lifecycle: r.Lifecycle, Teardown: r.teardown, Files: r.Files, Copies: r.copies, Threads: r.threads,
			Registry: r.execs, Contexts: r.contexts, Skills: r.Skills, Wrappers: r.wrappers, Loads: r.loads,
		},
		Driver: o.Driver, OOMEndsSandbox: caps.OOMEndsSandbox, Hub: o.Tools.Hub, Audit: o.Audit, Bridge: o.Tools.Bridge, Secrets: o.Tools.Secrets, Limits: o.Limits,
		Metrics: o.Metrics, Tracer: o.Tracer, ApprovalWait: o.Tools.ApprovalWait, CodeSettings: o.Tools.CodeSettings, Log: o.Log, Group: r.wg,
	})
	r.ActiveTools = activation.New(activation.Options{Hub: o.Tools.Hub, Threads: r.threads, Records: o.Store})
	r.Calls = call.New(call.Options{
		Hub: o.Tools.Hub, Active: r.ActiveTools, Threads: callThreads{Files: r.Files, drain: r.Shutdown, lifecycle: r.Lifecycle, threads: r.threads}, Store: o.Store, Audit: o.Audit,
		Limits: o.Limits, Metrics: o.Metrics, Log: o.Log, CodeSettings: o.Tools.CodeSettings,
	})
}

// buildUseCases makes the parts that call the others.
func (r *Orchestrator) buildUseCases() {
	o := r.o
	r.Threads = &Threads{
		Files: r.Files, specs: r.Specs, audit: o.Audit, copies: r.copies, folders: r.folders, live: r.live, log: o.Log, peers: r.peers,
		store: o.Store, teardown: r.teardown, threads: r.threads, volumes: r.volumes,
	}
	r.Sandboxes = Sandboxes{r.Starts, r.Lifecycle, r.Threads}
	r.Probes = &Probes{
		Execs: r.Execs, Runs: r.Runs, Starts: r.Starts, Threads: r.Threads, log: o.Log, skills: o.Skills, startTime: o.StartTime, templates: o.Templates,
	}
	own := o.Tools.Channels
	if own == nil {
		own = channels.New(channels.Options{})
	}
	own.Attach(r.wrappers.Follow)
	r.ThreadSkills = own.Over(upstream.New(r.Skills.Threads, r.Calls), channelThreads{o.Store, r.threads}, o.Tools.Hub)
	r.Prompts = &Prompts{Calls: r.Calls, Skills: r.ThreadSkills, codeSettings: o.Tools.CodeSettings, commands: o.Tools.Commands, hub: o.Tools.Hub, metrics: o.Metrics}
	r.Events = threadevents.New(threadevents.Options{
		Feeds: o.Feeds, Threads: r.threads, Owners: r.owners, Replica: r.peers.ID(), Tools: r.Calls, Active: r.ActiveTools, Skills: r.ThreadSkills, Prompts: r.Prompts, Shared: o.Store, Log: o.Log,
	})
	gauges := &gauges{audit: o.Audit, execs: r.execs, live: r.live, maxInstances: o.MaxInstances, places: r.places, pool: r.pool}
	o.Metrics.Watch(gauges.levels)
}

// Close lets go of all sandboxes of threads without ending them: the next server adopts them. It drains first, and
// removes the sandboxes that waited for threads, and the second ones.
func (r *Orchestrator) Close(ctx context.Context) error {
	r.Shutdown.Drain(ctx)
	r.threads.SaveAllPending(ctx)
	r.stop()
	r.wg.Wait()
	r.pool.Empty()
	r.usage.FlushAll(ctx)
	for _, inst := range r.live.All() {
		r.teardown.EndSeconds(inst)
	}
	var errs []error
	for _, inst := range r.live.All() {
		errs = append(errs, inst.Close())
	}
	return errors.Join(errs...)
}
