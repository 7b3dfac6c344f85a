package orchestrator

import (
	"context"
	"slices"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/prompt"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
	"github.com/skerry-sandbox/skerry/internal/tools/codeapi/typescript"
)

func denoPermissions(d *sandbox.DenoPermissions) *sandboxv1.Permissions {
	if d == nil {
		return nil
	}
	return &sandboxv1.Permissions{Read: d.Read, Write: d.Write, Net: d.Net, Env: d.Env, Run: d.Run}
}

// interpreterOf names what a language needs in the image.
var interpreterOf = map[string]string{"python": "python3", "typescript": "bun, deno or node", "javascript": "bun, deno or node", "bash": "bash"}

func anyOf(languages []string) string {
	if len(languages) == 0 {
		return "programs by argv only"
	}
	return strings.Join(languages, ", ")
}

// prepareCode makes sure that the template can run the language, turning TypeScript into JavaScript
// where its runtime cannot read types.
func (r *Orchestrator) prepareCode(inst *instance.Instance, code *sandboxv1.Code) error {
	known := inst.Runtimes()
	switch lang := code.GetLanguage(); {
	case slices.Contains(known, lang):
		return nil
	case lang == "typescript" && slices.Contains(known, "javascript"):
		inst.Tools.Mu.Lock()
		set := inst.Tools.Set
		inst.Tools.Mu.Unlock()
		text, err := typescript.StripTypes(code.GetText(), set)
		if err != nil {
			return err
		}
		code.Language, code.Text = "javascript", text
		return nil
	default:
		return sandbox.Errorf(sandbox.NotSupported, "the image of template %q has no %s, which %s needs; it can run: %s", inst.Template.Name, interpreterOf[lang], lang, anyOf(known))
	}
}

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
