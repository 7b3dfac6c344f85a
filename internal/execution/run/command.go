package run

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/execution"
	"github.com/skerry-sandbox/skerry/internal/execution/contexts"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/observe/metrics"
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
	maxSpill     = 256 << 20
	stderrOfCode = 2000
)

// RunCommand starts a command and returns the id of its exec.
func (x *Runner) RunCommand(ctx context.Context, c sandbox.Caller, id string, cmd sandbox.Command) (string, error) {
	if err := cmd.Validate(); err != nil {
		return "", err
	}
	cmd.SetDefaults()
	req := &sandboxv1.RunRequest{
		Shell: cmd.Shell, Argv: cmd.Argv, Cwd: cmd.Cwd, Stdin: []byte(cmd.Stdin), KeepStdin: cmd.KeepStdin,
		MaxOutputBytes: uint64(cmd.MaxOutputBytes), LeaveProcesses: cmd.LeaveProcesses,
	}
	if cmd.Terminal != nil {
		req.Terminal = &sandboxv1.TerminalSize{Cols: uint32(cmd.Terminal.Cols), Rows: uint32(cmd.Terminal.Rows)}
	}
	subject := cmd.Shell
	if subject == "" {
		subject = strings.Join(cmd.Argv, " ")
	}
	e := &execution.Exec{Spec: execution.Spec{Action: audit.ActionExec, Subject: subject, Background: cmd.Background, Deadline: cmd.Timeout, Report: cmd.ReportFiles}}
	if cmd.Terminal != nil {
		e.Spec.Live = cmd.MaxOutputBytes
	}
	return x.run(ctx, c, id, e, req, environment{own: cmd.Env, secrets: cmd.EnvSecrets, redact: cmd.RedactEnv}, cmd)
}

// RunCode starts a program text and returns the id of its exec.
func (x *Runner) RunCode(ctx context.Context, c sandbox.Caller, id string, code sandbox.Code) (string, error) {
	settings := x.o.CodeSettings(c.Tenant)
	code.Language = sandbox.LanguageOf(code.Language)
	if code.Language == "" && code.ContextID == "" {
		code.Language = settings.Language
	}
	if code.Timeout == 0 {
		code.Timeout = settings.Timeout
	}
	if code.MaxOutputChars == 0 {
		code.MaxOutputChars = settings.MaxOutputChars
	}
	if err := code.Validate(); err != nil {
		return "", err
	}
	e := &execution.Exec{Spec: execution.Spec{Action: audit.ActionCode, Description: code.Description, Deadline: code.Timeout, Code: &code, Report: true}}
	if code.ContextID != "" {
		t, err := c.Thread(id)
		if err != nil {
			return "", err
		}
		if e.Context, err = x.o.Contexts.Acquire(t, &code); err != nil {
			return "", err
		}
	}
	e.Spec.Subject = code.Language
	req := &sandboxv1.RunRequest{
		Code:           &sandboxv1.Code{Language: code.Language, Text: code.Text},
		MaxOutputBytes: sandbox.DefaultOutputBytes, ContextId: code.ContextID,
	}
	execID, err := x.run(ctx, c, id, e, req, environment{own: code.Env, secrets: code.EnvSecrets, redact: code.RedactEnv}, code)
	if err != nil && e.Context != nil {
		x.o.Contexts.End(e.Context, "")
	}
	return execID, err
}

