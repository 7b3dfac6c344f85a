package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/execution"
	"github.com/skerry-sandbox/skerry/internal/execution/contexts"
	"github.com/skerry-sandbox/skerry/internal/execution/run"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/capacity"
	"github.com/skerry-sandbox/skerry/internal/instance/hooks"
	"github.com/skerry-sandbox/skerry/internal/instance/load"
	"github.com/skerry-sandbox/skerry/internal/instance/pool"
	"github.com/skerry-sandbox/skerry/internal/instance/savedspec"
	"github.com/skerry-sandbox/skerry/internal/limits"
	"github.com/skerry-sandbox/skerry/internal/observe/metrics"
	"github.com/skerry-sandbox/skerry/internal/observe/tracing"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/ownership/ownerrecord"
	"github.com/skerry-sandbox/skerry/internal/prompt"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills"
	"github.com/skerry-sandbox/skerry/internal/skills/mounted"
	"github.com/skerry-sandbox/skerry/internal/store"
	"github.com/skerry-sandbox/skerry/internal/tools/bridge"
	"github.com/skerry-sandbox/skerry/internal/tools/call"
	"github.com/skerry-sandbox/skerry/internal/tools/codeapi"
	"github.com/skerry-sandbox/skerry/internal/tools/wrappers"
	"github.com/skerry-sandbox/skerry/internal/workspace"
	"github.com/skerry-sandbox/skerry/internal/workspace/copies"
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
}

// Options are the parts that an Orchestrator works with. A field is needed unless its comment says what nil means.
type Options struct {
	Driver  driver.Driver
	Store   *store.Store
	Audit   *audit.Log
	Hub     toolHub
	Bridge  *bridge.Bridge
	CodeAPI *codeapi.Store
	Skills  *skills.Library
	Views   *skills.Views
	// Switches say which skills are on; the library reads them, too.
	Switches  mounted.Switches
	Templates map[string]instance.Template
	Default   string // name of the default template
	DataDir   string
	// Snapshots keep the files of threads elsewhere, before a change is acknowledged, or SnapshotDelay later when that is
	// not 0; nil: they are on this disk alone.
	Snapshots     *snapshot.Snapshots
	SnapshotDelay time.Duration
	// OnVolumes: files of threads lie on volumes of their users', which the Driver, a driver.Volumes, knows.
	OnVolumes bool
	// Disk makes the folders of threads and bounds them. nil: nothing but this server's own counting does.
	Disk    *quota.Volume
	Daemon  string // host path of skerry-sandboxd
	Install string // id of the data folder
	// Peers are the other servers of the data folder; nil: there are none, and never will be.
	Peers ownership.Peers
	// SettleReplicas calls settle for each replica that ended and was not settled yet, one at a time among all servers;
	// nil: there is none.
	SettleReplicas func(settle func(ownership.ExitedReplica) error) error
	// OpenAudit opens the audit log of a replica that ended, to be closed by the caller.
	OpenAudit func(slot int) (*audit.Log, error)
	// SweepReplica removes what else a replica that ended left running.
	SweepReplica func(ctx context.Context, replica string) error
	// Secrets returns values by name; nil: there are none.
	Secrets run.SecretValues
	// Sealer encrypts the environments that are kept; nil: they are kept as they are.
	Sealer savedspec.Sealer
	// Limits are those of tenants, users and keys; nil: there are none, and nothing is counted.
	Limits       *limits.Gate
	MaxInstances int
	Lifecycle    Lifecycle
	Metrics      *metrics.Metrics
	Tracer       *tracing.Tracer // nil: nothing is traced
	StartTime    time.Duration   // bound of one start
	// ApprovalWait is how long, altogether, an exec's deadline is held while calls of it wait for people.
	ApprovalWait time.Duration
	// ForgetApprovals takes back what a thread that no longer exists was given; nil: nothing was.
	ForgetApprovals func(ctx context.Context, t sandbox.Thread) error
	// CodeSettings are the settings of a tenant.
	CodeSettings func(tenant string) sandbox.CodeSettings
	// Commands are those that a user's plugins add to prompts.
	Commands func(o sandbox.Owner) ([]prompt.Command, error)
	Log      *slog.Logger
}

