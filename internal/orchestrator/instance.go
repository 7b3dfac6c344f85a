package orchestrator

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/instance/capacity"
	"github.com/skerry-sandbox/skerry/internal/limits"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/platform/redact"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sandboxapi/client"
	"github.com/skerry-sandbox/skerry/internal/sandboxapi/link"
	"github.com/skerry-sandbox/skerry/internal/tools/bridge"
	"github.com/skerry-sandbox/skerry/internal/workspace/filesync"
)

// instance is the sandbox of one thread. The goroutine that starts it puts it into Orchestrator.instances, and
// the one that removes its last part takes it out. The fields above mu do not change once ready is closed.
type instance struct {
	thread       sandbox.Thread
	template     Template
	id           sandbox.ID
	dir          string // host folder <data>/run/<id>
	uid          int
	link         *link.Listener
	client       *client.Client
	bridge       *bridge.Endpoint
	ready        chan struct{} // closed when the start has ended, well or with err
	err          error
	gone         chan struct{}        // closed when the instance is out of the map
	ownership    *ownership.Ownership // of the thread, nil when it was not got
	left         bool                 // gone is closed; of Orchestrator.mu
	slot         *capacity.Ticket
	slotReleased bool           // the place is another's, or given back; guarded by Orchestrator.mu
	limits       *limits.Place  // that it takes of its owner's; of Orchestrator.mu
	asked        time.Time      // when its first caller did; zero: it was adopted
	pooled       *pooled        // it was this one in the pool; nil: it was made for the thread, or adopted
	fileSync     *filesync.Sync // nil: the sandbox sees this server's disk

	pauseMu sync.Mutex // serialises pause and resume
	specMu  sync.Mutex // serialises writes of the saved spec

	mu            sync.Mutex
	info          sandbox.Info
	ending        sandbox.Status // why its execs end: set before the sandbox is removed, "" while it lives
	running       int            // execs
	waits         int            // of them, those whose calls wait for people
	lastActive    time.Time
	touched       time.Time
	env           map[string]string // of every exec; replaced, never changed
	seenSecrets   []string          // values that execs got by name, the newest last
	redactor      *redact.Secrets   // of met and hideFor, when hideKnown
	redactorEnv   map[string]string // the env that hide is for
	redactorKnown bool
	languages     []string // that sandboxd found a runtime for
	queueTurn     queueTurn
	overAge       bool           // it is put away when nothing runs in it
	released      bool           // it is not to come back
	unused        bool           // its first exec is still to come
	watched       bool           // somebody watches its load
	unmetered     bool           // nobody can: CPU time is what sandboxd says
	billedTo      sandbox.Caller // whose exec began last: its CPU time counts for that one
	cpuShares     driver.Weight  // what it counts for CPU time; 0: unknown

	tools  toolsView
	narrow narrowed
	skills skillsView
}

// narrowed is what the instance's thread was narrowed to, when that is known.
type narrowed struct {
	mu    sync.Mutex
	only  []string
	known bool
}

// sock, codeAPI, viewDir and secretFile are parts of an instance's folder. Of the third, two folders are seen
// inside, of the last nothing.
func (inst *instance) sock() string       { return filepath.Join(inst.dir, "sock") }
func (inst *instance) codeAPI() string    { return filepath.Join(inst.dir, "code-api") }
func (inst *instance) viewDir() string    { return filepath.Join(inst.dir, "view") }
func (inst *instance) secretFile() string { return filepath.Join(inst.dir, "secret.json") }

func (inst *instance) snapshot() sandbox.Info {
	inst.mu.Lock()
	defer inst.mu.Unlock()
	return inst.info
}

// isReady says whether the start has ended well.
func (inst *instance) isReady() bool {
	select {
	case <-inst.ready:
		return inst.err == nil
	default:
		return false
	}
}

// end says how the execs of an instance that is going away end; the first word counts.
func (inst *instance) end(s sandbox.Status) {
	inst.mu.Lock()
	defer inst.mu.Unlock()
	if inst.ending == "" {
		inst.ending = s
	}
}

