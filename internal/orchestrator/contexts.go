package orchestrator

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/platform/deadline"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
)

// Stateful contexts: interpreters of a thread that keep their variables between runs. They live in its
// sandbox and die with it; what remains then is their name, which a restart gives a new interpreter.

const (
	// keepLost is how many contexts that no longer exist a thread is told of, and for how long.
	keepLost     = 16
	keepLostTime = time.Hour
	// interruptWait is how long an interrupt waits for the run to end before it answers all the same.
	interruptWait = 3 * time.Second
	// contextGrace is added to the deadline of a run in a context: it is interrupted first.
	contextGrace = 2 * time.Second
)

// Why a context is lost that nobody of ours ended.
const (
	goneWithSandbox = "it ended with its sandbox"
	goneByItself    = "its interpreter ended by itself"
	whatToDo        = "; its variables are gone: restart it, or make a new one"
)

// codeContext is a context as this process knows it. Its registry's mu guards what changes.
type codeContext struct {
	id       string
	thread   sandbox.Thread
	language string
	cwd      string

	state    sandbox.ContextState
	detail   string             // why it is lost
	inst     *instance.Instance // that it lives in; nil when it is lost
	run      string             // id of the exec, while busy
	life     int                // counts restarts, so that the end of a former life ends nothing
	created  time.Time
	lastUsed time.Time
	runs     int
	free     chan struct{} // closed when a run ends
}

// contextRegistry holds the contexts of all threads.
type contextRegistry struct {
	mu       sync.Mutex
	byThread map[sandbox.Thread]map[string]*codeContext
}

// show is c as the API shows it. Called with the registry's mu held.
func (c *codeContext) show() sandbox.CodeContext {
	return sandbox.CodeContext{
		ContextID: c.id, Language: c.language, Cwd: c.cwd, State: c.state, Detail: c.detail, ExecID: c.run,
		CreatedAt: c.created, LastUsedAt: c.lastUsed, Runs: c.runs,
	}
}

// lose ends a life of c. Called with the registry's mu held.
func (c *codeContext) lose(why string) {
	c.state, c.detail, c.inst, c.run = sandbox.ContextLost, why+whatToDo, nil, ""
	c.lastUsed = time.Now().UTC()
	c.release()
}

// release tells those who wait for the end of a run.
func (c *codeContext) release() {
	if c.free != nil {
		close(c.free)
		c.free = nil
	}
}

// settle marks those of a thread whose sandbox has ended, and lets go of lost ones that are too many.
// Called with mu held.
func (g *contextRegistry) settle(t sandbox.Thread) {
	var lost []*codeContext
	for _, c := range g.byThread[t] {
		// The end of a run says what became of it; until then it is busy.
		if c.inst != nil && c.state != sandbox.ContextBusy && c.inst.Ending() != "" {
			c.lose(goneWithSandbox)
		}
		if c.state == sandbox.ContextLost {
			lost = append(lost, c)
		}
	}
	slices.SortFunc(lost, func(a, b *codeContext) int { return b.lastUsed.Compare(a.lastUsed) })
	for i, c := range lost {
		if i >= keepLost || time.Since(c.lastUsed) > keepLostTime {
			g.remove(c)
		}
	}
}

// remove is called with mu held.
func (g *contextRegistry) remove(c *codeContext) {
	if g.byThread[c.thread][c.id] == c {
		delete(g.byThread[c.thread], c.id)
	}
	if len(g.byThread[c.thread]) == 0 {
		delete(g.byThread, c.thread)
	}
}

// get finds a context. NotFound. Called with mu held.
func (g *contextRegistry) get(t sandbox.Thread, id string) (*codeContext, error) {
	g.settle(t)
	c := g.byThread[t][id]
	if c == nil {
		return nil, noContext(t, id)
	}
	return c, nil
}

func noContext(t sandbox.Thread, id string) error {
	return sandbox.Errorf(sandbox.NotFound, "thread %q has no context %.80q; POST /api/threads/%s/contexts makes one", t.ID, id, t.ID)
}

