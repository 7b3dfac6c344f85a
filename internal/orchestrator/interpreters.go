package orchestrator

import (
	"context"

	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
)

// asTemplate says how a program runs, and how one waits for the next, by the template's wish.
func asTemplate(code *sandboxv1.Code, t instance.Template) {
	code.Javascript, code.Deno = t.JavaScript, denoPermissions(t.Deno)
	if waits, said := t.Interpreters[code.GetLanguage()]; said {
		code.Preload, code.Cold, code.Waiting = waits.Preload, waits.Warm == 0, uint32(waits.Warm) //nolint:gosec // 0 to sandbox.MaxWarm
	}
}

// warm has those interpreters wait that the template names, in the background: of a sandbox that has just started, or
// waits for a thread. Without them the first program starts its own.
func (r *Orchestrator) warm(inst *instance.Instance, env map[string]string) {
	var code []*sandboxv1.Code
	for language, waits := range inst.Template.Interpreters {
		c := &sandboxv1.Code{Language: language}
		asTemplate(c, inst.Template)
		if waits.Warm > 0 && r.prepareCode(inst, c) == nil {
			c.Text = ""
			code = append(code, c)
		}
	}
	if len(code) == 0 {
		return
	}
	r.wg.Go(func() {
		ctx, cancel := context.WithTimeout(r.ctx, inspectTimeout)
		defer cancel()
		// The thread, the exec and its token count for none that waits.
		if err := inst.Client.Warm(ctx, code, instance.Environ(inst.Thread, "", "", inst.Template.Env, env)); err != nil {
			r.o.Log.Debug("no interpreter waits", "sandbox", string(inst.ID), "error", err)
		}
	})
}

// interpreters asks a sandbox of this server which of them wait. One that does not answer at once is not asked again.
func (r *Orchestrator) interpreters(ctx context.Context, t sandbox.Thread) []sandbox.WaitingInterpreter {
	inst := r.find(t)
	if inst == nil || !inst.IsReady() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	st, err := inst.Client.Status(ctx)
	if err != nil {
		return nil
	}
	var list []sandbox.WaitingInterpreter
	for _, i := range st.GetInterpreters() {
		list = append(list, sandbox.WaitingInterpreter{Language: i.GetLanguage(), Starting: i.GetStarts(), Forks: i.GetForks(), MemoryBytes: i.GetMemoryBytes()})
	}
	return list
}