func (inst *instance) endingStatus() sandbox.Status {
	inst.mu.Lock()
	defer inst.mu.Unlock()
	return inst.ending
}

// letGo closes this process's side of the instance and leaves the sandbox alone.
func (inst *instance) letGo() error {
	detached := inst.detach()
	if inst.link != nil {
		inst.link.Close()
	}
	if inst.bridge != nil {
		return errors.Join(detached, inst.bridge.Close())
	}
	return detached
}

// Acquire gives the thread's sandbox, starting it when there is none. Many callers at once get one.
func (r *Orchestrator) Acquire(ctx context.Context, c sandbox.Caller, id string, o sandbox.AcquireOptions) (sandbox.Info, error) {
	t, err := thread(c, id)
	if err != nil {
		return sandbox.Info{}, err
	}
	if err := r.refuse(t); err != nil {
		return sandbox.Info{}, err
	}
	if _, ok := r.o.Templates[o.Template]; !ok && o.Template != "" {
		return sandbox.Info{}, sandbox.Errorf(sandbox.Invalid, "there is no template %.80q; GET /api/templates lists them", o.Template)
	}
	if err := checkEnv(o.Env); err != nil {
		return sandbox.Info{}, err
	}
	if err := r.narrowSkills(ctx, t, o.Skills); err != nil {
		return sandbox.Info{}, err
	}
	if err := r.narrowCapabilities(ctx, c, t, o.Capabilities); err != nil {
		return sandbox.Info{}, err
	}
	newEnv := false
	inst, err := r.join(ctx, c, t, o.Template, o.Wait, func(inst *instance) {
		inst.mu.Lock()
		defer inst.mu.Unlock()
		if newEnv = o.Env != nil && !maps.Equal(o.Env, inst.env); newEnv {
			inst.env = o.Env
		}
	})
	if err != nil && !errors.Is(err, errStillStarting) {
		if o.Skills != nil || o.Capabilities != nil { // what was narrowed is there, sandbox or not
			_, e := r.ensureThread(context.WithoutCancel(ctx), t)
			err = errors.Join(err, e)
		}
		return sandbox.Info{}, err
	}
	if newEnv { // of one that is starting it is kept when it runs
		r.saveOrder(inst)
	}
	r.active(t, ActivityAcquire)
	if o.Skills != nil && inst.isReady() {
		r.showSkillsNow(ctx, inst)
	}
	return inst.snapshot(), r.remember(ctx, t, o)
}

// remember writes down what the caller wants of the thread beyond the life of this sandbox.
func (r *Orchestrator) remember(ctx context.Context, t sandbox.Thread, o sandbox.AcquireOptions) error {
	if o.Labels == nil && o.Mode == "" {
		return nil
	}
	if _, err := r.ensureThread(ctx, t); err != nil { // the start may not have come to that yet
		return err
	}
	info, err := r.o.Store.Thread(ctx, t)
	if err != nil {
		return err
	}
	before := info
	if o.Labels != nil {
		info.Labels = o.Labels
	}
	if o.Mode != "" {
		info.Mode = o.Mode
	}
	if info.Mode == before.Mode && maps.Equal(info.Labels, before.Labels) {
		return nil
	}
	return r.o.Store.PutThread(ctx, info)
}