// add puts c in, unless its thread has enough that live. Called with mu held.
func (g *contextRegistry) add(c *codeContext) error {
	g.settle(c.thread)
	if n := g.living(c.thread); n >= sandbox.MaxContexts {
		return sandbox.Errorf(sandbox.CapacityExceeded, "the thread has %d contexts, its most; delete one", n)
	}
	if g.byThread == nil {
		g.byThread = map[sandbox.Thread]map[string]*codeContext{}
	}
	if g.byThread[c.thread] == nil {
		g.byThread[c.thread] = map[string]*codeContext{}
	}
	g.byThread[c.thread][c.id] = c
	return nil
}

func (g *contextRegistry) living(t sandbox.Thread) (n int) {
	for _, c := range g.byThread[t] {
		if c.state != sandbox.ContextLost {
			n++
		}
	}
	return n
}

// forget drops the contexts of a thread that no longer exists.
func (g *contextRegistry) forget(t sandbox.Thread) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.byThread, t)
}

// CreateContext starts a context and returns it once it is ready, acquiring a sandbox when the thread has
// none. Invalid: no such language or folder; NotSupported: the sandbox has no interpreter that lives on
// for it; CapacityExceeded: the thread has MaxContexts.
func (r *Orchestrator) CreateContext(ctx context.Context, c sandbox.Caller, id string, q sandbox.ContextRequest) (sandbox.CodeContext, error) {
	t, err := c.Thread(id)
	if err != nil {
		return sandbox.CodeContext{}, err
	}
	if q.Language == "" {
		q.Language = r.o.CodeSettings(c.Tenant).Language
	}
	if q.Cwd == "" {
		q.Cwd = sandbox.WorkspaceDir
	}
	if err := checkContext(q); err != nil {
		return sandbox.CodeContext{}, err
	}
	name, err := uuid.NewV7()
	if err != nil {
		return sandbox.CodeContext{}, sandbox.Wrap(sandbox.Internal, err, "no id for the context")
	}
	now := time.Now().UTC()
	cc := &codeContext{id: name.String(), thread: t, language: q.Language, cwd: q.Cwd, state: sandbox.ContextStarting, created: now, lastUsed: now}
	g := &r.contexts
	g.mu.Lock()
	err = g.add(cc)
	g.mu.Unlock()
	if err != nil {
		return sandbox.CodeContext{}, err
	}
	if err := r.openContext(ctx, c, cc, audit.ActionContextOpen); err != nil {
		g.mu.Lock()
		g.remove(cc)
		g.mu.Unlock()
		return sandbox.CodeContext{}, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return cc.show(), nil
}

func checkContext(q sandbox.ContextRequest) error {
	switch {
	case !slices.Contains([]string{"python", "typescript", "javascript"}, q.Language):
		return sandbox.Errorf(sandbox.Invalid, "language %.40q: want python, typescript or javascript; a shell that lives on is an exec with a pty", q.Language)
	case !strings.HasPrefix(q.Cwd, "/") || strings.ContainsRune(q.Cwd, 0) || len(q.Cwd) > 4096:
		return sandbox.Errorf(sandbox.Invalid, "cwd %.200q: give an absolute path such as %s", q.Cwd, sandbox.WorkspaceDir)
	}
	return nil
}

// openContext brings a context that is marked as starting to life in the thread's sandbox, and records it.
func (r *Orchestrator) openContext(ctx context.Context, c sandbox.Caller, cc *codeContext, action string) error {
	inst, common, err := r.enter(ctx, c, cc.thread) // a sandbox in which one starts is not idle
	if err != nil {
		return err
	}
	defer func() {
		r.execs.cancel()
		r.left(inst)
	}()
	if err := r.refreshTools(ctx, c, inst); err != nil {
		r.o.Log.Warn("wrappers not written", "thread", cc.thread.String(), "error", err)
	}
	if err := r.upToDate(ctx, inst); err != nil {
		return err
	}
	rec := audit.About(c, cc.thread, action, audit.PhaseAttempt)
	rec.Sandbox, rec.Subject = string(inst.ID), cc.id
	rec.Args, rec.ArgsHash = audit.Args(sandbox.ContextRequest{Language: cc.language, Cwd: cc.cwd})
	attempt, err := r.o.Audit.Append(ctx, rec)
	if err != nil {
		return err
	}
	began := time.Now()
	inst.FileSync.Begin()
	defer inst.FileSync.End()
	err = inst.Client.OpenContext(ctx, &sandboxv1.OpenContextRequest{
		ContextId: cc.id, Language: cc.language, Cwd: cc.cwd, Javascript: inst.Template.JavaScript, Env: execEnv(cc.thread, "", "", common, nil),
	})
	rec.Parent, rec.Millis, rec.Outcome = attempt.ID, time.Since(began).Milliseconds(), "ok"
	if err != nil {
		rec.Outcome, rec.Detail = "error", string(sandbox.KindOf(err))
	}
	noted := r.o.Audit.AppendResult(context.WithoutCancel(ctx), rec)
	if err == nil && noted == nil {
		r.contexts.mu.Lock()
		defer r.contexts.mu.Unlock()
		now := time.Now().UTC()
		cc.state, cc.detail, cc.inst, cc.created, cc.lastUsed, cc.runs = sandbox.ContextIdle, "", inst, now, now, 0
		return nil
	}
	// It may have come up all the same: nobody must find it.
	clean, cancel := deadline.Detached(ctx, cleanupTimeout)
	defer cancel()
	if closed := inst.Client.CloseContext(clean, cc.id); closed != nil && inst.Ending() == "" {
		r.o.Log.Warn("context that did not start not ended", "thread", cc.thread.String(), "error", closed)
	}
	return errors.Join(err, noted)
}

// Contexts lists the contexts of a thread, oldest first: those that live, and the newest that were lost.
// It starts no sandbox.
func (r *Orchestrator) Contexts(ctx context.Context, c sandbox.Caller, id string) ([]sandbox.CodeContext, error) {
	t, err := c.Thread(id)
	if err != nil {
		return nil, err
	}
	if err := r.there(ctx, t); err != nil {
		return nil, err
	}
	r.lookAtContexts(ctx, t)
	g := &r.contexts
	g.mu.Lock()
	defer g.mu.Unlock()
	g.settle(t)
	list := []sandbox.CodeContext{}
	for _, cc := range g.byThread[t] {
		list = append(list, cc.show())
	}
	slices.SortFunc(list, func(a, b sandbox.CodeContext) int { return strings.Compare(a.ContextID, b.ContextID) }) // they begin with the time
	return list, nil
}

// Context returns one context of a thread.
func (r *Orchestrator) Context(ctx context.Context, c sandbox.Caller, id, contextID string) (sandbox.CodeContext, error) {
	list, err := r.Contexts(ctx, c, id)
	if err != nil {
		return sandbox.CodeContext{}, err
	}
	for _, cc := range list {
		if cc.ContextID == contextID {
			return cc, nil
		}
	}
	return sandbox.CodeContext{}, noContext(sandbox.Thread{Owner: c.Owner, ID: id}, contextID)
}

// lookAtContexts finds the idle contexts of a thread whose interpreter ended between runs. A sandbox that
// does not answer at once is not asked: the list is of what is known then.
func (r *Orchestrator) lookAtContexts(ctx context.Context, t sandbox.Thread) {
	inst := r.find(t)
	if inst == nil || !inst.IsReady() || inst.Info().State != sandbox.Running {
		return
	}
	g := &r.contexts
	before := map[*codeContext]int{} // those that are there already: a new one may be missing in an older answer
	g.mu.Lock()
	for _, cc := range g.byThread[t] {
		if cc.state == sandbox.ContextIdle && cc.inst == inst {
			before[cc] = cc.life
		}
	}
	g.mu.Unlock()
	if len(before) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	st, err := inst.Client.Status(ctx)
	if err != nil {
		return
	}
	alive := map[string]bool{}
	for _, s := range st.GetContexts() {
		alive[s.GetContextId()] = true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for cc, life := range before {
		if !alive[cc.id] && cc.life == life && cc.state == sandbox.ContextIdle {
			cc.lose(goneByItself)
		}
	}
}

// InterruptContext interrupts the run in a context, which keeps its variables, and waits a little for its
// end. An idle one is left as it is. Conflict: it is lost.
func (r *Orchestrator) InterruptContext(ctx context.Context, c sandbox.Caller, id, contextID string) (sandbox.CodeContext, error) {
	t, err := c.Thread(id)
	if err != nil {
		return sandbox.CodeContext{}, err
	}
	g := &r.contexts
	g.mu.Lock()
	cc, err := g.get(t, contextID)
	if err == nil && (cc.state == sandbox.ContextLost || cc.state == sandbox.ContextStarting) {
		err = cc.unfit()
	}
	if err != nil {
		g.mu.Unlock()
		return sandbox.CodeContext{}, err
	}
	inst, run, free := cc.inst, cc.run, cc.free
	g.mu.Unlock()
	if free != nil {
		rec := audit.About(c, t, audit.ActionContextInterrupt, audit.PhaseResult)
		rec.Sandbox, rec.Exec, rec.Subject, rec.Outcome = string(inst.ID), run, cc.id, "ok"
		if err := r.o.Audit.AppendResult(ctx, rec); err != nil {
			return sandbox.CodeContext{}, err
		}
		if err := r.interruptRun(ctx, inst, cc, run); err != nil {
			return sandbox.CodeContext{}, err
		}
		timer := time.NewTimer(interruptWait)
		defer timer.Stop()
		select {
		case <-free:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return cc.show(), nil
}

func (r *Orchestrator) interruptRun(ctx context.Context, inst *instance.Instance, cc *codeContext, run string) error {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	if e, err := r.execs.get(cc.thread, run); err == nil {
		if err := e.waitBegun(ctx); err != nil {
			return err
		}
	}
	err := inst.Client.InterruptContext(ctx, cc.id)
	if errors.Is(err, sandbox.NotFound) { // it ended just now
		return nil
	}
	return err
}

// unfit says why nothing can run in c. Called with the registry's mu held.
func (c *codeContext) unfit() error {
	switch c.state {
	case sandbox.ContextLost:
		return sandbox.Errorf(sandbox.Conflict, "context %s is lost: %s", c.id, c.detail)
	case sandbox.ContextBusy:
		return sandbox.Errorf(sandbox.Conflict, "context %s runs exec %s: wait for its end, or interrupt it", c.id, c.run)
	case sandbox.ContextStarting:
		return sandbox.Errorf(sandbox.Conflict, "context %s is starting", c.id)
	}
	return nil
}

// RestartContext ends what a context has and starts an empty interpreter for it, in a new sandbox when the
// thread has none any more. A run in it ends as killed. Conflict: it is starting.
func (r *Orchestrator) RestartContext(ctx context.Context, c sandbox.Caller, id, contextID string) (sandbox.CodeContext, error) {
	t, err := c.Thread(id)
	if err != nil {
		return sandbox.CodeContext{}, err
	}
	g := &r.contexts
	g.mu.Lock()
	cc, err := g.get(t, contextID)
	if err == nil && cc.state == sandbox.ContextStarting {
		err = cc.unfit()
	}
	if err == nil && cc.state == sandbox.ContextLost && g.living(t) >= sandbox.MaxContexts {
		err = sandbox.Errorf(sandbox.CapacityExceeded, "the thread has %d contexts, its most; delete one", sandbox.MaxContexts)
	}
	if err != nil {
		g.mu.Unlock()
		return sandbox.CodeContext{}, err
	}
	inst := cc.inst
	cc.state, cc.detail, cc.inst, cc.run = sandbox.ContextStarting, "", nil, ""
	cc.life++
	cc.release()
	g.mu.Unlock()
	err = r.closeIn(ctx, inst, cc.id)
	if err == nil {
		err = r.openContext(ctx, c, cc, audit.ActionContextRestart)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil {
		cc.lose("it could not be started again")
		return sandbox.CodeContext{}, err
	}
	return cc.show(), nil
}

// closeIn ends the interpreter of a context in its instance. nil, and one that has ended, have none.
func (r *Orchestrator) closeIn(ctx context.Context, inst *instance.Instance, contextID string) error {
	if inst == nil || inst.Ending() != "" {
		return nil
	}
	err := inst.Client.CloseContext(ctx, contextID)
	if errors.Is(err, sandbox.SandboxLost) {
		return nil
	}
	return err
}

// DeleteContext ends a context with all that it started, and forgets it. A run in it ends as killed.
func (r *Orchestrator) DeleteContext(ctx context.Context, c sandbox.Caller, id, contextID string) error {
	t, err := c.Thread(id)
	if err != nil {
		return err
	}
	return r.endContext(ctx, c, t, contextID, "")
}

// endContext ends a context, for a reason that the record says. NotFound.
func (r *Orchestrator) endContext(ctx context.Context, c sandbox.Caller, t sandbox.Thread, contextID, why string) error {
	g := &r.contexts
	g.mu.Lock()
	cc, err := g.get(t, contextID)
	if err == nil && cc.state == sandbox.ContextStarting {
		err = cc.unfit()
	}
	if err != nil {
		g.mu.Unlock()
		return err
	}
	inst := cc.inst
	g.mu.Unlock()
	rec := audit.About(c, t, audit.ActionContextClose, audit.PhaseResult)
	rec.Subject, rec.Outcome, rec.Detail = cc.id, "ok", why
	if inst != nil {
		rec.Sandbox = string(inst.ID)
	}
	if err := r.o.Audit.AppendResult(ctx, rec); err != nil {
		return err
	}
	if err := r.closeIn(ctx, inst, cc.id); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if why == "" {
		g.remove(cc)
	} else {
		cc.lose(why)
	}
	return nil
}

// expireContexts ends contexts that nobody used for ContextIdleTime.
func (r *Orchestrator) expireContexts() {
	g := &r.contexts
	var old []*codeContext
	g.mu.Lock()
	for t, list := range g.byThread {
		g.settle(t)
		for _, cc := range list {
			if cc.state == sandbox.ContextIdle && time.Since(cc.lastUsed) > sandbox.ContextIdleTime {
				old = append(old, cc)
			}
		}
	}
	g.mu.Unlock()
	for _, cc := range old {
		ctx, cancel := context.WithTimeout(r.ctx, cleanupTimeout)
		if err := r.endContext(ctx, sandbox.Caller{}, cc.thread, cc.id, "nobody used it for an hour"); err != nil {
			r.o.Log.Warn("idle context not ended", "thread", cc.thread.String(), "error", err)
		}
		cancel()
	}
}

// adoptContexts takes over the contexts of an adopted sandbox, whose variables outlived the former server.
// Those in which something ran were ended with it.
func (r *Orchestrator) adoptContexts(ctx context.Context, inst *instance.Instance, known []*sandboxv1.ContextStatus) {
	if len(known) == 0 {
		return
	}
	st, err := inst.Client.Status(ctx)
	if err != nil {
		r.o.Log.Warn("contexts of an adopted sandbox not listed", "thread", inst.Thread.String(), "error", err)
		return
	}
	g := &r.contexts
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now().UTC()
	for _, s := range st.GetContexts() {
		q := sandbox.ContextRequest{Language: s.GetLanguage(), Cwd: s.GetCwd()}
		if uuid.Validate(s.GetContextId()) != nil || checkContext(q) != nil || path.Clean(q.Cwd) != q.Cwd {
			continue // not one of ours
		}
		created := time.UnixMilli(s.GetStartedUnixMs()).UTC()
		if created.After(now) || created.Before(inst.Info().CreatedAt) {
			created = inst.Info().CreatedAt
		}
		cc := &codeContext{
			id: s.GetContextId(), thread: inst.Thread, language: q.Language, cwd: q.Cwd,
			state: sandbox.ContextIdle, inst: inst, created: created, lastUsed: now,
		}
		if err := g.add(cc); err != nil {
			r.o.Log.Warn("context not taken over", "thread", inst.Thread.String(), "error", err)
		}
	}
}
