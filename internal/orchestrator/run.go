package orchestrator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/execution"
	"github.com/skerry-sandbox/skerry/internal/execution/contexts"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/platform/deadline"
	"github.com/skerry-sandbox/skerry/internal/platform/redact"
	"github.com/skerry-sandbox/skerry/internal/policy"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
	"github.com/skerry-sandbox/skerry/internal/tools/bridge"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// Limits of a request that its size alone does not bound.
const (
	maxArgs      = 1024
	maxArgBytes  = 128 << 10 // Linux: MAX_ARG_STRLEN
	maxEnv       = 256
	maxSpill     = 256 << 20
	stderrOfCode = 2000
)

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func checkEnv(env map[string]string) error {
	if len(env) > maxEnv {
		return sandbox.Errorf(sandbox.Invalid, "env: %d variables, at most %d", len(env), maxEnv)
	}
	for k, v := range env {
		switch {
		case !envName.MatchString(k):
			return sandbox.Errorf(sandbox.Invalid, "env: the name %.80q does not match %s", k, envName)
		case strings.HasPrefix(k, "SKERRY_") || strings.HasPrefix(k, "MCP_"):
			return sandbox.Errorf(sandbox.Invalid, "env: %.80q is set by Skerry; choose a name that does not begin with SKERRY_ or MCP_", k)
		case len(v) > maxArgBytes || strings.ContainsRune(v, 0):
			return sandbox.Errorf(sandbox.Invalid, "env: the value of %.80q has a NUL or more than %d bytes", k, maxArgBytes)
		}
	}
	return nil
}

// RunCommand starts a command and returns the id of its exec.
func (r *Orchestrator) RunCommand(ctx context.Context, c sandbox.Caller, id string, cmd sandbox.Command) (string, error) {
	if err := checkCommand(cmd); err != nil {
		return "", err
	}
	if cmd.Timeout == 0 {
		cmd.Timeout = sandbox.DefaultExecTimeout
	}
	if cmd.MaxOutputBytes == 0 {
		cmd.MaxOutputBytes = sandbox.DefaultOutputBytes
	}
	req := &sandboxv1.RunRequest{
		Shell: cmd.Shell, Argv: cmd.Argv, Cwd: cmd.Cwd, Stdin: []byte(cmd.Stdin), KeepStdin: cmd.KeepStdin,
		MaxOutputBytes: uint64(cmd.MaxOutputBytes),
	}
	if cmd.Terminal != nil {
		req.Terminal = &sandboxv1.TerminalSize{Cols: uint32(cmd.Terminal.Cols), Rows: uint32(cmd.Terminal.Rows)}
	}
	subject := cmd.Shell
	if subject == "" {
		subject = strings.Join(cmd.Argv, " ")
	}
	e := &execution.Exec{Action: audit.ActionExec, Subject: subject, Background: cmd.Background, Deadline: cmd.Timeout, Report: cmd.ReportFiles}
	if cmd.Terminal != nil {
		e.Live = cmd.MaxOutputBytes
	}
	return r.run(ctx, c, id, e, req, environment{own: cmd.Env, secrets: cmd.EnvSecrets}, cmd)
}

