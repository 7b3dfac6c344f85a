package contexts

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/platform/deadline"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
)

const (
	// keepLost is how many contexts that no longer exist a thread is told of, and for how long.
	keepLost     = 16
	keepLostTime = time.Hour
	// interruptWait is how long an interrupt waits for the run to end before it answers all the same.
	interruptWait = 3 * time.Second
	// endTimeout bounds what is sent to end a context, or a run in it.
	endTimeout = 10 * time.Second
	// statusTimeout bounds the question which contexts are alive.
	statusTimeout = 2 * time.Second
	// Grace is added to the deadline of a run in a context: sandboxd interrupts it first, and waits for 3 s.
	Grace = 4 * time.Second
)

// Why a context is lost that the server did not end.
const (
	// GoneWithSandbox: the sandbox ended first.
	GoneWithSandbox = "it ended with its sandbox"
	// GoneByItself: its process did.
	GoneByItself = "its interpreter ended by itself"
	// WhatToDo follows each reason.
	WhatToDo = "; its variables are gone: restart it, or make a new one"
)

// Sandboxes are those of this server, and what runs in them, as contexts see them.
type Sandboxes interface {
	// Enter returns the thread's running sandbox, which it starts if there is none, with the variables of every exec.
	// The sandbox counts as used until Leave.
	Enter(ctx context.Context, c sandbox.Caller, t sandbox.Thread) (*instance.Instance, map[string]string, error)
	// Leave counts out what Enter counted in.
	Leave(inst *instance.Instance)
	// Prepare updates tools and skills in a sandbox for a caller.
	Prepare(ctx context.Context, c sandbox.Caller, inst *instance.Instance) error
	// Find returns the thread's sandbox, nil if it has none.
	Find(t sandbox.Thread) *instance.Instance
	// Exists returns NotFound for a thread that does not exist.
	Exists(ctx context.Context, t sandbox.Thread) error
	// WaitBegun waits until the exec has begun in its sandbox. NotFound.
	WaitBegun(ctx context.Context, t sandbox.Thread, exec string) error
}

// Options are the parts that Contexts work with.
type Options struct {
	Registry  *Registry
	Sandboxes Sandboxes
	// Language is the default language of a tenant.
	Language func(tenant string) string
}

// Contexts are the contexts of all threads that this server runs, for callers.
type Contexts struct {
	*Registry
	o Options
}

// New returns the contexts of a registry.
func New(o Options) *Contexts { return &Contexts{Registry: o.Registry, o: o} }

// Living returns how many contexts of a thread are not lost.
func (g *Registry) Living(t sandbox.Thread) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.living(t)
}

// Forget drops the contexts of a thread that no longer exists.
func (g *Registry) Forget(t sandbox.Thread) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.byThread, t)
}

// Backdate makes all contexts of a thread longer unused: tests of lifetimes do not wait.
func (g *Registry) Backdate(t sandbox.Thread, d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, cc := range g.byThread[t] {
		cc.lastUsed = cc.lastUsed.Add(-d)
	}
}