// Orchestrator holds the sandboxes of this server. Make one with New.
type Orchestrator struct {
	o       Options
	caps    driver.Capabilities
	volumes *volumes.Volumes // nil when the driver keeps none
	copies  *copies.Copies

	ctx  context.Context // ends with Close; owns every goroutine
	stop context.CancelFunc
	wg   *sync.WaitGroup

	live    *instance.Map
	execs   *execution.Registry
	watches *fileWatches

	// Skills are those of users and threads.
	Skills *mounted.Skills
	// Execs are the execs of threads, for callers who look at them, follow them, and steer them.
	Execs *execution.Execs
	// Specs are what the sandboxes of threads were asked to be.
	Specs *savedspec.Specs
	// Runs starts execs.
	Runs *run.Runner
	// Calls are the tool calls of agents.
	Calls *call.Calls
	// Contexts are the interpreters that keep their variables between runs.
	Contexts     *contexts.Contexts
	peers        ownership.Peers
	owners       *ownership.Owners
	takeover     *ownership.Takeover
	draining     atomic.Pointer[drain] // nil until Drain
	stopping     context.Context       // ends when Drain begins
	endStreams   context.CancelFunc
	drainTargets *ownership.Targets
	folders      *workspace.Folders
	threads      *threads.Threads
	wrappers     *wrappers.Wrappers
	places       *capacity.Places
	pool         *pool.Pool
	hooks        *hooks.Hooks
	renewal      *ownership.Renewal
	nudged       chan struct{} // holds a token: an instance waits for a place

}

// Deadlines, each with its reason.
const (
	// removeTimeout bounds the removal of a sandbox.
	removeTimeout = hooks.RemoveTimeout
	// inspectTimeout bounds the question how a sandbox died, which stands between an exec and its end.
	inspectTimeout = 2 * time.Second
	// cleanupTimeout bounds records and releases that must outlive the request they belong to.
	cleanupTimeout = 10 * time.Second
	// touchEvery is how often the last activity of a thread is written down.
	touchEvery = 10 * time.Second
	// reapEvery is how often idle sandboxes are looked for.
	reapEvery = 10 * time.Second
)

