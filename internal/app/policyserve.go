package app

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/config"
	"github.com/skerry-sandbox/skerry/internal/policy"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
	"github.com/skerry-sandbox/skerry/internal/tools/hub"
)

// PolicyFile is where the server's rules are.
func PolicyFile(cfg config.Config) string {
	return cmp.Or(cfg.Policy, filepath.Join(cfg.Data, "policy", "policy.yaml"))
}

// openPolicy reads the rules and follows their files; each change is recorded, and reaches running sandboxes.
func (b *builder) openPolicy(f *foundation, tools *hub.Hub) (*policy.Engine, error) {
	e, err := policy.Open(policy.EngineOptions{
		File: PolicyFile(b.cfg), Needed: b.cfg.Policy != "", Tenants: filepath.Join(b.cfg.Data, "policy", "tenants"), Log: b.log,
		Changed: func(tenant string, s policy.Status) {
			tools.Announce()
			rec := audit.Record{Tenant: cmp.Or(tenant, b.cfg.OperatorTenant), Action: audit.ActionConfigReload, Phase: audit.PhaseResult, Subject: "policy", Outcome: "ok", Detail: s.Source + " " + s.Digest}
			if s.Problem != nil {
				rec.Outcome, rec.Detail = "error", s.Problem.Error()
			}
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			if _, err := f.audit.Append(ctx, rec); err != nil {
				b.log.Error("a change of the policy is not recorded", "error", err)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	b.onClose(e.Close)
	return e, nil
}

// rateCounter counts what rules limit in the state store, for all servers together.
type rateCounter struct{ store *store.Store }

// Take counts a call, in one round trip.
func (c rateCounter) Take(ctx context.Context, rates []policy.Rate) (*policy.Rate, time.Duration, error) {
	checks := make([]store.Check, 0, len(rates))
	for _, r := range rates {
		scope := sha256.Sum256([]byte(r.Key)) // names of any length and kind are in it
		checks = append(checks, store.Check{
			Kind: store.CheckRate, Limit: "policy", Scope: hex.EncodeToString(scope[:]), Max: int64(r.Calls), Every: r.Per / time.Duration(r.Calls),
		})
	}
	refused, err := c.store.AdmitShared(ctx, checks)
	if err != nil || refused == nil {
		return nil, 0, err
	}
	return &rates[refused.Check], refused.Wait, nil
}

// policyAdmin is the policy with each change by a caller on the record.
type policyAdmin struct {
	*policy.Engine
	access *access
	hub    *hub.Hub
}

// PutPolicy replaces rules.
func (a policyAdmin) PutPolicy(ctx context.Context, c sandbox.Caller, tenant, text, digest string) (policy.Status, error) {
	subject := "server"
	if tenant != "" {
		subject = "tenant " + tenant
	}
	var s policy.Status
	err := a.access.recorded(ctx, c, audit.ActionPolicyChange, subject, func(rec *audit.Record) (err error) {
		if s, err = a.Put(ctx, tenant, text, digest); err == nil {
			rec.Subject += ": " + cmp.Or(s.Digest, s.Source)
		}
		return err
	})
	return s, err
}

// TryPolicy says what rules say of a call.
func (a policyAdmin) TryPolicy(ctx context.Context, c sandbox.Caller, tenant, text string, call *policy.Sample, record string) (policy.Trial, error) {
	var sample policy.Sample
	var notes []string
	if call != nil {
		sample = *call
	} else {
		rec, err := a.record(ctx, c.Tenant, record)
		if err != nil {
			return policy.Trial{}, err
		}
		if sample, notes, err = a.sampleOf(ctx, rec); err != nil {
			return policy.Trial{}, err
		}
	}
	sample.Tenant = c.Tenant // a caller asks about the rules of its own tenant only
	d, err := a.Try(ctx, tenant, text, sample.Request())
	if err != nil {
		return policy.Trial{}, err
	}
	return policy.NewTrial(d, sample, notes), nil
}

// record finds an audit record. Its id says when it was made.
func (a policyAdmin) record(ctx context.Context, tenant, id string) (audit.Record, error) {
	gone := sandbox.Errorf(sandbox.NotFound, "there is no audit record %.64q", id)
	u, err := uuid.Parse(id)
	if err != nil || u.Version() != 7 {
		return audit.Record{}, gone
	}
	sec, nsec := u.Time().UnixTime()
	at := time.Unix(sec, nsec)
	f := audit.Filter{Tenant: tenant, Since: at.Add(-time.Second), Until: at.Add(time.Second), Limit: 1000}
	for range 100 { // far more than a server writes in two seconds
		items, next, err := a.access.audit.List(ctx, f)
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
func (a policyAdmin) sampleOf(ctx context.Context, r audit.Record) (s policy.Sample, notes []string, err error) {
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
		tool, err := a.hub.Catalog.Resolve(ctx, t, sandbox.ToolRef{Printed: r.Subject})
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