// RunScript starts a script of a skill and returns the id of its exec.
func (x *Runner) RunScript(ctx context.Context, c sandbox.Caller, id string, s sandbox.Script) (string, error) {
	if err := s.Validate(); err != nil {
		return "", err
	}
	t, err := c.Thread(id)
	if err != nil {
		return "", err
	}
	view, err := x.o.Skills.Of(ctx, t)
	if err != nil {
		return "", err
	}
	var argv []string
	if s.Module != "" {
		argv, err = view.ModuleArgv(s.Skill, s.Module)
	} else {
		argv, err = view.Argv(s.Skill, s.Path)
	}
	if err != nil {
		return "", err
	}
	sk, err := view.Get(s.Skill)
	if err != nil {
		return "", err
	}
	sk.Defaults.Fill(&s)
	cmd := sandbox.Command{Argv: append(argv, s.Args...), Cwd: s.Cwd, Stdin: s.Stdin, Env: s.Env, EnvSecrets: s.EnvSecrets, Timeout: s.Timeout}
	if err := cmd.Validate(); err != nil {
		return "", err
	}
	cmd.SetDefaults()
	req := &sandboxv1.RunRequest{Argv: cmd.Argv, Cwd: cmd.Cwd, Stdin: []byte(cmd.Stdin), MaxOutputBytes: uint64(cmd.MaxOutputBytes)}
	e := &execution.Exec{Spec: execution.Spec{Action: audit.ActionSkillRun, Skill: &sk, Subject: s.Skill + "/" + cmp.Or(s.Path, s.Module), Deadline: cmd.Timeout, Report: true}}
	return x.run(ctx, c, id, e, req, environment{own: s.Env, secrets: s.EnvSecrets, redact: s.RedactEnv, skill: &sk}, s)
}

// environment is what a request says of the environment of its exec.
type environment struct {
	own     map[string]string
	secrets map[string]string // variable -> name of a secret
	redact  bool              // hide the values of own, and of the sandbox's variables, in output
	skill   *sandbox.Skill    // whose script runs; nil: none
}

// template is that of the sandbox where it runs; "" is that of the thread.
func (e environment) template() string {
	if e.skill == nil {
		return ""
	}
	return e.skill.Template()
}

