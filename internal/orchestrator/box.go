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
	"github.com/skerry-sandbox/skerry/internal/platform/redact"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sandboxapi/client"
	"github.com/skerry-sandbox/skerry/internal/sandboxapi/link"
	"github.com/skerry-sandbox/skerry/internal/tools/bridge"
)

// box is the sandbox of one thread. It is put into Orchestrator.boxes by whoever starts it, and
// taken out when nothing of it is left. The fields above mu do not change once ready is closed.
type box struct {
	thread   sandbox.Thread
	template Template
	id       sandbox.ID
	dir      string // host folder <data>/run/<id>
	uid      int
	link     *link.Listener
	client   *client.Client
	bridge   *bridge.Endpoint
	ready    chan struct{} // closed when the start has ended, well or with err
	err      error
	gone     chan struct{} // closed when the box is out of the map
	hold     *hold         // of the thread, nil when it was not got
	left     bool          // gone is closed; of Orchestrator.mu
	place    *capacity.Ticket
	passed   bool          // the place is another's, or given back; guarded by Orchestrator.mu
	limits   *limits.Place // that it takes of its owner's; of Orchestrator.mu
	asked    time.Time     // when its first caller did; zero: it was adopted
	pooled   *pooled       // it was this one in the pool; nil: it was made for the thread, or adopted
	copies   *copies       // nil: the sandbox sees this server's disk

	shift   sync.Mutex // held while it is paused or resumed
	keeping sync.Mutex // held while what it is is written

	mu         sync.Mutex
	info       sandbox.Info
	ending     sandbox.Status // why its execs end: set before the sandbox is removed, "" while it lives
	running    int            // execs
	waits      int            // of them, those whose calls wait for people
	lastActive time.Time
	touched    time.Time
	env        map[string]string // of every exec; replaced, never changed
	met        []string          // values that execs got by name, the newest last
	hide       *redact.Secrets   // of met and hideFor, when hideKnown
	hideFor    map[string]string // the env that hide is for
	hideKnown  bool
	languages  []string // that sandboxd found a runtime for
	turn       turn
	overAge    bool           // it is put away when nothing runs in it
	released   bool           // it is not to come back
	unused     bool           // its first exec is still to come
	watched    bool           // somebody watches its load
	unmetered  bool           // nobody can: CPU time is what sandboxd says
	payer      sandbox.Caller // whose exec began last: its CPU time counts for that one
	weight     driver.Weight  // what it counts for CPU time; 0: nobody knows

	tools  toolsView
	narrow narrowed
	skills skillsView
}

// narrowed is what the box's thread was narrowed to, when that is known.
type narrowed struct {
	mu    sync.Mutex
	only  []string
	known bool
}

// sock, codeAPI, viewDir and secretFile are parts of a box's folder. Of the third, two folders are seen
// inside, of the last nothing.
func (b *box) sock() string       { return filepath.Join(b.dir, "sock") }
func (b *box) codeAPI() string    { return filepath.Join(b.dir, "code-api") }
func (b *box) viewDir() string    { return filepath.Join(b.dir, "view") }
func (b *box) secretFile() string { return filepath.Join(b.dir, "secret.json") }

func (b *box) snapshot() sandbox.Info {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.info
}

// isReady says whether the start has ended well.
func (b *box) isReady() bool {
	select {
	case <-b.ready:
		return b.err == nil
	default:
		return false
	}
}

// end says how the execs of a box that is going away end; the first word counts.
func (b *box) end(s sandbox.Status) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ending == "" {
		b.ending = s
	}
}

func (b *box) endingStatus() sandbox.Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ending
}