func checkCommand(cmd sandbox.Command) error {
	bad := func(format string, args ...any) error { return sandbox.Errorf(sandbox.Invalid, format, args...) }
	switch {
	case (cmd.Shell == "") == (len(cmd.Argv) == 0):
		return bad("give command (for the shell) or argv (without one), not both and not neither")
	case len(cmd.Argv) > maxArgs:
		return bad("argv: %d words, at most %d", len(cmd.Argv), maxArgs)
	case cmd.Timeout < 0 || cmd.Timeout > sandbox.MaxExecTimeout:
		return bad("timeout_s: want 0 to %d", int(sandbox.MaxExecTimeout.Seconds()))
	case cmd.MaxOutputBytes < 0 || cmd.MaxOutputBytes > sandbox.MaxOutputBytes:
		return bad("max_output_bytes: want 0 to %d", sandbox.MaxOutputBytes)
	case cmd.Terminal != nil && !cmd.Terminal.Valid():
		return bad("pty: want 1 to %d columns and rows", sandbox.MaxTerminalSide)
	case cmd.Terminal != nil && !cmd.Background:
		return bad("pty: a terminal needs \"background\": true; GET …/pty?exec= shows it")
	case len(cmd.Stdin) > sandbox.MaxStdinBytes:
		return bad("stdin: %d bytes, at most %d", len(cmd.Stdin), sandbox.MaxStdinBytes)
	}
	for _, word := range append(slices.Clone(cmd.Argv), cmd.Shell, cmd.Cwd) {
		if strings.ContainsRune(word, 0) {
			return bad("a word of the command has a NUL byte")
		}
		if len(word) > maxArgBytes {
			return bad("a word of the command has more than %d bytes; put it into a file or stdin", maxArgBytes)
		}
	}
	if cmd.Cwd != "" && !strings.HasPrefix(cmd.Cwd, "/") {
		return bad("cwd %.200q: give an absolute path such as %s", cmd.Cwd, sandbox.WorkspaceDir)
	}
	return checkEnv(cmd.Env)
}

// RunCode starts a program text and returns the id of its exec.
func (r *Orchestrator) RunCode(ctx context.Context, c sandbox.Caller, id string, code sandbox.Code) (string, error) {
	settings := r.o.CodeSettings(c.Tenant)
	if code.Language == "" && code.ContextID == "" {
		code.Language = settings.Language
	}
	if code.Timeout == 0 {
		code.Timeout = settings.Timeout
	}
	if code.MaxOutputChars == 0 {
		code.MaxOutputChars = settings.MaxOutputChars
	}
	bad := func(format string, args ...any) (string, error) {
		return "", sandbox.Errorf(sandbox.Invalid, format, args...)
	}
	switch {
	case code.ContextID == "" && !slices.Contains([]string{"typescript", "javascript", "python", "bash"}, code.Language):
		return bad("language %.40q: want typescript, javascript, python or bash", code.Language)
	case strings.TrimSpace(code.Text) == "":
		return bad("code: is empty")
	case len(code.Text) > sandbox.MaxCodeBytes:
		return bad("code: %d bytes, at most %d", len(code.Text), sandbox.MaxCodeBytes)
	case code.Timeout < 0 || code.Timeout > sandbox.MaxCodeTimeout:
		return bad("timeout: want 1 to %d seconds", int(sandbox.MaxCodeTimeout.Seconds()))
	case code.MaxOutputChars < 0 || code.MaxOutputChars > sandbox.DefaultOutputBytes:
		return bad("max_output_chars: want 1 to %d", sandbox.DefaultOutputBytes)
	}
	if err := checkEnv(code.Env); err != nil {
		return "", err
	}
	e := &execution.Exec{Action: audit.ActionCode, Deadline: code.Timeout, Code: &code, Report: true}
	if code.ContextID != "" && len(code.EnvSecrets) > 0 {
		return bad("env_secrets: a context would keep them after this run; run the code without context_id")
	}
	if code.ContextID != "" {
		t, err := c.Thread(id)
		if err != nil {
			return "", err
		}
		if e.Context, err = r.Contexts.Acquire(t, &code); err != nil {
			return "", err
		}
	}
	e.Subject = code.Language
	req := &sandboxv1.RunRequest{
		Code:           &sandboxv1.Code{Language: code.Language, Text: code.Text},
		MaxOutputBytes: sandbox.DefaultOutputBytes, ContextId: code.ContextID,
	}
	execID, err := r.run(ctx, c, id, e, req, environment{own: code.Env, secrets: code.EnvSecrets}, code)
	if err != nil && e.Context != nil {
		r.Contexts.End(e.Context, "")
	}
	return execID, err
}