// run is what all three have in common: a sandbox, a record of the attempt, a token for the bridge, and a
// goroutine. The goroutine sees the exec to its end, whatever becomes of the caller.
func (x *Runner) run(ctx context.Context, c sandbox.Caller, id string, e *execution.Exec, req *sandboxv1.RunRequest, env environment, args any) (string, error) {
	t, err := c.Thread(id)
	if err != nil {
		return "", err
	}
	if env.redact { // what is too large is refused before a sandbox is started for nothing
		if _, err := redact.Env(nil, env.own); err != nil {
			return "", err
		}
	}
	named, err := x.named(ctx, t, env.skill, env.secrets)
	if err != nil {
		return "", err
	}
	execID, err := uuid.NewV7()
	if err != nil {
		return "", sandbox.Wrap(sandbox.Internal, err, "no id for the exec")
	}
	ctx = traces{x}.beginTrace(ctx, e, execID.String(), t)
	if e.Limits, err = x.o.Limits.Exec(ctx, c, execID.String(), e.Spec.Deadline); err != nil {
		e.Trace.Span.Failed(err)
		e.Trace.Span.End()
		return "", err
	}
	inst, common, err := traces{x}.enterTraced(ctx, c, t, env.template())
	if err != nil {
		e.Limits.Release()
		e.Trace.Span.Failed(err)
		e.Trace.Span.End()
		return "", err
	}
	handedOver := false
	defer func() {
		if !handedOver {
			x.o.Registry.Cancel()
			x.o.Lifecycle.Left(inst)
			e.Limits.Release()
			e.Trace.Span.FailedAs("not started")
			e.Trace.Span.End()
		}
	}()
	if req.GetLeaveProcesses() && !inst.Conn.LeavesProcesses() {
		return "", sandbox.Errorf(sandbox.NotSupported, "leave_processes: the daemon in this sandbox is older than the server, and cannot leave processes; release the sandbox, and the next exec starts another")
	}
	hidden, err := inst.Own().Redaction.Hiding(common, env.own, named, env.redact) // a file has what either sandbox of the thread left there
	if err != nil {
		return "", err
	}
	e.Secret = execution.NewSecrets(hidden)
	subject := e.Spec.Subject
	e.Spec.Subject, e.Named = e.Secret.Hide.String(subject), slices.Sorted(maps.Values(env.secrets))
	e.Spec.Description = e.Secret.Hide.String(e.Spec.Description)
	e.Begin(execID.String(), t, c)
	if e.Spec.Action == audit.ActionCode || e.Spec.Action == audit.ActionSkillRun { // what may import wrappers
		if err := x.o.Wrappers.Refresh(ctx, c, inst); err != nil {
			x.o.Log.Warn("wrappers not written", "thread", t.String(), "error", err)
		}
	}
	if e.Context != nil && e.Context.Instance() != inst {
		return "", sandbox.Errorf(sandbox.Conflict, "context %s: %s%s", e.Context.ID(), contexts.GoneWithSandbox, contexts.WhatToDo)
	}
	if e.Spec.Skill != nil {
		req.Argv = scriptArgv(req.Argv, inst.Template)
	}
	if e.Spec.Action == audit.ActionCode && e.Context == nil {
		asTemplate(req.Code, inst.Template)
		req.Code.OwnEnv = len(env.own)+len(named) > 0 // it may hold a secret, which nothing that waits is to keep
		if err := prepareCode(ctx, inst, req.Code); err != nil {
			return "", err
		}
	}
	// What another process wrote is in force for this exec, not only from the next round on.
	if err := x.o.Skills.Refresh(inst); err != nil {
		x.o.Log.Warn("skills not shown", "thread", t.String(), "error", err)
	}
	if err := x.o.Copies.Begin(ctx, inst, e.Spec.Report); err != nil {
		return "", err
	}
	plan, err := permits{x}.planRun(ctx, c, t, e, args)
	if err != nil {
		return "", err
	}
	if e.Attempt, err = x.attempt(ctx, inst, e, subject, args, plan); err != nil {
		return "", err
	}
	if err := (permits{x}).permit(ctx, inst, e, plan, func() error { return (permits{x}).sameSkill(ctx, e) }); err != nil {
		return "", err
	}
	e.Started = time.Now().UTC()
	traces{x}.traceRun(e)
	token := x.o.Bridge.Register(bridge.Exec{ExecID: e.ID, Thread: t, Caller: c, Skill: e.Spec.Skill, AuditParent: e.Attempt.ID, Hide: e.Secret.Given, SaveResult: x.o.Files.SaveResult, SaveFile: x.o.Files.SaveToolFile, Trace: e.Trace.Process})
	req.ExecId, req.TimeoutMs = e.ID, uint32(e.Spec.Deadline.Milliseconds())
	req.MaxSpillBytes, req.SpillDir = maxSpill, spillDir(e.ID)
	req.Env = instance.Environ(t, e.ID, token, inst.Template.Env, common, env.own, named, wasmEnv(&inst.Template.Template))
	if e.Spec.Report {
		e.Before = x.snapshot(t)
	}
	if e.Context != nil {
		x.o.Contexts.Begin(e.Context, e.ID)
	}
	inst.FileSync.Begin()
	x.o.Registry.Add(e)
	handedOver = true
	inst.Load.Bill(c)
	x.o.Loads.Watch(inst)
	x.o.Group.Go(func() { x.supervise(inst, e, req) })
	return e.ID, nil
}

func spillDir(execID string) string { return sandbox.WorkspaceDir + "/.skerry/execs/" + execID }

// attempt records that an exec is about to start. subject and args are as the caller gave them.
func (x *Runner) attempt(ctx context.Context, inst *instance.Instance, e *execution.Exec, subject string, args any, plan policy.Plan) (audit.Record, error) {
	rec := audit.About(e.Caller, e.Thread, e.Spec.Action, audit.PhaseAttempt)
	rec.Why, e.Spec.Subject = e.Secret.Given.JSON(plan.Why()), plan.ShownText(e.Spec.Subject)
	e.Spec.Description = plan.ShownText(e.Spec.Description)
	rec.Sandbox, rec.Exec, rec.Subject = string(inst.ID), e.ID, plan.ShownText(e.Secret.Given.String(subject))
	rec.Args, rec.ArgsHash = audit.Args(e.Secret.Args(args))
	rec.Detail = attemptDetail(inst, e)
	if plan.Redacts() {
		rec.Args, _ = audit.Args(json.RawMessage(plan.Shown(rec.Args)))
	}
	return x.o.Audit.Append(ctx, rec)
}

