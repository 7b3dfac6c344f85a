package orchestrator

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/google/uuid"

	"github.com/skerry-sandbox/skerry/internal/execution"
	"github.com/skerry-sandbox/skerry/internal/execution/run"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/hooks"
	"github.com/skerry-sandbox/skerry/internal/instance/start"
	"github.com/skerry-sandbox/skerry/internal/platform/deadline"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills"
)

// Probes run scripts and smoke tests in sandboxes of a template.
type Probes struct {
	Execs     *execution.Execs
	Runs      *run.Runner
	Starts    *start.Starts
	Threads   *Threads
	log       *slog.Logger
	skills    *skills.Library
	startTime time.Duration
	templates map[string]instance.Template
}

// Probes of templates run in sandboxes of threads of their own, as any exec does, with its records in the
// audit log. Their names are new each time: no user, whatever the tenant is called, can be in one before.
var probeOwner = sandbox.Owner{Tenant: "skerry.internal", User: "probe"}

// maxProbeOutput is the most that a probe may print.
const maxProbeOutput = 8 << 20

// Image identifies what the sandboxes of a template are made of. NotFound: there is no such template.
func (p *Probes) Image(_ context.Context, template string) (string, error) {
	t, ok := p.templates[template]
	if !ok {
		return "", sandbox.Errorf(sandbox.NotFound, "there is no template %.80q", template)
	}
	return t.Image, nil
}

// Probe runs a script with sh in a sandbox of a template that is there for nothing else, and returns what it
// printed. NotFound: there is no such template; errors of starting and running as for any exec.
func (p *Probes) Probe(ctx context.Context, template, script string) (out []byte, err error) {
	err = p.inProbe(ctx, template, func(c sandbox.Caller, id string) error {
		exec, err := p.Runs.RunCommand(ctx, c, id, sandbox.Command{Argv: []string{"sh", "-s"}, Stdin: script, MaxOutputBytes: maxProbeOutput})
		if err != nil {
			return err
		}
		res, err := p.Execs.Wait(ctx, c, id, exec)
		switch {
		case err != nil:
			return err
		case res.Status != sandbox.StatusExited || res.Truncated || res.Encoding != "":
			return sandbox.Errorf(sandbox.Unavailable, "the probe of template %q ended as %s, or printed what is no text", template, res.Status)
		}
		out = []byte(res.Stdout)
		return nil
	})
	return out, err
}

// inProbe calls do with a thread that has a sandbox of the template, and deletes it afterwards.
func (p *Probes) inProbe(ctx context.Context, template string, do func(c sandbox.Caller, id string) error) error {
	if _, err := p.Image(ctx, template); err != nil {
		return err
	}
	c := sandbox.Caller{Owner: probeOwner, Source: "internal"}
	id := "probe-" + uuid.NewString()
	defer func() {
		ctx, cancel := deadline.Detached(ctx, hooks.RemoveTimeout)
		defer cancel()
		if e := p.Threads.DeleteThread(ctx, c, id); e != nil && sandbox.KindOf(e) != sandbox.NotFound {
			p.log.Warn("probe not cleaned up", "template", template, "error", e)
		}
	}()
	if _, err := p.Starts.Acquire(ctx, c, id, sandbox.AcquireOptions{Template: template, Wait: p.startTime}); err != nil {
		return err
	}
	return do(c, id)
}

// SmokeFailure is a smoke test that did not pass.
type SmokeFailure struct{ Name, Why string }

// Smoke runs the smoke tests of a template, one after the other in one sandbox that is there for nothing else. Errors
// are those of starting it; what a test came to is in failed.
func (p *Probes) Smoke(ctx context.Context, template string) (failed []SmokeFailure, err error) {
	err = p.inProbe(ctx, template, func(c sandbox.Caller, id string) error {
		for _, s := range p.templates[template].Smoke {
			if why := p.smoke(ctx, c, id, s); why != "" {
				failed = append(failed, SmokeFailure{s.Name, why})
			}
		}
		return nil
	})
	return failed, err
}

// smoke runs one test and says why it did not pass, or "".
func (p *Probes) smoke(ctx context.Context, c sandbox.Caller, id string, s sandbox.SmokeTest) string {
	var exec string
	var err error
	timeout := time.Duration(s.TimeoutSeconds) * time.Second
	if s.Code != "" {
		exec, err = p.Runs.RunCode(ctx, c, id, sandbox.Code{Language: s.Language, Text: s.Code, Timeout: timeout})
	} else {
		exec, err = p.Runs.RunCommand(ctx, c, id, sandbox.Command{Shell: s.Run, Argv: s.Argv, Timeout: timeout})
	}
	var res sandbox.Result
	if err == nil {
		res, err = p.Execs.Wait(ctx, c, id, exec)
	}
	var e *sandbox.Error
	switch {
	case errors.As(err, &e):
		return e.Detail
	case err != nil:
		return "it could not be run"
	}
	return s.Judge(res)
}

// OpenSkill opens the folder of one of the caller's skills for reading; the caller closes it. NotFound when
// there is none of that name.
func (p *Probes) OpenSkill(c sandbox.Caller, name string) (*os.Root, error) {
	set, err := p.skills.Set(c.Owner)
	if err != nil {
		return nil, err
	}
	return set.Open(name)
}
