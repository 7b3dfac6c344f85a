package lifecycle

import (
	"context"
	"log/slog"
	"maps"

	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/savedspec"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Orders know what the next instance of a thread is, and what an instance was when it ended.
type Orders struct {
	specs       *savedspec.Specs
	ctx         context.Context
	defaultName string
	live        *instance.Map
	log         *slog.Logger
	Templates   map[string]instance.Template
}

// Order is what a new instance is to be.
type Order struct {
	Template instance.Template
	Env      map[string]string
	Cold     bool // none of the pool
}

// Next says what the thread's next instance is: of the template that is named, else what the one before was,
// else of the default template.
func (s *Orders) Next(t sandbox.Thread, named string) Order {
	var saved *savedspec.Spec
	if inst := s.live.Find(t); inst != nil {
		if !inst.Saved.Forgotten() {
			saved = &savedspec.Spec{Template: inst.Template.Name, Env: inst.Saved.Env()}
		}
	} else {
		saved = s.specs.Read(t)
	}
	if saved != nil && (named == "" || named == saved.Template) {
		if tmpl, ok := s.Templates[saved.Template]; ok {
			return Order{Template: tmpl, Env: saved.Env}
		}
		s.log.Warn("the template of a thread's sandbox is gone; it gets the default one", "thread", t.String(), "template", saved.Template)
	}
	if named == "" {
		named = s.defaultName
	}
	return Order{Template: s.Templates[named]}
}

// Admit refuses an environment that the thread's instance cannot have: it would be kept.
func (s *Orders) Admit(t sandbox.Thread, env map[string]string) error {
	if err := sandbox.CheckSandboxEnv(env); err != nil {
		return err
	}
	return s.specs.Admit(t, env)
}

// Save keeps what an instance that runs is. The default without an environment needs no file.
func (s *Orders) Save(inst *instance.Instance) {
	inst.Saved.WriteMu.Lock()
	defer inst.Saved.WriteMu.Unlock()
	now := savedspec.Spec{Template: inst.Template.Name, Env: inst.Saved.Env()}
	if inst.Ending() != "" || !inst.IsReady() { // its end wrote what is to be kept
		return
	}
	had := s.specs.Read(inst.Thread)
	plain := now.Template == s.defaultName && len(now.Env) == 0
	var err error
	switch {
	case plain && had != nil:
		err = s.specs.Forget(inst.Thread)
	case !plain && (had == nil || had.Hibernated != nil || had.Template != now.Template || !maps.Equal(had.Env, now.Env)):
		err = s.specs.Write(s.ctx, inst.Thread, now)
	}
	if err != nil {
		s.log.Error("what the sandbox is cannot be kept: after a restart it is another", "thread", inst.Thread.String(), "error", err)
	}
}

// SaveHibernated keeps an instance that is being put away, and returns it as it is shown from now on.
func (s *Orders) SaveHibernated(inst *instance.Instance) (sandbox.Info, error) {
	inst.Saved.WriteMu.Lock()
	defer inst.Saved.WriteMu.Unlock()
	info := inst.Info()
	saved := savedspec.Spec{Template: inst.Template.Name, Env: inst.Saved.Env(), Hibernated: &info}
	info.State = sandbox.Hibernated
	return info, s.specs.Write(s.ctx, inst.Thread, saved)
}