// New adopts what a former server of the same data folder left running, removes what cannot be
// adopted, ends the execs that it left open, and starts to watch.
func New(ctx context.Context, o Options) (*Orchestrator, error) {
	caps, err := o.Driver.Capabilities(ctx)
	if err != nil {
		return nil, fmt.Errorf("driver: %w", err)
	}
	own, stop := context.WithCancel(context.Background())
	r := &Orchestrator{o: o, caps: caps, ctx: own, stop: stop, wg: new(sync.WaitGroup), live: &instance.Map{}, watches: &fileWatches{}}
	r.stopping, r.endStreams = context.WithCancel(own)
	r.execs = execution.NewRegistry()
	r.Specs = savedspec.New(savedspec.Options{DataDir: o.DataDir, Sealer: o.Sealer, Log: o.Log})
	r.folders = workspace.New(workspace.Options{DataDir: o.DataDir, Disk: o.Disk, UIDs: o.Store, Log: o.Log})
	r.threads = threads.New(own, threads.Options{
		Folders: r.folders, Disk: o.Disk, Specs: r.Specs, Sandboxes: threadSandboxes{r}, Store: o.Store,
		Snapshots: o.Snapshots, Delay: o.SnapshotDelay, Log: o.Log,
	})
	r.Execs = execution.New(execution.Options{Registry: r.execs, Sandboxes: execSandboxes{r}, Audit: o.Audit})
	r.Skills = mounted.New(own, mounted.Options{
		Library: o.Skills, Views: o.Views, Switches: o.Switches, Sandboxes: skillSandboxes{r}, Store: o.Store, Audit: o.Audit, Log: o.Log,
	})
	r.wrappers = wrappers.New(own, wrappers.Options{Hub: o.Hub, Store: o.CodeAPI, All: r.live.All, Log: o.Log})
	r.Calls = call.New(call.Options{
		Hub: o.Hub, Threads: callThreads{r}, Store: o.Store, Audit: o.Audit, Limits: o.Limits, Metrics: o.Metrics, CodeSettings: o.CodeSettings,
	})
	r.Contexts = contexts.New(contexts.Options{
		Sandboxes: contextSandboxes{r}, Audit: o.Audit, Log: o.Log,
		Language: func(tenant string) string { return o.CodeSettings(tenant).Language },
	})
	r.places = capacity.New(capacity.Limits{Total: o.MaxInstances, PerTenant: o.Lifecycle.PerTenant, Queue: o.Lifecycle.Queue})
	r.nudged = make(chan struct{}, 1)
	for _, dir := range []string{r.runRoot(), filepath.Join(o.DataDir, "tenants")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			stop()
			return nil, fmt.Errorf("data folder: %w", err)
		}
	}
	if r.peers = o.Peers; r.peers == nil {
		r.peers = ownership.Alone(o.Install + "-" + string(sandbox.NewID())) // not the one of the process before
	}
	book, err := ownerrecord.Open(filepath.Join(r.runRoot(), "claims"))
	if err != nil {
		stop()
		return nil, err
	}
	r.owners = ownership.New(own, ownership.Options{Store: o.Store, Book: book, Peers: r.peers, Sandboxes: r, Log: o.Log, Group: r.wg})
	r.renewal = ownership.NewRenewal(r.owners)
	r.takeover = ownership.NewTakeover(r.owners, o.SettleReplicas)
	r.drainTargets = ownership.NewTargets(r.peers, o.Log)
	loads := load.New(own, load.Options{
		Driver: o.Driver, Execs: r.execs, Contexts: r.Contexts, Sandboxes: loadSandboxes{r}, Limits: o.Limits, Log: o.Log, Group: r.wg,
	})
	r.Runs = run.New(own, run.Options{
		Parts: run.Parts{
			Sandboxes: runSandboxes{r}, Files: runFiles{r}, Registry: r.execs, Contexts: r.Contexts, Skills: r.Skills, Wrappers: r.wrappers, Loads: loads,
		},
		Driver: o.Driver, OOMEndsSandbox: caps.OOMEndsSandbox, Hub: o.Hub, Audit: o.Audit, Bridge: o.Bridge, Secrets: o.Secrets, Limits: o.Limits,
		Metrics: o.Metrics, Tracer: o.Tracer, ApprovalWait: o.ApprovalWait, CodeSettings: o.CodeSettings, Log: o.Log, Group: r.wg,
	})
	if onVolumes, ok := o.Driver.(volumes.Driver); ok {
		r.volumes = volumes.New(own, volumes.Options{
			DataDir: o.DataDir, Driver: onVolumes, Sandboxes: volumeSandboxes{r}, Folders: r.folders, Owners: r.owners, Peers: r.peers,
			Specs: r.Specs, Templates: o.Templates, Default: o.Default, Daemon: o.Daemon, Install: o.Install, StartTime: o.StartTime, Log: o.Log, Group: r.wg,
		})
	}
	remote, _ := o.Driver.(driver.Remote)
	r.copies = copies.New(own, copies.Options{
		Remote: remote, Volumes: r.volumes, Sandboxes: copySandboxes{r}, Contexts: r.Contexts, Folders: r.folders, Spool: r.runRoot(),
		Log: o.Log, Group: r.wg,
	})
	waiting := o.Templates
	if o.OnVolumes { // a sandbox that waits has no volume
		waiting = nil
	}
	r.pool = pool.New(own, pool.Options{
		Templates: waiting, Root: pool.RootIn(o.DataDir), RunRoot: r.runRoot(), Install: o.Install, StartTime: o.StartTime, Driver: o.Driver, DriverName: caps.Name,
		Sandboxes: poolSandboxes{r}, Peers: r.peers, Places: r.places, Folders: r.folders, Records: book, Library: o.Skills, Views: o.Views, Skills: r.Skills,
		Store: o.Store, Audit: o.Audit, Metrics: o.Metrics, Log: o.Log, Group: r.wg,
	})
	r.hooks = hooks.New(own, hooks.Options{
		Parts: hooks.Parts{
			Server: hookServer{r}, Owners: r.owners, Threads: r.threads, Folders: r.folders, Copies: r.copies, Volumes: r.volumes, Pool: r.pool,
			Skills: r.Skills, Wrappers: r.wrappers, Loads: loads,
		},
		Driver: o.Driver, Store: o.Store, Views: o.Views, Bridge: o.Bridge, Disk: o.Disk, RunRoot: r.runRoot(), Install: o.Install, Replica: r.peers.ID(),
		Daemon: o.Daemon, Log: o.Log, Group: r.wg, Passed: o.Lifecycle.PassedHook,
	})
	o.Metrics.Watch(r.levels)
	events, err := o.Driver.Watch(own)
	if err != nil {
		stop()
		return nil, fmt.Errorf("watch sandboxes: %w", err)
	}
	r.wg.Go(r.renewal.Keep) // recovering may take longer than a lease lasts
	if err := r.recover(ctx); err != nil {
		stop()
		r.wg.Wait()
		return nil, err
	}
	r.wg.Go(func() { r.watch(events) })
	r.wg.Go(r.takeover.Watch)
	r.wg.Go(r.housekeeping)
	r.wg.Go(r.watchLives)
	r.wg.Go(r.wrappers.Push)
	r.wg.Go(r.Skills.Push)
	r.wg.Go(r.Skills.PrepareSpares)
	r.wg.Go(func() { r.folders.Sweep(r.ctx) })
	r.wg.Go(r.pool.Keep)
	r.wg.Go(r.threads.KeepLate)
	return r, nil
}

// Close lets go of all sandboxes of threads without ending them: the next server adopts them. It drains first, and
// removes the sandboxes that waited for threads.
func (r *Orchestrator) Close(ctx context.Context) error {
	r.Drain(ctx)
	r.threads.KeepAllLate(ctx)
	r.stop()
	r.wg.Wait()
	r.pool.Empty()
	var errs []error
	for _, inst := range r.live.All() {
		errs = append(errs, inst.Close())
	}
	return errors.Join(errs...)
}

func (r *Orchestrator) runRoot() string { return filepath.Join(r.o.DataDir, "run") }
