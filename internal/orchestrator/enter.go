package orchestrator

import (
	"context"
	"errors"

	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// enterTries bounds how often an instance may be put away, or paused, between being ready and being entered.
const enterTries = 10

// enter returns the thread's running instance with an exec counted in, and the environment that all execs have.
// An instance that is paused is resumed; when there is none, one is acquired: as the last one was, or else of
// the default template.
func (s *Starts) enter(ctx context.Context, c sandbox.Caller, t sandbox.Thread) (*instance.Instance, map[string]string, error) {
	var err error
	for range enterTries {
		if err := s.Shutdown.refuse(t); err != nil {
			return nil, nil, err
		}
		var inst *instance.Instance
		var env map[string]string
		if inst, err = s.join(ctx, c, t, "", 0, nil); err == nil {
			if env, err = inst.Enter(); err == nil {
				if s.execs.Begin() {
					return inst, env, nil
				}
				s.Lifecycle.left(inst)
				return nil, nil, errStopping
			}
		}
		switch {
		case errors.Is(err, sandbox.SandboxLost) && inst != nil && inst.Ending() != "" && inst.Err == nil: // another one is started
		case errors.Is(err, instance.ErrPaused):
			if _, err := s.Lifecycle.wake(ctx, c, inst, "an exec"); err != nil {
				return nil, nil, err
			}
		default:
			return nil, nil, err
		}
	}
	return nil, nil, err
}

// abandon ends a sandbox that does not keep the contract.
func (d *teardown) abandon(inst *instance.Instance, why string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.ctx), removeTimeout)
	defer cancel()
	if err := d.retire(ctx, sandbox.Caller{}, inst, sandbox.StatusLost, why); err != nil {
		d.log.Error("sandbox not retired", "thread", inst.Thread.String(), "error", err)
	}
}

// touch remembers the thread's last activity, at most every touchEvery and not on the exec's way.
func (l *Lifecycle) touch(inst *instance.Instance) {
	now, due := inst.Touch(touchEvery)
	if !due {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.ctx), cleanupTimeout)
	defer cancel()
	if err := l.store.TouchThread(ctx, inst.Thread, now.UTC()); err != nil {
		l.log.Warn("last activity not written", "thread", inst.Thread.String(), "error", err)
	}
}

// execSandboxes are the sandboxes of the orchestrator, as execs see them.
type execSandboxes struct{ r *Orchestrator }

// Find implements execution.Sandboxes.
func (s execSandboxes) Find(t sandbox.Thread) *instance.Instance { return s.r.live.Find(t) }

// Exists implements execution.Sandboxes.
func (s execSandboxes) Exists(t sandbox.Thread) error { return s.r.folders.Exists(t) }
