package start

import (
	"context"
	"errors"

	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// secondIdleSeconds is how long a second sandbox waits for another script.
const secondIdleSeconds = 30

// EnterTemplate is Enter for a script that runs in a sandbox of a template. When the thread's own is of another one, the
// script gets the thread's second sandbox of that template, which is started if there is none. It is counted into the
// thread's own, too, so that that one is not put away meanwhile. NotFound: there is no such template.
func (s *Starts) EnterTemplate(ctx context.Context, c sandbox.Caller, t sandbox.Thread, template string) (*instance.Instance, map[string]string, error) {
	tmpl, ok := s.orders.Templates[template]
	if !ok {
		return nil, nil, sandbox.Errorf(sandbox.NotFound, "the scripts of the skill run in the template %.80q, which this server does not have; GET /api/templates lists them", template)
	}
	own := false
	main, env, err := s.enter(ctx, c, t, func(inst *instance.Instance) (map[string]string, error) {
		if own = inst.Template.Name == template; own {
			return inst.Enter()
		}
		if inst.OnVolume() {
			return nil, sandbox.Errorf(sandbox.NotSupported, "the thread's files are on a volume, which one sandbox has at a time: the script wants the template %q, and the thread's sandbox is of %q", template, inst.Template.Name)
		}
		return inst.EnterFor(template)
	})
	if err != nil || own {
		return main, env, err
	}
	if err = s.Maker.copies.Lend(ctx, main); err == nil {
		var inst *instance.Instance
		if inst, err = s.enterSecond(ctx, c, main, tmpl); err == nil {
			return inst, env, nil
		}
	}
	s.execs.Cancel()
	s.lifecycle.LeftFor(main)
	return nil, nil, err
}

// enterSecond counts a script into the second instance of a template beside main.
func (s *Starts) enterSecond(ctx context.Context, c sandbox.Caller, main *instance.Instance, tmpl instance.Template) (inst *instance.Instance, err error) {
	for range enterTries {
		if inst, err = s.secondOf(c, main, tmpl); err != nil {
			return nil, err
		}
		if err = s.queue.WaitReady(ctx, inst, 0); err == nil {
			if _, err = inst.Enter(); err == nil {
				return inst, nil
			}
		}
		ended := errors.Is(err, sandbox.SandboxLost) && inst.Ending() != "" && inst.Err == nil
		if !ended && !errors.Is(err, instance.ErrGivenUp) {
			return nil, err
		}
	}
	return nil, err
}

// secondOf finds the second instance of a template beside main, or puts a new one in, whose start goes on in the
// background.
func (s *Starts) secondOf(c sandbox.Caller, main *instance.Instance, tmpl instance.Template) (*instance.Instance, error) {
	var old, made *instance.Instance
	inst, err := s.live.PutSecond(main, tmpl.Name, func(former *instance.Instance) (next *instance.Instance, err error) {
		if former != nil && former.Main == main && former.Ending() == "" {
			return former, nil
		}
		old = former
		made, err = s.Maker.newSecond(main, tmpl, former)
		return made, err
	})
	if err != nil {
		return nil, err
	}
	s.Maker.copies.Hold(inst, made != nil)
	if made != nil {
		s.wg.Go(func() { s.begin(c, made, old) })
	}
	return inst, nil
}
