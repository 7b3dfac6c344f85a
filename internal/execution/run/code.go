package run

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/skerry-sandbox/skerry/internal/instance"
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
var interpreterOf = map[string]string{"python": "python3", "typescript": "bun, deno or node", "javascript": "bun, deno or node", "bash": "bash", "wasm": "runner of modules: its skerry-sandboxd is older than the server"}

func anyOf(languages []string) string {
	if len(languages) == 0 {
		return "programs by argv only"
	}
	return strings.Join(languages, ", ")
}

// prepareCode makes sure that the template can run the language, turning TypeScript into JavaScript
// where its runtime cannot read types.
func prepareCode(ctx context.Context, inst *instance.Instance, code *sandboxv1.Code) error {
	known := inst.Conn.Runtimes()
	switch lang := code.GetLanguage(); {
	case slices.Contains(known, lang):
		return nil
	case lang == "typescript" && slices.Contains(known, "javascript"):
		inst.Tools.Mu.Lock()
		set := inst.Tools.Set
		inst.Tools.Mu.Unlock()
		text, err := typescript.StripTypes(ctx, code.GetText(), set)
		if err != nil {
			return err
		}
		code.Language, code.Text = "javascript", text
		return nil
	default:
		return sandbox.Errorf(sandbox.NotSupported, "the image of template %q has no %s, which %s needs; it can run: %s", inst.Template.Name, interpreterOf[lang], lang, anyOf(known))
	}
}

// wasmEnv says what a WebAssembly module may use, also one that a command or a script starts. What waits for a program
// has it, too: it serves only a program with the same variables.
func wasmEnv(t *sandbox.Template) map[string]string {
	env := map[string]string{sandbox.WasmMemoryEnv: strconv.FormatInt(t.WasmMemory(), 10)}
	if t.Wasm != nil && t.Wasm.CPUSeconds > 0 {
		env[sandbox.WasmCPUEnv] = strconv.Itoa(t.Wasm.CPUSeconds)
	}
	return env
}

// asTemplate says how a program runs, and how one waits for the next, by the template's wish.
func asTemplate(code *sandboxv1.Code, t instance.Template) {
	code.Javascript, code.Deno = t.JavaScript, denoPermissions(t.Deno)
	if waits, said := t.Interpreters[code.GetLanguage()]; said {
		code.Preload, code.Cold, code.Waiting = waits.Preload, waits.Warm == 0, uint32(waits.Warm) //nolint:gosec // 0 to sandbox.MaxWarm
	}
}

// Warmer starts the interpreters that wait in sandboxes.
type Warmer struct {
	ctx   context.Context // ends with the server
	group *sync.WaitGroup // counts what runs in the background
	log   *slog.Logger
}

// NewWarmer returns the warmer of a server.
func NewWarmer(ctx context.Context, group *sync.WaitGroup, log *slog.Logger) *Warmer {
	return &Warmer{ctx: ctx, group: group, log: log}
}

// Warm has those interpreters wait that the template names, in the background: of a sandbox that has just started, or
// waits for a thread. Without them the first program starts its own.
func (x *Warmer) Warm(inst *instance.Instance, env map[string]string) {
	var code []*sandboxv1.Code
	for language, waits := range inst.Template.Interpreters {
		c := &sandboxv1.Code{Language: language}
		asTemplate(c, inst.Template)
		if waits.Warm > 0 && prepareCode(x.ctx, inst, c) == nil {
			c.Text = ""
			code = append(code, c)
		}
	}
	if len(code) == 0 {
		return
	}
	x.group.Go(func() {
		ctx, cancel := context.WithTimeout(x.ctx, inspectTimeout)
		defer cancel()
		// The thread, the exec and its token count for none that waits.
		if err := inst.Conn.Client.Warm(ctx, code, instance.Environ(inst.Thread, "", "", inst.Template.Env, env, wasmEnv(&inst.Template.Template))); err != nil {
			x.log.Debug("no interpreter waits", "sandbox", string(inst.ID), "error", err)
		}
	})
}
