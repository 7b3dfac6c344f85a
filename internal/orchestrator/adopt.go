package orchestrator

import (
	"context"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// restore sets on an adopted instance what it was asked to be, and pauses it again when it was. It is not in the map yet.
func (v *recovery) restore(ctx context.Context, inst *instance.Instance, paused bool) {
	if saved := v.specs.Read(inst.Thread); saved != nil && saved.Template == inst.Template.Name {
		inst.SetEnvironment(saved.Env)
	}
	v.orders.saveOrder(inst)
	p, ok := v.driver.(driver.Pauser)
	if !paused || !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	err := p.Pause(ctx, inst.ID)
	if err == nil {
		inst.ChangeState(sandbox.Running, sandbox.Paused)
		err = v.hooks.Publish(ctx, inst)
	}
	if err != nil {
		v.log.Warn("adopted sandbox not paused again", "sandbox", string(inst.ID), "error", err)
	}
}