// attemptDetail names what a record of an attempt says beside the arguments.
func attemptDetail(inst *instance.Instance, e *execution.Exec) string {
	var parts []string
	if len(e.Named) > 0 {
		parts = append(parts, "secrets in its environment: "+strings.Join(e.Named, ", "))
	}
	if e.Spec.Skill != nil && e.Spec.Skill.Template() != "" {
		where := "the thread's own sandbox"
		if inst.Main != nil {
			where = "a second sandbox"
		}
		parts = append(parts, "in "+where+" of the template "+inst.Template.Name)
	}
	return strings.Join(parts, "; ")
}

// supervise runs e in b and ends it once.
func (x *Runner) supervise(inst *instance.Instance, e *execution.Exec, req *sandboxv1.RunRequest) {
	exit, status := traces{x}.streamTraced(inst, e, req)
	e.TakeRest(exit)
	notPulled := x.o.Copies.End(inst, e.Spec.Report, exit)
	var res sandbox.Result
	if exit != nil {
		if x.ranOutOfMemory(inst, exit) {
			exit.Status = sandboxv1.Exit_STATUS_OOM
			x.outliveOOM(inst)
		}
		res = e.Compose(exit)
	} else {
		res = e.Compose(&sandboxv1.Exit{DurationUs: time.Since(e.Started).Microseconds()})
		res.Status = status
	}
	if res.Status == sandbox.StatusKilled {
		res.Detail = cmp.Or(e.Reason(), e.Secret.All.String(exit.GetReason()))
	}
	switch {
	case notPulled == nil:
	case inst.OnVolume(): // they are kept, and cannot be listed
		res.FilesTruncated = true
	default:
		e.FilesNotPulled(&res, notPulled)
	}
	calls := x.o.Bridge.Finish(e.ID)
	x.settle(inst, e, &res, calls)
	if e.Context != nil {
		contextResults{x}.settleContext(inst, e, exit, &res)
	}
	if exit.GetStatus() == sandboxv1.Exit_STATUS_FAILED_TO_START {
		e.FailStart(exit, &res)
	}
	kept := x.saveFiles(inst, e)
	err := x.recordEnd(inst, e, res)
	if err == nil {
		err = kept
	}
	x.o.Loads.CountExec(inst, e, &res)
	x.countReturned(e, &res, calls)
	x.o.Lifecycle.Left(inst) // before a caller sees the end, and pauses the sandbox
	e.Finish(res, err)
	x.o.Metrics.Exec(e.Spec.Action, res.Status, res.ExitCode, time.Since(e.Started))
	e.Spec.Deadline += e.Hold.Spent() // the registry keeps it for so much longer
	e.EndTrace(inst.ID, &res)
	x.o.Registry.End(e)
	x.o.Lifecycle.Touch(inst)
}

// ranOutOfMemory reports whether a process that died of SIGKILL, which the server did not send, ran out of
// memory. sandboxd reads the kernel's counter; under a runtime that shows none inside, a process that
// had taken most of what there is tells it. The rest is the runtime's own: 9 to 16 % of 1 GiB in gVisor,
// more after a fork bomb.
func (x *Runner) ranOutOfMemory(inst *instance.Instance, exit *sandboxv1.Exit) bool {
	const sigkill, most = 128 + 9, 0.7
	return slices.Contains(x.o.OOMEndsSandbox, inst.Template.Runtime) &&
		exit.GetStatus() == sandboxv1.Exit_STATUS_EXITED && exit.GetCode() == sigkill &&
		float64(exit.GetMaxRssBytes()) > most*float64(inst.Template.Limits.MemoryBytes)
}

