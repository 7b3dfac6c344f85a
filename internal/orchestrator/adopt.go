package orchestrator

import (
	"context"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// restore sets on an adopted instance what it was asked to be, and pauses it again when it was. It is not in the map yet.
func (r *Orchestrator) restore(ctx context.Context, inst *instance.Instance, paused bool) {
	if saved := r.Specs.Read(inst.Thread); saved != nil && saved.Template == inst.Template.Name {
		inst.SetEnvironment(saved.Env)
	}
	r.saveOrder(inst)
	p, ok := r.o.Driver.(driver.Pauser)
	if !paused || !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	err := p.Pause(ctx, inst.ID)
	if err == nil {
		inst.ChangeState(sandbox.Running, sandbox.Paused)
		err = r.hooks.Publish(ctx, inst)
	}
	if err != nil {
		r.o.Log.Warn("adopted sandbox not paused again", "sandbox", string(inst.ID), "error", err)
	}
}