// RunScript starts a script of a skill and returns the id of its exec.
func (r *Orchestrator) RunScript(ctx context.Context, c sandbox.Caller, id string, s sandbox.Script) (string, error) {
	t, err := c.Thread(id)
	if err != nil {
		return "", err
	}
	view, err := r.Skills.Of(ctx, t)
	if err != nil {
		return "", err
	}
	argv, err := view.Argv(s.Skill, s.Path)
	if err != nil {
		return "", err
	}
	sk, err := view.Get(s.Skill)
	if err != nil {
		return "", err
	}
	cmd := sandbox.Command{Argv: append(argv, s.Args...), Stdin: s.Stdin, Env: s.Env, Timeout: s.Timeout}
	if err := checkCommand(cmd); err != nil {
		return "", err
	}
	if cmd.Timeout == 0 {
		cmd.Timeout = sandbox.DefaultExecTimeout
	}
	req := &sandboxv1.RunRequest{Argv: cmd.Argv, Stdin: []byte(cmd.Stdin), MaxOutputBytes: sandbox.DefaultOutputBytes}
	e := &execution.Exec{Action: audit.ActionSkillRun, Skill: &sk, Subject: s.Skill + "/" + s.Path, Deadline: cmd.Timeout, Report: true}
	return r.run(ctx, c, id, e, req, environment{own: s.Env, secrets: s.EnvSecrets, skill: s.Skill}, s)
}

// environment is what a request says of the environment of its exec.
type environment struct {
	own     map[string]string
	secrets map[string]string // variable -> name of a secret
	skill   string            // whose script runs
}

// run is what all three have in common: a sandbox, a record of the attempt, a token for the bridge,
// and a goroutine that sees the exec to its end, whatever becomes of the caller.
func (r *Orchestrator) run(ctx context.Context, c sandbox.Caller, id string, e *execution.Exec, req *sandboxv1.RunRequest, env environment, args any) (string, error) {
	t, err := c.Thread(id)
	if err != nil {
		return "", err
	}
	if _, err := redact.Env(nil, env.own); err != nil { // before a sandbox is started for nothing
		return "", err
	}
	named, err := r.named(ctx, t, env.skill, env.own, env.secrets)
	if err != nil {
		return "", err
	}
	execID, err := uuid.NewV7()
	if err != nil {
		return "", sandbox.Wrap(sandbox.Internal, err, "no id for the exec")
	}
	ctx = r.beginTrace(ctx, e, execID.String(), t)
	if e.Limits, err = r.o.Limits.Exec(ctx, c, execID.String(), e.Deadline); err != nil {
		e.Trace.Span.Failed(err)
		e.Trace.Span.End()
		return "", err
	}
	inst, common, err := r.enterTraced(ctx, c, t)
	if err != nil {
		e.Limits.Release()
		e.Trace.Span.Failed(err)
		e.Trace.Span.End()
		return "", err
	}
	handedOver := false
	defer func() {
		if !handedOver {
			r.execs.Cancel()
			r.left(inst)
			e.Limits.Release()
			e.Trace.Span.FailedAs("not started")
			e.Trace.Span.End()
		}
	}()
	hide, err := inst.Redaction.Hiding(common, env.own, named)
	if err != nil {
		return "", err
	}
	e.Secret = execution.NewSecrets(hide)
	e.Subject, e.Named = hide.String(e.Subject), slices.Sorted(maps.Values(env.secrets))
	e.Begin(execID.String(), t, c)
	if e.Action == audit.ActionCode || e.Action == audit.ActionSkillRun { // what may import wrappers
		if err := r.wrappers.Refresh(ctx, c, inst); err != nil {
			r.o.Log.Warn("wrappers not written", "thread", t.String(), "error", err)
		}
	}
	if e.Context != nil && e.Context.Instance() != inst {
		return "", sandbox.Errorf(sandbox.Conflict, "context %s: %s%s", e.Context.ID(), contexts.GoneWithSandbox, contexts.WhatToDo)
	}
	if e.Action == audit.ActionCode && e.Context == nil {
		asTemplate(req.Code, inst.Template)
		req.Code.OwnEnv = len(env.own)+len(named) > 0 // it may hold a secret, which nothing that waits is to keep
		if err := r.prepareCode(inst, req.Code); err != nil {
			return "", err
		}
	}
	// What another process wrote is in force for this exec, not only from the next round on.
	if err := r.Skills.Refresh(inst); err != nil {
		r.o.Log.Warn("skills not shown", "thread", t.String(), "error", err)
	}
	if err := r.begins(ctx, inst, e); err != nil {
		return "", err
	}
	plan, err := r.planRun(ctx, c, t, e, args)
	if err != nil {
		return "", err
	}
	if e.Attempt, err = r.attempt(ctx, inst, e, args, plan); err != nil {
		return "", err
	}
	if err := r.permit(ctx, inst, e, plan, func() error { return r.sameSkill(ctx, e) }); err != nil {
		return "", err
	}
	e.Started = time.Now().UTC()
	r.traceRun(e)
	token := r.o.Bridge.Register(bridge.Exec{ExecID: e.ID, Thread: t, Caller: c, AuditParent: e.Attempt.ID, Hide: e.Secret.Hide, Trace: e.Trace.Process})
	req.ExecId, req.TimeoutMs = e.ID, uint32(e.Deadline.Milliseconds())
	req.MaxSpillBytes, req.SpillDir = maxSpill, spillDir(e.ID)
	req.Env = instance.Environ(t, e.ID, token, inst.Template.Env, common, env.own, named)
	if e.Report {
		e.Before = r.snapshot(t)
	}
	if e.Context != nil {
		r.Contexts.Begin(e.Context, e.ID)
	}
	inst.FileSync.Begin()
	r.execs.Add(e)
	handedOver = true
	inst.Load.Bill(c)
	r.loads.Watch(inst)
	r.wg.Go(func() { r.supervise(inst, e, req) })
	return e.ID, nil
}

