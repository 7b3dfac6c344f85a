package orchestrator

import (
	"context"

	telemetry "github.com/skerry-sandbox/skerry/internal/observe/metrics"
	"github.com/skerry-sandbox/skerry/internal/prompt"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/call"
	"github.com/skerry-sandbox/skerry/internal/tools/channels"
)

// Prompts make the prompt sections of threads.
type Prompts struct {
	Calls        *call.Calls
	Skills       *channels.Skills
	codeSettings func(tenant string) sandbox.CodeSettings
	commands     func(o sandbox.Owner) ([]prompt.Command, error)
	hub          toolHub
	metrics      *telemetry.Metrics
}

// Prompt makes the prompt sections of a thread for an agent, and counts that.
func (p *Prompts) Prompt(ctx context.Context, c sandbox.Caller, id string) (prompt.Prompt, error) {
	told, err := p.Told(ctx, c, id)
	if err == nil {
		p.metrics.Prompt(told.Mode)
	}
	return told.Prompt, err
}

// Told makes the prompt sections of a thread, for those who compare what its agent is told.
func (p *Prompts) Told(ctx context.Context, c sandbox.Caller, id string) (told prompt.Told, err error) {
	t, err := c.Thread(id)
	if err != nil {
		return told, err
	}
	if told.Offer, err = p.Calls.Offer(ctx, c, t.ID); err != nil {
		return told, err
	}
	servers, err := p.hub.Servers(ctx, c, t)
	if err != nil {
		return told, err
	}
	if told.Skills, err = p.Skills.ThreadSkills(ctx, c, t.ID); err != nil {
		return told, err
	}
	commands, err := p.commands(t.Owner)
	if err != nil {
		return told, err
	}
	told.Prompt, err = prompt.Build(prompt.Input{
		Mode: told.Offer.Mode, Settings: p.codeSettings(t.Tenant), Tools: told.Offer.Tools, Servers: servers, Skills: told.Skills, Commands: commands,
	})
	if err != nil {
		err = sandbox.Wrap(sandbox.Internal, err, "the prompt cannot be made")
	}
	return told, err
}
