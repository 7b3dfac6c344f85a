package orchestrator

import (
	"context"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// restore sets on an adopted instance what it was asked to be, and pauses it again when it was. It is not in the map yet.
func (r *Orchestrator) restore(ctx context.Context, inst *instance, paused bool) {
	inst.queueTurn.placed = true
	if saved := r.readSavedSpec(inst.thread); saved != nil && saved.Template == inst.template.Name {
		inst.env = saved.Env
	}
	r.saveOrder(inst)
	p, ok := r.o.Driver.(driver.Pauser)
	if !paused || !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	err := p.Pause(ctx, inst.id)
	if err == nil {
		inst.info.State = sandbox.Paused
		err = r.publish(ctx, inst)
	}
	if err != nil {
		r.o.Log.Warn("adopted sandbox not paused again", "sandbox", string(inst.id), "error", err)
	}
}
