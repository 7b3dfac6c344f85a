package run

import (
	"context"
	"encoding/json"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/execution"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/platform/deadline"
	"github.com/skerry-sandbox/skerry/internal/policy"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/call"
)

// permits ask the policy before a run.
type permits struct{ *Runner }

// runArguments are what the policy, and a person, are asked about a run. Rules judge them as they are: a caller
// chooses the values of the environment, and could hide from the rules, or from a person, what it runs. What was given as
// a secret is hidden before a person sees it.
type runArguments struct {
	Command  string   `json:"command,omitempty"`
	Argv     []string `json:"argv,omitempty"`
	Cwd      string   `json:"cwd,omitempty"`
	Language string   `json:"language,omitempty"`
	Code     string   `json:"code,omitempty"`
	Context  string   `json:"context_id,omitempty"`
	Skill    string   `json:"skill,omitempty"`
	Script   string   `json:"script,omitempty"`
	Digest   string   `json:"digest,omitempty"` // of the skill: what was approved of one is not good for another
	Module   string   `json:"module,omitempty"`
	Args     []string `json:"args,omitempty"`
	Stdin    string   `json:"stdin,omitempty"`
}

// planRun asks the policy about a run.
func (x permits) planRun(ctx context.Context, c sandbox.Caller, t sandbox.Thread, e *execution.Exec, request any) (policy.Plan, error) {
	q := policy.Request{Kind: policy.Kind(e.Spec.Action), Caller: c, Thread: t}
	var args runArguments
	switch v := request.(type) {
	case sandbox.Command:
		args = runArguments{Command: v.Shell, Argv: v.Argv, Cwd: v.Cwd, Stdin: v.Stdin}
	case sandbox.Code:
		args = runArguments{Language: v.Language, Code: v.Text, Context: v.ContextID}
	case sandbox.Script:
		q.Skill, q.Untrusted = v.Skill, e.Spec.Skill != nil && !e.Spec.Skill.Trusted
		args = runArguments{Skill: v.Skill, Script: v.Path, Module: v.Module, Cwd: v.Cwd, Args: v.Args, Stdin: v.Stdin}
		if e.Spec.Skill != nil {
			q.SkillDigest, args.Digest, q.AllowedTools = e.Spec.Skill.Digest, e.Spec.Skill.Digest, e.Spec.Skill.AllowedTools
		}
	}
	text, err := json.Marshal(args)
	if err != nil {
		return policy.Plan{}, sandbox.Wrap(sandbox.Internal, err, "the run cannot be described")
	}
	q.Arguments = text
	return x.o.Hub.PlanRun(ctx, q, e.Secret.Given.Bytes), nil
}

// sameSkill reports as an error that the skill of a script changed while a person thought about it.
func (x permits) sameSkill(ctx context.Context, e *execution.Exec) error {
	if e.Spec.Skill == nil {
		return nil
	}
	view, err := x.o.Skills.Of(ctx, e.Thread)
	if err != nil {
		return err
	}
	now, err := view.Get(e.Spec.Skill.Name)
	if err == nil && now.Digest != e.Spec.Skill.Digest {
		err = sandbox.Errorf(sandbox.Conflict, "the skill %q changed before its script could run; run it again", e.Spec.Skill.Name)
	}
	return err
}

// permit waits until a run that is recorded may begin, and is still what was asked about. A run that may not has its end
// here.
func (x permits) permit(ctx context.Context, inst *instance.Instance, e *execution.Exec, plan policy.Plan, still func() error) error {
	err := x.o.Hub.Permit(ctx, plan, e.Attempt.ID)
	if err == nil {
		err = still()
	}
	if err == nil {
		return nil
	}
	rec := audit.About(e.Caller, e.Thread, e.Spec.Action, audit.PhaseResult)
	rec.Sandbox, rec.Exec, rec.Subject, rec.Parent = string(inst.ID), e.ID, e.Attempt.Subject, e.Attempt.ID
	rec.Outcome, rec.Detail = call.Ended(sandbox.ToolResult{}, err)
	if said := e.Secret.Given.String(sandbox.DetailOf(err)); said != "" {
		rec.Detail = said
	}
	settling, cancel := deadline.Detached(ctx, recordTimeout)
	defer cancel()
	if e := x.o.Audit.AppendResult(settling, rec); e != nil {
		return e
	}
	return err
}