// CreateContext starts a context and returns it once it is ready, acquiring a sandbox when the thread has
// none. Invalid: no such language or folder; NotSupported: the sandbox has no interpreter that lives on
// for it; CapacityExceeded: the thread has MaxContexts.
func (x *Contexts) CreateContext(ctx context.Context, c sandbox.Caller, id string, q sandbox.ContextRequest) (sandbox.CodeContext, error) {
	t, err := c.Thread(id)
	if err != nil {
		return sandbox.CodeContext{}, err
	}
	if q.Language = sandbox.LanguageOf(q.Language); q.Language == "" {
		q.Language = x.o.Language(c.Tenant)
	}
	if q.Cwd == "" {
		q.Cwd = sandbox.WorkspaceDir
	}
	if err := q.Validate(); err != nil {
		return sandbox.CodeContext{}, err
	}
	name, err := uuid.NewV7()
	if err != nil {
		return sandbox.CodeContext{}, sandbox.Wrap(sandbox.Internal, err, "no id for the context")
	}
	now := time.Now().UTC()
	cc := &entry{id: name.String(), thread: t, language: q.Language, cwd: q.Cwd, state: sandbox.ContextStarting, created: now, lastUsed: now}
	g := x.Registry
	g.mu.Lock()
	err = g.add(cc)
	g.mu.Unlock()
	if err != nil {
		return sandbox.CodeContext{}, err
	}
	if err := x.open(ctx, c, cc, audit.ActionContextOpen); err != nil {
		g.mu.Lock()
		g.remove(cc)
		g.mu.Unlock()
		return sandbox.CodeContext{}, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return cc.show(), nil
}

// openContext starts the interpreter of a context that is marked as starting, and records it.
func (x *Contexts) open(ctx context.Context, c sandbox.Caller, cc *entry, action string) error {
	inst, common, err := x.o.Sandboxes.Enter(ctx, c, cc.thread) // a sandbox in which one starts is not idle
	if err != nil {
		return err
	}
	defer x.o.Sandboxes.Leave(inst)
	if err := x.o.Sandboxes.Prepare(ctx, c, inst); err != nil {
		return err
	}
	rec := audit.About(c, cc.thread, action, audit.PhaseAttempt)
	rec.Sandbox, rec.Subject = string(inst.ID), cc.id
	rec.Args, rec.ArgsHash = audit.Args(sandbox.ContextRequest{Language: cc.language, Cwd: cc.cwd})
	attempt, err := x.audit.Append(ctx, rec)
	if err != nil {
		return err
	}
	began := time.Now()
	inst.FileSync.Begin()
	defer inst.FileSync.End()
	err = inst.Conn.Client.OpenContext(ctx, &sandboxv1.OpenContextRequest{
		ContextId: cc.id, Language: cc.language, Cwd: cc.cwd, Javascript: inst.Template.JavaScript, Env: instance.Environ(cc.thread, "", "", common, nil),
	})
	rec.Parent, rec.Millis, rec.Outcome = attempt.ID, time.Since(began).Milliseconds(), "ok"
	if err != nil {
		rec.Outcome, rec.Detail = "error", string(sandbox.KindOf(err))
	}
	noted := x.audit.AppendResult(context.WithoutCancel(ctx), rec)
	if err == nil && noted == nil {
		x.mu.Lock()
		defer x.mu.Unlock()
		now := time.Now().UTC()
		cc.state, cc.detail, cc.inst, cc.created, cc.lastUsed, cc.runs = sandbox.ContextIdle, "", inst, now, now, 0
		return nil
	}
	// It may have come up all the same: no caller may find it.
	clean, cancel := deadline.Detached(ctx, endTimeout)
	defer cancel()
	if closed := inst.Conn.Client.CloseContext(clean, cc.id); closed != nil && inst.Ending() == "" {
		x.log.Warn("context that did not start not ended", "thread", cc.thread.String(), "error", closed)
	}
	return errors.Join(err, noted)
}

// Contexts lists the contexts of a thread, oldest first: the living ones, and the newest lost ones. It
// starts no sandbox.
func (x *Contexts) Contexts(ctx context.Context, c sandbox.Caller, id string) ([]sandbox.CodeContext, error) {
	t, err := c.Thread(id)
	if err != nil {
		return nil, err
	}
	if err := x.o.Sandboxes.Exists(ctx, t); err != nil {
		return nil, err
	}
	x.lookAt(ctx, t)
	g := x.Registry
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
func (x *Contexts) Context(ctx context.Context, c sandbox.Caller, id, contextID string) (sandbox.CodeContext, error) {
	list, err := x.Contexts(ctx, c, id)
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

// lookAt finds the idle contexts of a thread whose interpreter ended between runs. A sandbox that
// does not answer at once is not asked: the list is of what is known then.
func (x *Contexts) lookAt(ctx context.Context, t sandbox.Thread) {
	inst := x.o.Sandboxes.Find(t)
	if inst == nil || !inst.IsReady() || inst.Info().State != sandbox.Running {
		return
	}
	g := x.Registry
	before := map[*entry]int{} // entries that are there already: a new one may be missing in an older answer
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
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	st, err := inst.Conn.Client.Status(ctx)
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
			cc.lose(GoneByItself)
		}
	}
}

// InterruptContext interrupts the run in a context, which keeps its variables, and waits a little for its
// end. An idle one is left as it is. Conflict: it is lost.
func (x *Contexts) InterruptContext(ctx context.Context, c sandbox.Caller, id, contextID string) (sandbox.CodeContext, error) {
	t, err := c.Thread(id)
	if err != nil {
		return sandbox.CodeContext{}, err
	}
	g := x.Registry
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
		if err := x.audit.AppendResult(ctx, rec); err != nil {
			return sandbox.CodeContext{}, err
		}
		if err := x.interruptRun(ctx, inst, cc, run); err != nil {
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

func (x *Contexts) interruptRun(ctx context.Context, inst *instance.Instance, cc *entry, run string) error {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	if err := x.o.Sandboxes.WaitBegun(ctx, cc.thread, run); err != nil && !errors.Is(err, sandbox.NotFound) {
		return err
	}
	err := inst.Conn.Client.InterruptContext(ctx, cc.id)
	if errors.Is(err, sandbox.NotFound) { // it ended just now
		return nil
	}
	return err
}

// RestartContext ends what a context has and starts an empty interpreter for it, in a new sandbox when the
// thread has none any more. A run in it ends as killed. Conflict: it is starting.
func (x *Contexts) RestartContext(ctx context.Context, c sandbox.Caller, id, contextID string) (sandbox.CodeContext, error) {
	t, err := c.Thread(id)
	if err != nil {
		return sandbox.CodeContext{}, err
	}
	g := x.Registry
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
	err = x.closeIn(ctx, inst, cc.id)
	if err == nil {
		err = x.open(ctx, c, cc, audit.ActionContextRestart)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil {
		cc.lose("it could not be started again")
		return sandbox.CodeContext{}, err
	}
	return cc.show(), nil
}

// closeIn ends the interpreter of a context in its instance. nil, and an ended instance, have none.
func (g *Registry) closeIn(ctx context.Context, inst *instance.Instance, contextID string) error {
	if inst == nil || inst.Ending() != "" {
		return nil
	}
	err := inst.Conn.Client.CloseContext(ctx, contextID)
	if errors.Is(err, sandbox.SandboxLost) {
		return nil
	}
	return err
}

// DeleteContext ends a context with all that it started, and forgets it. A run in it ends as killed.
func (x *Contexts) DeleteContext(ctx context.Context, c sandbox.Caller, id, contextID string) error {
	t, err := c.Thread(id)
	if err != nil {
		return err
	}
	return x.end(ctx, c, t, contextID, "")
}

// endContext ends a context, for a reason that the record says. NotFound.
func (g *Registry) end(ctx context.Context, c sandbox.Caller, t sandbox.Thread, contextID, why string) error {
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
	if err := g.audit.AppendResult(ctx, rec); err != nil {
		return err
	}
	if err := g.closeIn(ctx, inst, cc.id); err != nil {
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

// Expire ends contexts that were not used for ContextIdleTime.
func (g *Registry) Expire(ctx context.Context) {
	var old []*entry
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
		ctx, cancel := context.WithTimeout(ctx, endTimeout)
		if err := g.end(ctx, sandbox.Caller{}, cc.thread, cc.id, "it was not used for an hour"); err != nil {
			g.log.Warn("idle context not ended", "thread", cc.thread.String(), "error", err)
		}
		cancel()
	}
}

// Adopt takes over the contexts of an adopted sandbox, whose variables outlived the former server.
// Those in which something ran were ended with it.
func (g *Registry) Adopt(ctx context.Context, inst *instance.Instance, known []*sandboxv1.ContextStatus) {
	if len(known) == 0 {
		return
	}
	st, err := inst.Conn.Client.Status(ctx)
	if err != nil {
		g.log.Warn("contexts of an adopted sandbox not listed", "thread", inst.Thread.String(), "error", err)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now().UTC()
	for _, s := range st.GetContexts() {
		q := sandbox.ContextRequest{Language: s.GetLanguage(), Cwd: s.GetCwd()}
		if uuid.Validate(s.GetContextId()) != nil || q.Validate() != nil || path.Clean(q.Cwd) != q.Cwd {
			continue // not one of ours
		}
		created := time.UnixMilli(s.GetStartedUnixMs()).UTC()
		if created.After(now) || created.Before(inst.Info().CreatedAt) {
			created = inst.Info().CreatedAt
		}
		cc := &entry{
			id: s.GetContextId(), thread: inst.Thread, language: q.Language, cwd: q.Cwd,
			state: sandbox.ContextIdle, inst: inst, created: created, lastUsed: now,
		}
		if err := g.add(cc); err != nil {
			g.log.Warn("context not taken over", "thread", inst.Thread.String(), "error", err)
		}
	}
}