// instance finds the thread's instance or puts a new one in, whose start goes on in the background. An instance that
// is being removed is waited for by the start of the new one.
func (r *Orchestrator) instanceFor(c sandbox.Caller, t sandbox.Thread, o order) (*instance, error) {
	tmpl := o.template
	r.mu.Lock()
	defer r.mu.Unlock()
	former := r.instances[t]
	if former != nil && former.endingStatus() == "" {
		return former, nil
	}
	var place *capacity.Ticket
	var x *pooled
	onVolume := r.onVolume(t)
	if former == nil && !onVolume { // a volume cannot be added to a sandbox that waits
		x, place = r.takePooled(t, o)
	}
	if x == nil {
		var err error
		if place, err = r.takePlace(t, former); err != nil {
			return nil, err
		}
	}
	now := time.Now().UTC()
	inst := &instance{
		thread: t, template: tmpl, id: sandbox.NewID(), ready: make(chan struct{}), gone: make(chan struct{}), lastActive: now,
		slot: place, asked: now, unused: true, cpuShares: driver.UsualWeight, env: o.env, queueTurn: queueTurn{unwanted: make(chan struct{})},
		info: sandbox.Info{State: sandbox.Starting, Template: tmpl.Name, Driver: r.caps.Name, Runtime: tmpl.Runtime, CreatedAt: now, IdleTimeoutSeconds: tmpl.IdleSeconds, Loosened: tmpl.Loosened},
	}
	inst.dir = filepath.Join(r.runRoot(), string(inst.id))
	if x != nil {
		inst.pooled, inst.id, inst.dir, inst.info.Warm, inst.fileSync = x, x.id, x.dir, true, x.fileSync
		inst.fileSync.Shut()
	} else {
		inst.fileSync = r.newFileSync(inst.id)
	}
	if onVolume {
		inst.fileSync.OnVolume = true
	}
	r.watchContexts(inst)
	inst.info.ID = inst.id
	r.enterMap(inst)
	r.wg.Go(func() { r.begin(c, inst, former) })
	return inst, nil
}

var errStillStarting = sandbox.Errorf(sandbox.Timeout, "the sandbox is still starting")

// join gives the thread's instance when it is ready, of the template that is named, or of any when none is. use
// is called with the instance before it is waited for; nil: nothing is. On errStillStarting the instance is there.
func (r *Orchestrator) join(ctx context.Context, c sandbox.Caller, t sandbox.Thread, named string, wait time.Duration, use func(*instance)) (*instance, error) {
	cold := false
	for {
		inst := r.find(t)
		if inst == nil || inst.endingStatus() != "" {
			err := r.restoreSnapshot(ctx, t, true)
			if err != nil {
				return nil, err
			}
			o := r.order(t, named)
			o.cold = cold
			if inst, err = r.instanceFor(c, t, o); err != nil {
				return nil, err
			}
		}
		if named != "" && named != inst.template.Name {
			return nil, sandbox.Errorf(sandbox.Conflict, "the thread has a sandbox of template %q; delete it first to get one of %q", inst.template.Name, named)
		}
		if use != nil {
			use(inst)
		}
		err := r.waitReady(ctx, inst, wait)
		if cold = cold || errors.Is(err, errNotFilled); !errors.Is(err, errNotFilled) && !errors.Is(err, errGivenUp) {
			return inst, err
		}
	}
}

// start brings the instance up and tells its waiters. When it fails nothing is left over.
func (r *Orchestrator) start(ctx context.Context, c sandbox.Caller, inst *instance, former *instance) {
	began := inst.asked
	if former != nil {
		select {
		case <-former.gone:
		case <-ctx.Done():
		}
	}
	queued := time.Now()
	action := audit.ActionSandboxCreate
	if inst.pooled != nil {
		action = audit.ActionSandboxClaim
	} else {
		r.pool.callers.Add(1)
		defer r.pool.callers.Add(-1)
	}
	rec := record(c, inst.thread, action, audit.PhaseAttempt)
	rec.Sandbox, rec.Subject = string(inst.id), inst.template.Name
	recordLoosened(&rec, inst.template.Loosened)
	attempt, err := r.o.Audit.Append(ctx, rec)
	if err == nil {
		err = r.bringUp(ctx, c, inst, queued.Sub(began))
	}
	result := record(c, inst.thread, action, audit.PhaseResult)
	result.Sandbox, result.Subject, result.Parent = string(inst.id), inst.template.Name, attempt.ID
	result.Millis, result.Outcome = time.Since(began).Milliseconds(), "ok"
	if err != nil {
		result.Outcome, result.Detail = "error", string(sandbox.KindOf(err))
	}
	if _, e := r.o.Audit.Append(context.WithoutCancel(ctx), result); e != nil && err == nil {
		err = e
	}
	r.measureStart(inst, err)
	if err != nil {
		r.o.Log.Error("sandbox did not start", "thread", inst.thread.String(), "sandbox", string(inst.id), "error", err)
		inst.err = err
		inst.end(sandbox.StatusLost)
		r.remove(ctx, inst)
	}
	close(inst.ready)
}

