package contexts

import (
	"fmt"
	"time"

	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
)

// Run is the claim of one exec on a context.
type Run struct {
	entry *entry
	life  int
	inst  *instance.Instance
}

// ID names the context.
func (u *Run) ID() string { return u.entry.id }

// Instance is the sandbox that the context lives in.
func (u *Run) Instance() *instance.Instance { return u.inst }

// Acquire makes a context busy with an exec that is about to start. Errors: NotFound; Conflict: it is
// lost, starting, or runs another exec; Invalid: another language is asked for.
func (g *Registry) Acquire(t sandbox.Thread, code *sandbox.Code) (*Run, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	cc, err := g.get(t, code.ContextID)
	if err != nil {
		return nil, err
	}
	if code.Language != "" && code.Language != cc.language {
		return nil, sandbox.Errorf(sandbox.Invalid, "language: context %s is %s", cc.id, cc.language)
	}
	if err := cc.unfit(); err != nil {
		return nil, err
	}
	code.Language = cc.language
	cc.state, cc.free = sandbox.ContextBusy, make(chan struct{})
	return &Run{entry: cc, life: cc.life, inst: cc.inst}, nil
}

// Begin says which exec it is that the context runs.
func (g *Registry) Begin(u *Run, execID string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if u.entry.life == u.life {
		u.entry.run = execID
		u.entry.runs++
	}
}

// End frees a context after a run, or after a run that did not start. lost is why the context no longer exists, or "".
func (g *Registry) End(u *Run, lost string) sandbox.ContextOutcome {
	g.mu.Lock()
	defer g.mu.Unlock()
	cc := u.entry
	out := sandbox.ContextOutcome{ContextID: cc.id, State: sandbox.ContextIdle}
	switch {
	case lost != "":
		out.State, out.Detail = sandbox.ContextLost, lost+WhatToDo
		if cc.life == u.life {
			cc.lose(lost)
		}
	case cc.life == u.life:
		cc.state, cc.run, cc.lastUsed = sandbox.ContextIdle, "", time.Now().UTC()
		cc.release()
	}
	return out
}

// LostBy says why a context is lost after an exec that ended so, "" when it is not. exit is nil when the sandbox is lost.
func LostBy(exit *sandboxv1.Exit, res *sandbox.Result) string {
	switch {
	case exit == nil:
		return GoneWithSandbox
	case !exit.GetContextLost():
		return ""
	case exit.GetStatus() == sandboxv1.Exit_STATUS_FAILED_TO_START:
		return GoneByItself
	case res.Status == sandbox.StatusTimeout:
		return "it did not stop at the deadline, so it was ended"
	case res.Status == sandbox.StatusOOM:
		return "it ran out of memory"
	case res.Status == sandbox.StatusKilled:
		return "it was ended"
	case res.ExitCode != nil:
		return fmt.Sprintf("its interpreter ended with code %d", *res.ExitCode)
	}
	return GoneByItself
}
