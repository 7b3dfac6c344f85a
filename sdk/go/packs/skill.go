package packs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"connectrpc.com/connect"

	skerry "github.com/skerry-sandbox/skerry/sdk/go"
)

// AttachedSkill is a skill of one thread whose tools are functions of this program.
type AttachedSkill struct {
	// Added is the skill as the server has it, with the key of its tools.
	Added *skerry.AddedSkill

	pack   *Pack
	thread *skerry.Thread
	skill  skerry.VirtualSkill
	server Server
	cancel context.CancelFunc
	done   chan struct{}
	err    error // set when done is closed
}

// removeTime is how long the server may take to remove a skill whose program ends.
const removeTime = 10 * time.Second

// AttachSkill gives a thread a skill whose tools are those of p, and returns when they can be called: the agent sees them
// once it has activated the skill. p.ID is the skill's name, or empty. s has the address of the thread's server; its
// Credential is not used.
//
// The tools are there until Close, or the end of ctx: then the skill is removed. When the server has lost the skill,
// because it was restarted, it is attached again. When another program has removed or replaced it, or the thread is
// deleted, it is not: Done is closed, and Err says so.
func AttachSkill(ctx context.Context, t *skerry.Thread, skill skerry.VirtualSkill, p *Pack, s Server) (*AttachedSkill, error) {
	if p.ID == "" {
		p.ID = skill.Name
	}
	if p.ID != skill.Name {
		return nil, fmt.Errorf("packs: the pack %q cannot be that of the skill %q: they have one name", p.ID, skill.Name)
	}
	skill.Channel = true
	a := &AttachedSkill{pack: p, thread: t, skill: skill, server: s, done: make(chan struct{})}
	var err error
	if a.Added, err = t.AddSkill(ctx, skill); err != nil {
		return nil, err
	}
	if a.Added.Channel == nil {
		return nil, errors.Join(errors.New("packs: the server knows no skills with tools: it is too old"), t.RemoveSkill(ctx, skill.Name))
	}
	ctx, a.cancel = context.WithCancel(ctx)
	there := make(chan struct{})
	var once sync.Once
	connected := s.Connected
	a.server.Connected = func() {
		once.Do(func() { close(there) })
		if connected != nil {
			connected()
		}
	}
	go a.run(ctx, a.Added.Channel.Key)
	select {
	case <-there:
		return a, nil
	case <-a.done:
		if a.err == nil {
			a.err = context.Cause(ctx)
		}
		return nil, a.err
	}
}

// Close takes no new calls, lets those that run end, and removes the skill.
func (a *AttachedSkill) Close() error {
	a.cancel()
	<-a.done
	return a.err
}

// Done is closed when the skill's tools are gone for good.
func (a *AttachedSkill) Done() <-chan struct{} { return a.done }

// Err is why, after Done; nil after Close.
func (a *AttachedSkill) Err() error {
	select {
	case <-a.done:
		return a.err
	default:
		return nil
	}
}

// run serves the tools, and attaches the skill again when the server has lost it.
func (a *AttachedSkill) run(ctx context.Context, key string) {
	defer close(a.done)
	defer a.cancel()
	for {
		a.server.Credential = BearerKey(key)
		a.err = a.pack.serve(ctx, a.server, lost)
		if connect.CodeOf(a.err) != connect.CodeUnauthenticated || ctx.Err() != nil {
			break
		}
		again := a.skill
		again.Replace = false // one that another program has put in its place stays
		added, err := a.thread.AddSkill(ctx, again)
		if err != nil {
			a.err = fmt.Errorf("packs: the server has lost the skill %q, and does not take it again: %w", a.skill.Name, err)
			break
		}
		key = added.Channel.Key
	}
	if a.removed() {
		return
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTime)
	defer cancel()
	if err := a.thread.RemoveSkill(end, a.skill.Name); err != nil && !errors.Is(err, skerry.NotFound) {
		a.err = errors.Join(a.err, err)
	}
}

// removed reports whether the skill is another's now, or is not there any more.
func (a *AttachedSkill) removed() bool {
	return connect.CodeOf(a.err) == connect.CodePermissionDenied || errors.Is(a.err, skerry.Conflict)
}

// lost reports whether a stream has ended so that the skill has to be attached again, or is gone.
func lost(err error, _ bool) bool {
	switch connect.CodeOf(err) {
	case connect.CodeInvalidArgument, connect.CodeUnimplemented, connect.CodeUnauthenticated, connect.CodePermissionDenied:
		return true
	}
	return false
}