func spillDir(execID string) string { return sandbox.WorkspaceDir + "/.skerry/execs/" + execID }

// enterTries bounds how often an instance may be put away, or paused, between being ready and being entered.
const enterTries = 10

// enter gives the thread's running instance with an exec counted in, and the environment that all execs have.
// An instance that is paused is resumed; when there is none, one is acquired: as the last one was, or else of
// the default template.
func (r *Orchestrator) enter(ctx context.Context, c sandbox.Caller, t sandbox.Thread) (*instance.Instance, map[string]string, error) {
	var err error
	for range enterTries {
		if err := r.refuse(t); err != nil {
			return nil, nil, err
		}
		var inst *instance.Instance
		var env map[string]string
		if inst, err = r.join(ctx, c, t, "", 0, nil); err == nil {
			if env, err = inst.Enter(); err == nil {
				if r.execs.Begin() {
					return inst, env, nil
				}
				r.left(inst)
				return nil, nil, errStopping
			}
		}
		switch {
		case errors.Is(err, sandbox.SandboxLost) && inst != nil && inst.Ending() != "" && inst.Err == nil: // another one is started
		case errors.Is(err, instance.ErrPaused):
			if _, err := r.wake(ctx, c, inst, "an exec"); err != nil {
				return nil, nil, err
			}
		default:
			return nil, nil, err
		}
	}
	return nil, nil, err
}

func (r *Orchestrator) attempt(ctx context.Context, inst *instance.Instance, e *execution.Exec, args any, plan policy.Plan) (audit.Record, error) {
	rec := audit.About(e.Caller, e.Thread, e.Action, audit.PhaseAttempt)
	rec.Why, e.Subject = plan.Why(), plan.ShownText(e.Subject)
	rec.Sandbox, rec.Exec, rec.Subject = string(inst.ID), e.ID, e.Subject
	rec.Args, rec.ArgsHash = audit.Args(e.Secret.Args(args))
	if len(e.Named) > 0 {
		rec.Detail = "secrets in its environment: " + strings.Join(e.Named, ", ")
	}
	if plan.Redacts() {
		rec.Args, _ = audit.Args(json.RawMessage(plan.Shown(rec.Args)))
	}
	return r.o.Audit.Append(ctx, rec)
}