// letGo closes this process's side of the box and leaves the sandbox alone.
func (b *box) letGo() error {
	detached := b.detach()
	if b.link != nil {
		b.link.Close()
	}
	if b.bridge != nil {
		return errors.Join(detached, b.bridge.Close())
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
	b, err := r.join(ctx, c, t, o.Template, o.Wait, func(b *box) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if newEnv = o.Env != nil && !maps.Equal(o.Env, b.env); newEnv {
			b.env = o.Env
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
		r.saveOrder(b)
	}
	r.active(t, ActivityAcquire)
	if o.Skills != nil && b.isReady() {
		r.showSkillsNow(ctx, b)
	}
	return b.snapshot(), r.remember(ctx, t, o)
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

// box finds the thread's box or puts a new one in, whose start goes on in the background. A box that
// is being removed is waited for by the start of the new one.
func (r *Orchestrator) box(c sandbox.Caller, t sandbox.Thread, o order) (*box, error) {
	tmpl := o.template
	r.mu.Lock()
	defer r.mu.Unlock()
	former := r.boxes[t]
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
	b := &box{
		thread: t, template: tmpl, id: sandbox.NewID(), ready: make(chan struct{}), gone: make(chan struct{}), lastActive: now,
		place: place, asked: now, unused: true, weight: driver.UsualWeight, env: o.env, turn: turn{unwanted: make(chan struct{})},
		info: sandbox.Info{State: sandbox.Starting, Template: tmpl.Name, Driver: r.caps.Name, Runtime: tmpl.Runtime, CreatedAt: now, IdleTimeoutSeconds: tmpl.IdleSeconds, Loosened: tmpl.Loosened},
	}
	b.dir = filepath.Join(r.runRoot(), string(b.id))
	if x != nil {
		b.pooled, b.id, b.dir, b.info.Warm, b.copies = x, x.id, x.dir, true, x.copies
		b.copies.shut()
	} else {
		b.copies = r.newCopies(b.id)
	}
	if onVolume {
		b.copies.kept = true
	}
	r.watchContexts(b)
	b.info.ID = b.id
	r.enterMap(b)
	r.wg.Go(func() { r.begin(c, b, former) })
	return b, nil
}

var errStillStarting = sandbox.Errorf(sandbox.Timeout, "the sandbox is still starting")

// join gives the thread's box when it is ready, of the template that is named, or of any when none is. use
// is called with the box before it is waited for; nil: nothing is. On errStillStarting the box is there.
func (r *Orchestrator) join(ctx context.Context, c sandbox.Caller, t sandbox.Thread, named string, wait time.Duration, use func(*box)) (*box, error) {
	cold := false
	for {
		b := r.find(t)
		if b == nil || b.endingStatus() != "" {
			err := r.bring(ctx, t, true)
			if err != nil {
				return nil, err
			}
			o := r.order(t, named)
			o.cold = cold
			if b, err = r.box(c, t, o); err != nil {
				return nil, err
			}
		}
		if named != "" && named != b.template.Name {
			return nil, sandbox.Errorf(sandbox.Conflict, "the thread has a sandbox of template %q; delete it first to get one of %q", b.template.Name, named)
		}
		if use != nil {
			use(b)
		}
		err := r.waitReady(ctx, b, wait)
		if cold = cold || errors.Is(err, errNotFilled); !errors.Is(err, errNotFilled) && !errors.Is(err, errGivenUp) {
			return b, err
		}
	}
}

// start brings the box up and tells its waiters. When it fails nothing is left over.
func (r *Orchestrator) start(ctx context.Context, c sandbox.Caller, b *box, former *box) {
	began := b.asked
	if former != nil {
		select {
		case <-former.gone:
		case <-ctx.Done():
		}
	}
	queued := time.Now()
	action := audit.ActionSandboxCreate
	if b.pooled != nil {
		action = audit.ActionSandboxClaim
	} else {
		r.pool.callers.Add(1)
		defer r.pool.callers.Add(-1)
	}
	rec := record(c, b.thread, action, audit.PhaseAttempt)
	rec.Sandbox, rec.Subject = string(b.id), b.template.Name
	recordLoosened(&rec, b.template.Loosened)
	attempt, err := r.o.Audit.Append(ctx, rec)
	if err == nil {
		err = r.bringUp(ctx, c, b, queued.Sub(began))
	}
	result := record(c, b.thread, action, audit.PhaseResult)
	result.Sandbox, result.Subject, result.Parent = string(b.id), b.template.Name, attempt.ID
	result.Millis, result.Outcome = time.Since(began).Milliseconds(), "ok"
	if err != nil {
		result.Outcome, result.Detail = "error", string(sandbox.KindOf(err))
	}
	if _, e := r.o.Audit.Append(context.WithoutCancel(ctx), result); e != nil && err == nil {
		err = e
	}
	r.measureStart(b, err)
	if err != nil {
		r.o.Log.Error("sandbox did not start", "thread", b.thread.String(), "sandbox", string(b.id), "error", err)
		b.err = err
		b.end(sandbox.StatusLost)
		r.remove(ctx, b)
	}
	close(b.ready)
}

func (r *Orchestrator) bringUp(ctx context.Context, c sandbox.Caller, b *box, queued time.Duration) error {
	began := time.Now()
	h, err := r.acquire(ctx, b.thread, "")
	if err != nil {
		return notHere(err)
	}
	b.mu.Lock() // others may find the box and ask whose it is
	b.hold = h
	b.mu.Unlock()
	if err := r.withSandbox(ctx, h, b.id); err != nil {
		return notHere(err)
	}
	if b.pooled != nil {
		return r.bringUpClaimed(ctx, c, b, queued)
	}
	uid, err := r.ensureThread(ctx, b.thread)
	if err != nil {
		return err
	}
	b.uid = uid
	if err := r.bound(b.thread, uid, b.template.Limits.DiskBytes); err != nil {
		return err
	}
	if err = os.MkdirAll(b.dir, 0o711); err == nil {
		b.skills.folder, err = r.o.Views.Folder(b.viewDir())
	}
	if err == nil {
		err = r.open(b)
	}
	if err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the sandbox cannot be prepared")
	}
	tools := r.firstTools(c, b)
	skills := make(chan error, 1)
	r.wg.Go(func() { skills <- r.firstSkills(ctx, b) })
	if b.template.Prepare != nil {
		err = b.template.Prepare(ctx)
	}
	if b.copies != nil { // they are copied when it is made
		shown := <-skills
		skills <- nil
		err = errors.Join(err, shown)
	}
	if err == nil {
		err = r.makeWay(ctx)
	}
	if err == nil {
		err = r.makeSandbox(ctx, b)
	}
	created := time.Now()
	if e := <-skills; err == nil {
		err = e
	}
	if err == nil {
		err = b.hello(ctx)
	}
	if err != nil {
		// They write into the box's folder, which goes now.
		return errors.Join(err, <-tools)
	}
	if !r.confirm(h) { // this server was stopped meanwhile
		return errors.Join(notHere(&elsewhere{}), <-tools)
	}
	return r.broughtUp(ctx, b, sandbox.Timings{Queue: millis(queued), Create: millis(created.Sub(began)), Ready: millis(time.Since(created))}, tools)
}

// firstTools writes the wrappers of a box that starts. They take as long as the slowest MCP server; nothing need wait for
// them but the end of a start that failed.
func (r *Orchestrator) firstTools(c sandbox.Caller, b *box) <-chan error {
	tools := make(chan error, 1)
	r.wg.Go(func() { tools <- r.refreshTools(r.ctx, c, b) })
	return tools
}

// broughtUp makes known that a box runs.
func (r *Orchestrator) broughtUp(ctx context.Context, b *box, took sandbox.Timings, tools <-chan error) error {
	b.mu.Lock()
	b.info.State = sandbox.Running
	b.info.Timings = took
	env := b.env
	b.mu.Unlock()
	r.warm(b, env)
	r.wg.Go(func() {
		if err := <-tools; err != nil {
			r.o.Log.Warn("wrappers not written; they are when code runs", "thread", b.thread.String(), "error", err)
		}
	})
	return r.publish(ctx, b)
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// open makes the box's folder and both sockets.
func (r *Orchestrator) open(b *box) error {
	if err := r.openLink(b); err != nil {
		return err
	}
	return r.openBridge(b)
}

// openLink makes the box's folder and the socket that sandboxd dials.
func (r *Orchestrator) openLink(b *box) error {
	if err := os.MkdirAll(b.dir, 0o711); err != nil {
		return err
	}
	for _, dir := range []string{b.sock(), b.codeAPI()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	var err error
	b.link, err = link.Listen(link.ListenOptions{Dir: b.sock(), UID: b.uid, SecretFile: b.secretFile(), Log: r.o.Log})
	if err != nil {
		return err
	}
	b.client = client.New(b.link, func(ctx context.Context) bool { return r.stillRuns(ctx, b) })
	return nil
}

// openBridge makes the socket for tool calls, which knows the thread.
func (r *Orchestrator) openBridge(b *box) (err error) {
	b.bridge, err = r.o.Bridge.Serve(b.sock(), b.uid, b.thread)
	return err
}

// hello waits until sandboxd has dialled and answers.
func (b *box) hello(ctx context.Context) error {
	st, err := b.client.Status(ctx)
	if err != nil {
		return sandbox.Wrap(sandbox.SandboxLost, err, "the sandbox started but does not answer")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.languages = st.GetLanguages()
	return nil
}

func (r *Orchestrator) spec(b *box) sandbox.Spec {
	spec := r.specOf(b, r.threadDir(b.thread))
	spec.Labels = map[string]string{
		sandbox.LabelInstall: r.o.Install, sandbox.LabelTenant: b.thread.Tenant, sandbox.LabelUser: b.thread.User,
		sandbox.LabelThread: b.thread.ID, sandbox.LabelTemplate: b.template.Name, sandbox.LabelReplica: r.peers.ID(),
	}
	loosen(&spec, b.template.Loosened)
	if b.hold != nil {
		spec.Token = b.hold.token.Load()
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
func (r *Orchestrator) specOf(b *box, files string) sandbox.Spec {
	return sandbox.Spec{
		ID: b.id, Image: b.template.Image, Runtime: b.template.Runtime, UID: b.uid,
		Daemon: r.o.Daemon, Hostname: hostname, Limits: b.template.Limits, ClaimPool: b.template.ClaimPool,
		Mounts: []sandbox.Mount{
			{Source: files, Target: sandbox.UserDataDir},
			{Source: b.skills.folder.Skills(), Target: sandbox.SkillsDir, ReadOnly: true},
			{Source: b.skills.folder.Plugins(), Target: sandbox.PluginsDir, ReadOnly: true},
			{Source: b.codeAPI(), Target: sandbox.CodeAPIDir, ReadOnly: true},
			{Source: b.sock(), Target: sandbox.RunDir, ReadOnly: true},
		},
	}
}

// retire ends the sandbox of a box, once; its execs end with status. It returns when all of it is gone.
func (r *Orchestrator) retire(ctx context.Context, c sandbox.Caller, b *box, status sandbox.Status, why string) error {
	b.giveUp(sandbox.Errorf(sandbox.Conflict, "the sandbox was %s before it started", why)) // one that waits for its place
	select {                                                                                // a box that is starting is not pulled from under its start
	case <-b.ready:
	case <-ctx.Done():
		return sandbox.Wrap(sandbox.Timeout, ctx.Err(), "the sandbox is still starting")
	}
	if b.hold != nil && b.err == nil && !r.confirm(b.hold) {
		return nil // it is another server's now
	}
	b.mu.Lock()
	first := b.ending == ""
	if first {
		b.ending = status
		b.info.State = sandbox.Stopping
	}
	b.mu.Unlock()
	if !first {
		select {
		case <-b.gone:
			return nil
		case <-ctx.Done():
			return sandbox.Wrap(sandbox.Timeout, ctx.Err(), "the sandbox is still stopping")
		}
	}
	rec := record(c, b.thread, audit.ActionSandboxRemove, audit.PhaseResult)
	rec.Sandbox, rec.Subject, rec.Outcome, rec.Detail = string(b.id), b.template.Name, "ok", why
	err := r.note(context.WithoutCancel(ctx), rec)
	r.o.Metrics.Changed(audit.ActionSandboxRemove, string(status))
	r.remove(ctx, b)
	return err
}

// remove takes away all of a box whose ending is set, and takes it out of the map. What the driver
// cannot remove now keeps its claim: nothing begins for the thread before it is gone.
func (r *Orchestrator) remove(ctx context.Context, b *box) {
	r.lastPull(ctx, b)
	ctx, cancel := detached(ctx, removeTimeout)
	defer cancel()
	log := r.o.Log.With("thread", b.thread.String(), "sandbox", string(b.id))
	r.countLast(ctx, b)
	theirs, removed := r.removeSandbox(ctx, b)
	if theirs {
		r.abandonTo(b)
		return
	}
	if removed != nil {
		log.Error("sandbox not removed; tried again later", "error", removed)
		if b.hold != nil {
			b.hold.unremoved.Store(true)
			r.leftBehind.Store(true)
		}
	}
	if err := b.letGo(); err != nil {
		log.Warn("sockets not closed", "error", err)
	}
	b.forbidWrappers()
	r.endSkills(b, removed == nil)
	if err := os.RemoveAll(b.dir); err != nil {
		log.Error("run folder not removed", "error", err)
	}
	r.endClaim(b, removed == nil)
	if removed == nil {
		r.keepLast(b)
	}
	if err := r.o.Store.DeleteSandbox(ctx, b.thread, b.id); err != nil {
		log.Warn("sandbox record not deleted", "error", err)
	}
	if b.hold != nil {
		r.release(b.hold)
	}
	r.leaveMap(b)
}

// find gives the thread's box, or nil.
func (r *Orchestrator) find(t sandbox.Thread) *box {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.boxes[t]
}

// all is every box of this moment.
func (r *Orchestrator) all() []*box {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]*box, 0, len(r.boxes))
	for _, b := range r.boxes {
		list = append(list, b)
	}
	return list
}

// watch ends the boxes whose sandbox died.
func (r *Orchestrator) watch(events <-chan driver.Event) {
	for ev := range events {
		if ev.State != sandbox.Lost {
			continue
		}
		if x := r.pool.remove(ev.ID); x != nil {
			r.wg.Go(func() { r.discard(x, "ended") })
			continue
		}
		if b := r.findSandbox(ev.ID); b != nil { // after: one that was taken out of the pool meanwhile is here
			r.wg.Go(func() { r.died(b, ev.OOM) })
		}
	}
}

// findSandbox gives the box of a sandbox, or nil.
func (r *Orchestrator) findSandbox(id sandbox.ID) *box {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byID[id]
}

// died retires a box whose sandbox ended by itself. When it ran out of memory, its execs say so.
func (r *Orchestrator) died(b *box, oom bool) {
	status, why := sandbox.StatusLost, "the sandbox ended by itself"
	if oom {
		status, why = sandbox.StatusOOM, "the sandbox ran out of memory"
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), r.o.StartTime+removeTimeout)
	defer cancel()
	if err := r.retire(ctx, sandbox.Caller{}, b, status, why); err != nil {
		r.o.Log.Error("dead sandbox not retired", "thread", b.thread.String(), "error", err)
	}
}
