package orchestrator

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/policy"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
)

type ruled struct {
	policy.AllowAll
	set *policy.Set
}

func (r ruled) Decide(ctx context.Context, q policy.Request) policy.Decision {
	return r.set.Decide(ctx, q)
}

// TestSubscriptionsAreDecidedOn: watching a resource of an MCP server is put to the rules and recorded, as reading it
// is.
func TestSubscriptionsAreDecidedOn(t *testing.T) {
	t.Parallel()
	rules, err := policy.Parse([]byte(`
version: 1
default: allow
rules:
- {id: private, effect: deny, match: {kind: mcp_request}, when: 'args.uri.startsWith("file:///private")'}
`))
	if err != nil {
		t.Fatal(err)
	}
	h := newHouseWith(t, daemon{run: exits}, noTools{}, func(o *Options) {
		o.Tools.Hub = policy.New(policy.Options{Hub: noTools{}, Upstream: noTools{}, Changes: noTools{}, Decider: ruled{set: &policy.Set{Global: rules}}})
	})
	for uri, want := range map[string]sandbox.Kind{"file:///public": "", "file:///private/x": sandbox.Forbidden} {
		if err := h.Calls.WatchUpstream(t.Context(), caller, "a", "s", uri, func() {}); sandbox.KindOf(err) != want {
			t.Errorf("%s: %v", uri, err)
		}
		list, _, err := h.audit.List(t.Context(), audit.Filter{Tenant: caller.Tenant, Action: audit.ActionUpstream})
		if err != nil || len(list) < 2 {
			t.Fatalf("%s: %d records, %v", uri, len(list), err)
		}
		outcome := "ok"
		if want != "" {
			outcome = "denied"
		}
		result, attempt := list[0], list[1] // newest first
		if attempt.Subject != "s resources/subscribe" || !strings.Contains(string(attempt.Args), uri) || len(attempt.Why) == 0 || result.Outcome != outcome || result.Parent != attempt.ID {
			t.Errorf("%s: %+v, %+v", uri, attempt, result)
		}
	}
}

// TestRunsAreDecidedOn: a command, code or script that the rules deny does not reach the sandbox, and its two records say
// why; what they allow says so, too.
func TestRunsAreDecidedOn(t *testing.T) {
	t.Parallel()
	rules, err := policy.Parse([]byte(`
version: 1
default: allow
rules:
- {id: no-rm, effect: deny, match: {kind: exec}, when: 'args.?command.orValue("").contains("rm -rf")', reason: too much}
- {id: no-python, effect: require_approval, match: {kind: execute_code}, when: args.language == "python"}
- {id: hide, match: {kind: exec}, redact: {args: {patterns: [hush]}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan string, 10)
	h := newHouseWith(t, daemon{run: exits, asked: func(r *sandboxv1.RunRequest) { asked <- r.GetShell() + r.GetCode().GetText() }}, noTools{}, func(o *Options) {
		o.Tools.Hub = policy.New(policy.Options{Hub: noTools{}, Upstream: noTools{}, Changes: noTools{}, Decider: ruled{set: &policy.Set{Global: rules}}})
	})
	ctx := t.Context()
	_, err = h.Runs.RunCommand(ctx, caller, "a", sandbox.Command{Shell: "rm -rf /; echo hush"})
	if sandbox.KindOf(err) != sandbox.Forbidden || !strings.Contains(err.Error(), "this command is denied by the policy (rule no-rm: too much)") {
		t.Errorf("denied: %v", err)
	}
	_, err = h.Runs.RunCode(ctx, caller, "a", sandbox.Code{Language: "python", Text: "date"})
	if sandbox.KindOf(err) != sandbox.Forbidden || !strings.Contains(err.Error(), "needs an approval") {
		t.Errorf("unapproved: %v", err)
	}
	// The environment is the caller's own: hidden in records, it hides nothing from the rules.
	_, err = h.Runs.RunCommand(ctx, caller, "b", sandbox.Command{Shell: "rm -rf /tmp/x", Env: map[string]string{"X": "rm -rf /tmp/x"}})
	if sandbox.KindOf(err) != sandbox.Forbidden {
		t.Errorf("hidden by its environment: %v", err)
	}
	if _, err := h.exec(t, "a", time.Minute); err != nil {
		t.Fatal(err)
	}
	<-asked
	select {
	case what := <-asked:
		t.Errorf("reached the sandbox: %q", what)
	default:
	}
	list, _, err := h.audit.List(ctx, audit.Filter{Tenant: caller.Tenant, Action: audit.ActionExec, Thread: "a"})
	if err != nil || len(list) != 4 {
		t.Fatalf("%d records, %v", len(list), err)
	}
	denied, attempt := list[2], list[3] // newest first
	var why policy.Why
	if err := json.Unmarshal(attempt.Why, &why); err != nil || why.Effect != policy.Deny || why.Rules[0].Rule != "no-rm" || len(why.Rules[0].Held) != 1 || why.Policy != rules.Digest {
		t.Errorf("why %s, %v", attempt.Why, err)
	}
	if denied.Parent != attempt.ID || denied.Outcome != "denied" || denied.Exec != attempt.Exec || denied.Phase != audit.PhaseResult {
		t.Errorf("%+v", denied)
	}
	if strings.Contains(string(attempt.Args)+attempt.Subject+denied.Subject, "hush") {
		t.Errorf("not redacted: %s %s %s", attempt.Args, attempt.Subject, denied.Subject)
	}
	if err := json.Unmarshal(list[1].Why, &why); err != nil || why.Effect != policy.Allow {
		t.Errorf("why %s, %v", list[1].Why, err)
	}
	if n := h.live.Find(sandbox.Thread{Owner: caller.Owner, ID: "a"}); n.Busy() {
		t.Errorf("execs are counted in")
	}
}