// supervise runs e in b and ends it once.
func (r *Orchestrator) supervise(inst *instance.Instance, e *execution.Exec, req *sandboxv1.RunRequest) {
	exit, status := r.streamTraced(inst, e, req)
	e.TakeRest(exit)
	notPulled := r.pullAfterExec(inst, e, exit)
	var res sandbox.Result
	if exit != nil {
		if r.ranOutOfMemory(inst, exit) {
			exit.Status = sandboxv1.Exit_STATUS_OOM
		}
		res = e.Compose(exit)
	} else {
		res = e.Compose(&sandboxv1.Exit{DurationUs: time.Since(e.Started).Microseconds()})
		res.Status = status
	}
	if res.Status == sandbox.StatusKilled {
		res.Detail = cmp.Or(e.Reason(), e.Secret.Hide.String(exit.GetReason()))
	}
	switch {
	case notPulled == nil:
	case inst.OnVolume(): // they are kept, and cannot be listed
		res.FilesTruncated = true
	default:
		e.FilesNotPulled(&res, notPulled)
	}
	r.settle(inst, e, &res, r.o.Bridge.Finish(e.ID))
	if e.Context != nil {
		r.settleContext(inst, e, exit, &res)
	}
	if exit.GetStatus() == sandboxv1.Exit_STATUS_FAILED_TO_START {
		e.FailStart(exit, &res)
	}
	kept := r.keepEnd(inst, e)
	err := r.recordEnd(inst, e, res)
	if err == nil {
		err = kept
	}
	r.loads.CountExec(inst, e, &res)
	r.left(inst) // before a caller sees the end, and pauses the sandbox
	e.Finish(res, err)
	r.o.Metrics.Exec(e.Action, res.Status, time.Since(e.Started))
	e.Deadline += e.Hold.Spent() // the registry keeps it for so much longer
	e.EndTrace(inst.ID, &res)
	r.execs.End(e)
	r.touch(inst)
}

// ranOutOfMemory reports whether a process that died of SIGKILL, which the server did not send, ran out of
// memory. sandboxd reads the kernel's counter; under a runtime that shows none inside, a process that
// had taken most of what there is tells it. The rest is the runtime's own: 9 to 16 % of 1 GiB in gVisor,
// more after a fork bomb.
func (r *Orchestrator) ranOutOfMemory(inst *instance.Instance, exit *sandboxv1.Exit) bool {
	const sigkill, most = 128 + 9, 0.7
	return slices.Contains(r.caps.OOMEndsSandbox, inst.Template.Runtime) &&
		exit.GetStatus() == sandboxv1.Exit_STATUS_EXITED && exit.GetCode() == sigkill &&
		float64(exit.GetMaxRssBytes()) > most*float64(inst.Template.Limits.MemoryBytes)
}

// farGrace is how much later the end of an exec may come from another machine, where a broken connection has to come
// back first.
const farGrace = 15 * time.Second

// errUnanswered says that sandboxd did not tell the end of an exec in time.
var errUnanswered = errors.New("the deadline passed unanswered")