func (r *Orchestrator) bringUp(ctx context.Context, c sandbox.Caller, inst *instance, queued time.Duration) error {
	began := time.Now()
	own, err := r.owners.Acquire(ctx, inst.thread, "")
	if err != nil {
		return ownership.NotHere(err)
	}
	inst.mu.Lock() // others may find the instance and ask whose it is
	inst.ownership = own
	inst.mu.Unlock()
	if err := r.owners.SetSandbox(ctx, own, inst.id); err != nil {
		return ownership.NotHere(err)
	}
	if inst.pooled != nil {
		return r.bringUpClaimed(ctx, c, inst, queued)
	}
	uid, err := r.ensureThread(ctx, inst.thread)
	if err != nil {
		return err
	}
	inst.uid = uid
	if err := r.bound(inst.thread, uid, inst.template.Limits.DiskBytes); err != nil {
		return err
	}
	if err = os.MkdirAll(inst.dir, 0o711); err == nil {
		inst.skills.folder, err = r.o.Views.Folder(inst.viewDir())
	}
	if err == nil {
		err = r.open(inst)
	}
	if err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the sandbox cannot be prepared")
	}
	tools := r.firstTools(c, inst)
	skills := make(chan error, 1)
	r.wg.Go(func() { skills <- r.firstSkills(ctx, inst) })
	if inst.template.Prepare != nil {
		err = inst.template.Prepare(ctx)
	}
	if inst.fileSync != nil { // they are copied when it is made
		shown := <-skills
		skills <- nil
		err = errors.Join(err, shown)
	}
	if err == nil {
		err = r.makeWay(ctx)
	}
	if err == nil {
		err = r.makeSandbox(ctx, inst)
	}
	created := time.Now()
	if e := <-skills; err == nil {
		err = e
	}
	if err == nil {
		err = inst.hello(ctx)
	}
	if err != nil {
		// They write into the instance's folder, which goes now.
		return errors.Join(err, <-tools)
	}
	if !r.owners.Confirm(own) { // this server was stopped meanwhile
		return errors.Join(ownership.NotHere(&ownership.Elsewhere{}), <-tools)
	}
	return r.markRunning(ctx, inst, sandbox.Timings{Queue: millis(queued), Create: millis(created.Sub(began)), Ready: millis(time.Since(created))}, tools)
}

// firstTools writes the wrappers of an instance that starts. They take as long as the slowest MCP server; nothing need wait for
// them but the end of a start that failed.
func (r *Orchestrator) firstTools(c sandbox.Caller, inst *instance) <-chan error {
	tools := make(chan error, 1)
	r.wg.Go(func() { tools <- r.refreshTools(r.ctx, c, inst) })
	return tools
}