// outliveOOM waits a moment for the end of a sandbox in which a process ran out of memory, where nothing tells whether the
// runtime itself did. It returns what the process had a little later, and the kernel may end it until then. The next
// exec is not to begin in a sandbox that ends so, and to be told that it ran out of memory.
func (x *Runner) outliveOOM(inst *instance.Instance) {
	t := time.NewTimer(oomSettles)
	defer t.Stop()
	select {
	case <-inst.Gone:
	case <-t.C:
	case <-x.ctx.Done():
	}
}

// remoteGrace is how much later the end of an exec may come from another machine, where a broken connection has to come
// back first.
const remoteGrace = 15 * time.Second

// errUnanswered says that sandboxd did not tell the end of an exec in time.
var errUnanswered = errors.New("the deadline passed unanswered")

// stream runs e and takes in its events until its exit. The client takes up a broken connection again
// by itself while the sandbox lives. Without an exit the status says why.
func (x *Runner) stream(inst *instance.Instance, e *execution.Exec, req *sandboxv1.RunRequest) (*sandboxv1.Exit, sandbox.Status) {
	grace := UnansweredGrace
	if e.Context != nil {
		grace += contexts.Grace
	}
	if inst.FileSync != nil {
		grace += remoteGrace
	}
	ctx, cancel := context.WithCancelCause(x.ctx)
	defer cancel(nil)
	clock := deadline.Start(e.Spec.Deadline+grace, heldAtMost, func() { cancel(errUnanswered) })
	defer clock.Stop()
	e.Hold.SetClock(clock)
	exit, err := inst.Conn.Client.Run(ctx, req, x.timeFirst(inst, e.Take))
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
		x.o.Group.Go(func() { x.o.Teardown.Abandon(inst, "a deadline passed unanswered") })
		return nil, sandbox.StatusTimeout
	}
	return nil, x.postMortem(inst, err)
}

// postMortem says how the execs of a sandbox end whose daemon does not answer any more; cause is what came instead. When
// the server has not ended it, it is looked at, and ended.
func (x *Runner) postMortem(inst *instance.Instance, cause error) sandbox.Status {
	if s := inst.Ending(); s != "" {
		return s
	}
	if x.ctx.Err() != nil { // this server goes; the next one adopts the sandbox
		return sandbox.StatusLost
	}
	ctx, cancel := context.WithTimeout(x.ctx, inspectTimeout)
	defer cancel()
	entry, err := x.o.Driver.Inspect(ctx, inst.ID)
	oom := err == nil && entry.State == sandbox.Lost && entry.OOMKilled
	if s := inst.Ending(); s != "" {
		return s
	}
	x.o.Log.Warn("a sandbox does not answer any more; it is ended", "thread", inst.Thread.String(), "sandbox", string(inst.ID), "state", string(entry.State), "oom", oom, "inspected", err, "error", cause)
	x.o.Group.Go(func() { x.o.Teardown.Died(inst, oom) })
	if oom {
		return sandbox.StatusOOM
	}
	return sandbox.StatusLost
}

func (x *Runner) snapshot(t sandbox.Thread) paths.Snapshot {
	var s paths.Snapshot
	err := x.o.Files.With(t, nil, func(fs *paths.FS) error {
		var err error
		s, err = fs.Snapshot(x.ctx)
		return err
	})
	if err != nil {
		x.o.Log.Warn("files not listed", "thread", t.String(), "error", err)
	}
	return s
}

// timeFirst returns take; for the first exec of an instance it times the call, too.
func (x *Runner) timeFirst(inst *instance.Instance, take func(*sandboxv1.Event) error) func(*sandboxv1.Event) error {
	first := inst.FirstUse()
	if !first {
		return take
	}
	return func(ev *sandboxv1.Event) error {
		if first && ev.GetStarted() != nil {
			first = false
			x.o.Metrics.FirstExec(metrics.StartOf(inst.Info()), time.Since(inst.Asked))
		}
		return take(ev)
	}
}
