package policy

import (
	"context"
	"encoding/json"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Kind is what a request is about.
type Kind string

// The kinds, which are the actions of the audit log.
const (
	KindToolCall Kind = "tool_call"
	KindUpstream Kind = "mcp_request" // to an MCP server, other than a tool call: a resource, a prompt
	KindExec     Kind = "exec"
	KindCode     Kind = "execute_code"
	KindSkillRun Kind = "skill_run"
)

// Effect is what becomes of a request.
type Effect string

// The effects, the weakest first: of several that hold, the strongest counts.
const (
	Allow           Effect = "allow"
	RequireApproval Effect = "require_approval"
	Deny            Effect = "deny"
)

// strength orders effects.
func (e Effect) strength() int {
	switch e {
	case Allow:
		return 1
	case RequireApproval:
		return 2
	case Deny:
		return 3
	}
	return 0
}

// Request is what is asked: may this caller do this, now? Fields that say nothing of its kind are empty.
type Request struct {
	Kind   Kind
	Caller sandbox.Caller
	Thread sandbox.Thread
	// Exec is the exec whose code asks; "" when the agent itself does, or for the start of an exec.
	Exec string
	// Server and Tool are the names as the MCP server has them; Printed is how the tool is written. Of a KindUpstream
	// request Tool is the method, such as "resources/read".
	Server, Tool, Printed string
	Annotations           Annotations
	Findings              []sandbox.Finding // of the tool's description: see package toolscan
	// Arguments are the bytes that the MCP server gets; of what runs in a sandbox an object with what is to run, without its
	// environment: command, argv, cwd, language, code, skill, script and so on, of those what there is.
	Arguments json.RawMessage
	// Skill is that of a KindSkillRun, or of a KindToolCall the one whose script calls.
	Skill string
	// AllowedTools are what the skill's SKILL.md names in allowed-tools; nil: it names none.
	AllowedTools []string
	// SkillDigest is that of the skill's files: a lasting approval is for them alone.
	SkillDigest string
	Untrusted   bool // the skill comes from a source that is not trusted
	Time        time.Time
	// Capabilities are the capabilities of the caller in this thread.
	Capabilities []string
}

// Annotations are what a tool says of itself, with the defaults of the MCP specification for what it does not
// say. They are hints of a stranger: a rule that allows something because of them trusts the tool's server.
type Annotations struct {
	ReadOnly    bool `json:"readOnlyHint"`    // default false
	Destructive bool `json:"destructiveHint"` // default true; false of a tool that is read-only
	Idempotent  bool `json:"idempotentHint"`  // default false
	OpenWorld   bool `json:"openWorldHint"`   // default true
	Said        bool `json:"-"`               // the tool has annotations at all
	// Explicit says which of the four, in the order above, the tool says itself.
	Explicit [4]bool `json:"-"`
}

// ReadAnnotations reads the annotations of a tool, as its server wrote them. What is no boolean is not said.
func ReadAnnotations(raw json.RawMessage) Annotations {
	a := Annotations{Destructive: true, OpenWorld: true}
	var hints map[string]any
	if json.Unmarshal(raw, &hints) != nil || len(hints) == 0 {
		return a
	}
	a.Said = true
	for i, into := range []*bool{&a.ReadOnly, &a.Destructive, &a.Idempotent, &a.OpenWorld} {
		if v, ok := hints[hintNames[i]].(bool); ok {
			*into, a.Explicit[i] = v, true
		}
	}
	if a.ReadOnly { // the specification: destructiveHint means nothing then
		a.Destructive = false
	}
	return a
}

// Decision is the answer to a Request.
type Decision struct {
	Why    Why
	Limits Limits
	Redact Redaction
}

// Effect is what becomes of the request.
func (d Decision) Effect() Effect { return d.Why.Effect }

// Why says how a decision came about. It is part of the audit record of the call.
type Why struct {
	Effect Effect   `json:"effect"`
	Rules  []Reason `json:"rules,omitempty"` // that held, in the order of the file; none: the default decided
	Policy string   `json:"policy"`          // digest of the rules that were asked
}

// Reason is one rule that held.
type Reason struct {
	Rule   string   `json:"rule"`             // its id; of a tenant's own rules "tenant:<id>"
	Effect Effect   `json:"effect,omitempty"` // "" of a rule that only limits or redacts
	Text   string   `json:"text,omitempty"`   // the rule's own reason
	Held   []string `json:"held,omitempty"`   // its conditions, as they are written
	Error  string   `json:"error,omitempty"`  // a condition could not be judged, so the rule denies
}

// Limits bound one call. A limit of 0 is none.
type Limits struct {
	Rates []Rate
	Bytes int64         // of its result
	Time  time.Duration // until the MCP server's answer
}

// Rate allows so many calls in so much time, counted under Key.
type Rate struct {
	Rule  string
	Key   string
	Calls int
	Per   time.Duration
}

// Decider answers requests. Decide is called at the same time by many, and costs microseconds: no I/O.
type Decider interface {
	Decide(ctx context.Context, r Request) Decision
	// Requires are the capabilities that rules want for a tool, beside those of its server's configuration.
	Requires(t sandbox.Thread, tool sandbox.Tool) []string
	// Hides reports whether the rules deny the caller every call of the tool, whatever its arguments and time.
	Hides(c sandbox.Caller, t sandbox.Thread, tool sandbox.Tool) bool
}

// Approver asks people. Approve waits until a person has decided, the approval's own time is over, or ctx ends,
// and returns nil only for a yes. Errors are Forbidden for a no and Timeout when no person decided; their texts are
// shown to the caller.
type Approver interface {
	Approve(ctx context.Context, r ApprovalRequest) error
}

// ApprovalRequest is what a person is asked.
type ApprovalRequest struct {
	Request  Request
	Decision Decision
	// Shown are the arguments as they may be shown and recorded: without the exec's secrets and what rules
	// redact, but not yet without what the audit log hides by its name.
	Shown json.RawMessage
	// ArgsHash tells the arguments, as they are, from others: their sha256 in hex, or a keyed hash when Shown hides a secret.
	ArgsHash string
	// Attempt is the audit record of the attempt.
	Attempt string
}

// AllowAll is a Decider without rules.
type AllowAll struct{}

// Decide allows.
func (AllowAll) Decide(context.Context, Request) Decision {
	return Decision{Why: Why{Effect: Allow, Policy: "none"}}
}

// Requires wants nothing.
func (AllowAll) Requires(sandbox.Thread, sandbox.Tool) []string { return nil }

// Hides hides nothing.
func (AllowAll) Hides(sandbox.Caller, sandbox.Thread, sandbox.Tool) bool { return false }
