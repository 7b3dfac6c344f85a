package orchestrator

import (
	"context"

	"github.com/skerry-sandbox/skerry/internal/prompt"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills/mounted"
	"github.com/skerry-sandbox/skerry/internal/tools/call"
)

// Prompts make the prompt sections of threads.
type Prompts struct {
	Calls        *call.Calls
	Skills       *mounted.Skills
	codeSettings func(tenant string) sandbox.CodeSettings
	commands     func(o sandbox.Owner) ([]prompt.Command, error)
	hub          toolHub
}

// Prompt makes the prompt sections of a thread.
func (p *Prompts) Prompt(ctx context.Context, c sandbox.Caller, id string) (prompt.Prompt, error) {
	t, err := c.Thread(id)
	if err != nil {
		return prompt.Prompt{}, err
	}
	offer, err := p.Calls.Offer(ctx, c, t.ID)
	if err != nil {
		return prompt.Prompt{}, err
	}
	servers, err := p.hub.Servers(ctx, c, t)
	if err != nil {
		return prompt.Prompt{}, err
	}
	view, err := p.Skills.Of(ctx, t)
	if err != nil {
		return prompt.Prompt{}, err
	}
	commands, err := p.commands(t.Owner)
	if err != nil {
		return prompt.Prompt{}, err
	}
	made, err := prompt.Build(prompt.Input{
		Mode: offer.Mode, Settings: p.codeSettings(t.Tenant), Tools: offer.Tools, Servers: servers, Skills: view.List(), Commands: commands,
	})
	if err != nil {
		return made, sandbox.Wrap(sandbox.Internal, err, "the prompt cannot be made")
	}
	return made, nil
}
