package orchestrator

import (
	"context"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// restore gives an adopted box what it was asked to be, and pauses it again when it was. It is not in the map yet.
func (r *Orchestrator) restore(ctx context.Context, b *box, paused bool) {
	b.turn.placed = true
	if k := r.readKept(b.thread); k != nil && k.Template == b.template.Name {
		b.env = k.Env
	}
	r.saveOrder(b)
	p, ok := r.o.Driver.(driver.Pauser)
	if !paused || !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	err := p.Pause(ctx, b.id)
	if err == nil {
		b.info.State = sandbox.Paused
		err = r.publish(ctx, b)
	}
	if err != nil {
		r.o.Log.Warn("adopted sandbox not paused again", "sandbox", string(b.id), "error", err)
	}
}
