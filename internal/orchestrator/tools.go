package orchestrator

import (
	"context"

	"github.com/skerry-sandbox/skerry/internal/prompt"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Prompt makes the prompt sections of a thread.
func (r *Orchestrator) Prompt(ctx context.Context, c sandbox.Caller, id string) (prompt.Prompt, error) {
	t, err := c.Thread(id)
	if err != nil {
		return prompt.Prompt{}, err
	}
	offer, err := r.Calls.Offer(ctx, c, t.ID)
	if err != nil {
		return prompt.Prompt{}, err
	}
	servers, err := r.o.Hub.Servers(ctx, c, t)
	if err != nil {
		return prompt.Prompt{}, err
	}
	view, err := r.Skills.Of(ctx, t)
	if err != nil {
		return prompt.Prompt{}, err
	}
	commands, err := r.o.Commands(t.Owner)
	if err != nil {
		return prompt.Prompt{}, err
	}
	p, err := prompt.Build(prompt.Input{
		Mode: offer.Mode, Settings: r.o.CodeSettings(t.Tenant), Tools: offer.Tools, Servers: servers, Skills: view.List(), Commands: commands,
	})
	if err != nil {
		return p, sandbox.Wrap(sandbox.Internal, err, "the prompt cannot be made")
	}
	return p, nil
}
