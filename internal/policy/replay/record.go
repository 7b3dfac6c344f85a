package replay

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/policy"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Log is where records are read.
type Log interface {
	List(ctx context.Context, f audit.Filter) (items []audit.Record, next string, err error)
}

// Catalog is the tools that there are now.
type Catalog interface {
	Resolve(ctx context.Context, t sandbox.Thread, ref sandbox.ToolRef) (sandbox.Tool, error)
}

// Replay tries rules on what was called.
type Replay struct {
	Engine  *policy.Engine
	Log     Log
	Catalog Catalog
}

// TryPolicy says what rules say of a call that is made up, or of a record of the caller's tenant. tenant is whose own rules text
// replaces, "" for the server's; an empty text means the rules in force.
func (a *Replay) TryPolicy(ctx context.Context, c sandbox.Caller, tenant, text string, call *policy.Sample, record string) (policy.Trial, error) {
	var sample policy.Sample
	var notes []string
	if call != nil {
		sample = *call
	} else {
		rec, err := a.record(ctx, c.Tenant, record)
		if err != nil {
			return policy.Trial{}, err
		}
		if sample, notes, err = sampleOf(ctx, a.Catalog, rec); err != nil {
			return policy.Trial{}, err
		}
	}
	sample.Tenant = c.Tenant // a caller asks about the rules of its own tenant only
	rules, err := a.Engine.With(tenant, text)
	if err != nil {
		return policy.Trial{}, err
	}
	return policy.NewTrial(rules.Decide(ctx, sample.Request()), sample, notes), nil
}

// record finds an audit record. Its id says when it was made.
func (a *Replay) record(ctx context.Context, tenant, id string) (audit.Record, error) {
	gone := sandbox.Errorf(sandbox.NotFound, "there is no audit record %.64q", id)
	u, err := uuid.Parse(id)
	if err != nil || u.Version() != 7 {
		return audit.Record{}, gone
	}
	sec, nsec := u.Time().UnixTime()
	at := time.Unix(sec, nsec)
	f := audit.Filter{Tenant: tenant, Since: at.Add(-time.Second), Until: at.Add(time.Second), Limit: 1000}
	for range 100 { // far more than a server writes in two seconds
		items, next, err := a.Log.List(ctx, f)
		if err != nil {
			return audit.Record{}, err
		}
		for _, r := range items {
			if r.ID == id {
				return r, nil
			}
		}
		if f.Cursor = next; next == "" {
			break
		}
	}
	return audit.Record{}, gone
}

// sampleOf returns the call that a record is of, and what of it is not known any more.
func sampleOf(ctx context.Context, tools Catalog, r audit.Record) (s policy.Sample, notes []string, err error) {
	if r.Phase != audit.PhaseAttempt {
		return s, nil, sandbox.Errorf(sandbox.Invalid, "record: %s is a result; give the attempt, which is its parent (%s)", r.ID, r.Parent)
	}
	notes = append(notes, "the capabilities that the caller had are not known", "arguments are tried as the log keeps them")
	s = policy.Sample{Kind: policy.Kind(r.Action), User: r.User, Role: r.Role, Thread: r.Thread, Time: &r.Time, Args: r.Args}
	if text := string(r.Args); strings.Contains(text, `"***"`) || strings.Contains(text, "[redacted]") {
		notes = append(notes, "values are hidden in them")
	}
	if strings.Contains(string(r.Args), `"truncated":true`) {
		notes = append(notes, "they were too long, and are cut")
	}
	switch r.Action {
	case audit.ActionToolCall:
		s.Exec = r.Exec
		t := sandbox.Thread{Owner: sandbox.Owner{Tenant: r.Tenant, User: r.User}, ID: r.Thread}
		tool, err := tools.Resolve(ctx, t, sandbox.ToolRef{Printed: r.Subject})
		if err != nil {
			notes = append(notes, "the tool is not there now: its server and its own name are taken from the printed name, its annotations are not known")
			s.Server, s.Tool, _ = strings.Cut(r.Subject, "__")
			return s, notes, nil
		}
		s.Server, s.Tool, s.Annotations = tool.Server, tool.Name, tool.Annotations
		return s, append(notes, "the tool's annotations are those of now"), nil
	case audit.ActionUpstream:
		s.Server, s.Tool, _ = strings.Cut(r.Subject, " ")
		return s, notes, nil
	case audit.ActionExec, audit.ActionCode, audit.ActionSkillRun:
		if s.Args, s.Skill, err = runOfRecord(r); err != nil {
			err = sandbox.Errorf(sandbox.Invalid, "record: its arguments were not kept whole")
		}
		return s, notes, err
	}
	return s, nil, sandbox.Errorf(sandbox.Invalid, "record: the policy does not decide on %s; give a tool_call, mcp_request, exec, execute_code or skill_run", r.Action)
}

// runOfRecord returns what ran, as rules see it, from the arguments that a record keeps.
func runOfRecord(r audit.Record) (args json.RawMessage, skill string, err error) {
	var kept struct { // what sandbox.Command, Code and Script have in JSON
		Shell, Cwd, Language, Text, Skill, Path string
		Argv, Args                              []string
	}
	if err := json.Unmarshal(r.Args, &kept); err != nil {
		return nil, "", err
	}
	args, err = json.Marshal(struct {
		Command  string   `json:"command,omitempty"`
		Argv     []string `json:"argv,omitempty"`
		Cwd      string   `json:"cwd,omitempty"`
		Language string   `json:"language,omitempty"`
		Code     string   `json:"code,omitempty"`
		Skill    string   `json:"skill,omitempty"`
		Script   string   `json:"script,omitempty"`
		Args     []string `json:"args,omitempty"`
	}{kept.Shell, kept.Argv, kept.Cwd, kept.Language, kept.Text, kept.Skill, kept.Path, kept.Args})
	return args, kept.Skill, err
}