// markRunning makes known that an instance runs.
func (r *Orchestrator) markRunning(ctx context.Context, inst *instance, took sandbox.Timings, tools <-chan error) error {
	inst.mu.Lock()
	inst.info.State = sandbox.Running
	inst.info.Timings = took
	env := inst.env
	inst.mu.Unlock()
	r.warm(inst, env)
	r.wg.Go(func() {
		if err := <-tools; err != nil {
			r.o.Log.Warn("wrappers not written; they are when code runs", "thread", inst.thread.String(), "error", err)
		}
	})
	return r.publish(ctx, inst)
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// open makes the instance's folder and both sockets.
func (r *Orchestrator) open(inst *instance) error {
	if err := r.openLink(inst); err != nil {
		return err
	}
	return r.openBridge(inst)
}

// openLink makes the instance's folder and the socket that sandboxd dials.
func (r *Orchestrator) openLink(inst *instance) error {
	if err := os.MkdirAll(inst.dir, 0o711); err != nil {
		return err
	}
	for _, dir := range []string{inst.sock(), inst.codeAPI()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	var err error
	inst.link, err = link.Listen(link.ListenOptions{Dir: inst.sock(), UID: inst.uid, SecretFile: inst.secretFile(), Log: r.o.Log})
	if err != nil {
		return err
	}
	inst.client = client.New(inst.link, func(ctx context.Context) bool { return r.stillRuns(ctx, inst) })
	return nil
}

// openBridge makes the socket for tool calls, which knows the thread.
func (r *Orchestrator) openBridge(inst *instance) (err error) {
	inst.bridge, err = r.o.Bridge.Serve(inst.sock(), inst.uid, inst.thread)
	return err
}

// hello waits until sandboxd has dialled and answers.
func (inst *instance) hello(ctx context.Context) error {
	st, err := inst.client.Status(ctx)
	if err != nil {
		return sandbox.Wrap(sandbox.SandboxLost, err, "the sandbox started but does not answer")
	}
	inst.mu.Lock()
	defer inst.mu.Unlock()
	inst.languages = st.GetLanguages()
	return nil
}

func (r *Orchestrator) spec(inst *instance) sandbox.Spec {
	spec := r.specOf(inst, r.threadDir(inst.thread))
	spec.Labels = map[string]string{
		sandbox.LabelInstall: r.o.Install, sandbox.LabelTenant: inst.thread.Tenant, sandbox.LabelUser: inst.thread.User,
		sandbox.LabelThread: inst.thread.ID, sandbox.LabelTemplate: inst.template.Name, sandbox.LabelReplica: r.peers.ID(),
	}
	loosen(&spec, inst.template.Loosened)
	if inst.ownership != nil {
		spec.Token = inst.ownership.Token.Load()
	}
	return spec
}

// hostname is that of all sandboxes.
const hostname = "skerry"

// PoolSpec is what is alike in all sandboxes of a template: what a warm pool of the cluster can have before it is known for whom.
func PoolSpec(t Template) sandbox.Spec {
	spec := sandbox.Spec{Image: t.Image, Runtime: t.Runtime, Hostname: hostname, Limits: t.Limits, Labels: map[string]string{}}
	loosen(&spec, t.Loosened)
	return spec
}

// specOf is what sandboxes with a thread and without one have in common.
func (r *Orchestrator) specOf(inst *instance, files string) sandbox.Spec {
	return sandbox.Spec{
		ID: inst.id, Image: inst.template.Image, Runtime: inst.template.Runtime, UID: inst.uid,
		Daemon: r.o.Daemon, Hostname: hostname, Limits: inst.template.Limits, ClaimPool: inst.template.ClaimPool,
		Mounts: []sandbox.Mount{
			{Source: files, Target: sandbox.UserDataDir},
			{Source: inst.skills.folder.Skills(), Target: sandbox.SkillsDir, ReadOnly: true},
			{Source: inst.skills.folder.Plugins(), Target: sandbox.PluginsDir, ReadOnly: true},
			{Source: inst.codeAPI(), Target: sandbox.CodeAPIDir, ReadOnly: true},
			{Source: inst.sock(), Target: sandbox.RunDir, ReadOnly: true},
		},
	}
}

// retire ends the sandbox of an instance, once; its execs end with status. It returns when all of it is gone.
func (r *Orchestrator) retire(ctx context.Context, c sandbox.Caller, inst *instance, status sandbox.Status, why string) error {
	inst.giveUp(sandbox.Errorf(sandbox.Conflict, "the sandbox was %s before it started", why)) // one that waits for its place
	select {                                                                                   // an instance that is starting is not pulled from under its start
	case <-inst.ready:
	case <-ctx.Done():
		return sandbox.Wrap(sandbox.Timeout, ctx.Err(), "the sandbox is still starting")
	}
	if inst.ownership != nil && inst.err == nil && !r.owners.Confirm(inst.ownership) {
		return nil // it is another server's now
	}
	inst.mu.Lock()
	first := inst.ending == ""
	if first {
		inst.ending = status
		inst.info.State = sandbox.Stopping
	}
	inst.mu.Unlock()
	if !first {
		select {
		case <-inst.gone:
			return nil
		case <-ctx.Done():
			return sandbox.Wrap(sandbox.Timeout, ctx.Err(), "the sandbox is still stopping")
		}
	}
	rec := record(c, inst.thread, audit.ActionSandboxRemove, audit.PhaseResult)
	rec.Sandbox, rec.Subject, rec.Outcome, rec.Detail = string(inst.id), inst.template.Name, "ok", why
	err := r.note(context.WithoutCancel(ctx), rec)
	r.o.Metrics.Changed(audit.ActionSandboxRemove, string(status))
	r.remove(ctx, inst)
	return err
}

// remove takes away all of an instance whose ending is set, and takes it out of the map. What the driver
// cannot remove now keeps its claim: nothing begins for the thread before it is gone.
func (r *Orchestrator) remove(ctx context.Context, inst *instance) {
	r.lastPull(ctx, inst)
	ctx, cancel := detached(ctx, removeTimeout)
	defer cancel()
	log := r.o.Log.With("thread", inst.thread.String(), "sandbox", string(inst.id))
	r.countLast(ctx, inst)
	theirs, removed := r.removeSandbox(ctx, inst)
	if theirs {
		r.abandonTo(inst)
		return
	}
	if removed != nil {
		log.Error("sandbox not removed; tried again later", "error", removed)
		if inst.ownership != nil {
			inst.ownership.Unremoved.Store(true)
			r.owners.LeftBehind.Store(true)
		}
	}
	if err := inst.letGo(); err != nil {
		log.Warn("sockets not closed", "error", err)
	}
	inst.forbidWrappers()
	r.endSkills(inst, removed == nil)
	if err := os.RemoveAll(inst.dir); err != nil {
		log.Error("run folder not removed", "error", err)
	}
	r.endClaim(inst, removed == nil)
	if removed == nil {
		r.keepLast(inst)
	}
	if err := r.o.Store.DeleteSandbox(ctx, inst.thread, inst.id); err != nil {
		log.Warn("sandbox record not deleted", "error", err)
	}
	if inst.ownership != nil {
		r.owners.Release(inst.ownership)
	}
	r.leaveMap(inst)
}

// find gives the thread's instance, or nil.
func (r *Orchestrator) find(t sandbox.Thread) *instance {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.instances[t]
}

// all is every instance of this moment.
func (r *Orchestrator) all() []*instance {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]*instance, 0, len(r.instances))
	for _, inst := range r.instances {
		list = append(list, inst)
	}
	return list
}