// stream runs e and takes in its events until its exit. The client takes up a broken connection again
// by itself while the sandbox lives. Without an exit the status says why.
func (r *Orchestrator) stream(inst *instance.Instance, e *execution.Exec, req *sandboxv1.RunRequest) (*sandboxv1.Exit, sandbox.Status) {
	grace := unansweredGrace
	if e.Context != nil {
		grace += contexts.Grace
	}
	if inst.FileSync != nil {
		grace += farGrace
	}
	ctx, cancel := context.WithCancelCause(r.ctx)
	defer cancel(nil)
	clock := deadline.Start(e.Deadline+grace, heldAtMost, func() { cancel(errUnanswered) })
	defer clock.Stop()
	e.Hold.SetClock(clock)
	exit, err := inst.Client.Run(ctx, req, r.timeFirst(inst, e.Take))
	switch kind := sandbox.KindOf(err); {
	case exit != nil:
		return exit, ""
	case kind == sandbox.Invalid || kind == sandbox.CapacityExceeded:
		return &sandboxv1.Exit{Status: sandboxv1.Exit_STATUS_FAILED_TO_START, Reason: err.Error()}, ""
	case e.Context != nil && (kind == sandbox.NotFound || kind == sandbox.Conflict):
		reason := err.Error()
		if kind == sandbox.NotFound {
			reason = contexts.GoneByItself + contexts.WhatToDo
		}
		return &sandboxv1.Exit{Status: sandboxv1.Exit_STATUS_FAILED_TO_START, Reason: "context " + e.Context.ID() + ": " + reason, ContextLost: kind == sandbox.NotFound}, ""
	case errors.Is(context.Cause(ctx), errUnanswered):
		// The deadline passed and sandboxd said nothing: the sandbox is not to be trusted any more.
		r.wg.Go(func() { r.abandon(inst, "a deadline passed unanswered") })
		return nil, sandbox.StatusTimeout
	}
	return nil, r.postMortem(inst, err)
}

// postMortem says how the execs of a sandbox end whose daemon does not answer any more; cause is what came instead. When
// the server has not ended it, it is looked at, and ended.
func (r *Orchestrator) postMortem(inst *instance.Instance, cause error) sandbox.Status {
	if s := inst.Ending(); s != "" {
		return s
	}
	if r.ctx.Err() != nil { // this server goes; the next one adopts the sandbox
		return sandbox.StatusLost
	}
	ctx, cancel := context.WithTimeout(r.ctx, inspectTimeout)
	defer cancel()
	entry, err := r.o.Driver.Inspect(ctx, inst.ID)
	oom := err == nil && entry.State == sandbox.Lost && entry.OOMKilled
	if s := inst.Ending(); s != "" {
		return s
	}
	r.o.Log.Warn("a sandbox does not answer any more; it is ended", "thread", inst.Thread.String(), "sandbox", string(inst.ID), "state", string(entry.State), "oom", oom, "inspected", err, "error", cause)
	r.wg.Go(func() { r.died(inst, oom) })
	if oom {
		return sandbox.StatusOOM
	}
	return sandbox.StatusLost
}

// stillRuns reports whether a sandbox that does not answer just now is worth waiting for. An engine that does not tell has
// as much to do as the rest of the machine.
func (r *Orchestrator) stillRuns(ctx context.Context, inst *instance.Instance) bool {
	if inst.Ending() != "" || r.ctx.Err() != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	entry, err := r.o.Driver.Inspect(ctx, inst.ID)
	if err != nil {
		return !errors.Is(err, sandbox.NotFound)
	}
	return entry.State == sandbox.Running || entry.State == sandbox.Paused
}

// abandon ends a sandbox that does not keep the contract.
func (r *Orchestrator) abandon(inst *instance.Instance, why string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), removeTimeout)
	defer cancel()
	if err := r.retire(ctx, sandbox.Caller{}, inst, sandbox.StatusLost, why); err != nil {
		r.o.Log.Error("sandbox not retired", "thread", inst.Thread.String(), "error", err)
	}
}

func (r *Orchestrator) snapshot(t sandbox.Thread) paths.Snapshot {
	var s paths.Snapshot
	err := r.withFiles(t, nil, func(fs *paths.FS) error {
		var err error
		s, err = fs.Snapshot(r.ctx)
		return err
	})
	if err != nil {
		r.o.Log.Warn("files not listed", "thread", t.String(), "error", err)
	}
	return s
}

// execSandboxes are the sandboxes of the orchestrator, as execs see them.
type execSandboxes struct{ r *Orchestrator }

// Find implements execution.Sandboxes.
func (s execSandboxes) Find(t sandbox.Thread) *instance.Instance { return s.r.find(t) }

// Exists implements execution.Sandboxes.
func (s execSandboxes) Exists(t sandbox.Thread) error { return s.r.folders.Exists(t) }