// watch ends the instances whose sandbox died.
func (r *Orchestrator) watch(events <-chan driver.Event) {
	for ev := range events {
		if ev.State != sandbox.Lost {
			continue
		}
		if x := r.pool.remove(ev.ID); x != nil {
			r.wg.Go(func() { r.discard(x, "ended") })
			continue
		}
		if inst := r.findSandbox(ev.ID); inst != nil { // after: one that was taken out of the pool meanwhile is here
			r.wg.Go(func() { r.died(inst, ev.OOM) })
		}
	}
}

// findSandbox returns the instance of a sandbox, or nil.
func (r *Orchestrator) findSandbox(id sandbox.ID) *instance {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byID[id]
}

// died retires an instance whose sandbox ended by itself. When it ran out of memory, its execs say so.
func (r *Orchestrator) died(inst *instance, oom bool) {
	status, why := sandbox.StatusLost, "the sandbox ended by itself"
	if oom {
		status, why = sandbox.StatusOOM, "the sandbox ran out of memory"
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), r.o.StartTime+removeTimeout)
	defer cancel()
	if err := r.retire(ctx, sandbox.Caller{}, inst, status, why); err != nil {
		r.o.Log.Error("dead sandbox not retired", "thread", inst.thread.String(), "error", err)
	}
}
