package sandbox

import (
	"encoding/json"
	"time"
)

// ApprovalState says what became of a request for approval.
type ApprovalState string

// A request is pending until exactly one of the others becomes true.
const (
	ApprovalPending   ApprovalState = "pending"
	ApprovalApproved  ApprovalState = "approved"
	ApprovalDenied    ApprovalState = "denied"
	ApprovalExpired   ApprovalState = "expired"   // no decision came in time
	ApprovalCancelled ApprovalState = "cancelled" // the exec ended, or the caller went away
)

// ApprovalScope is what an approval is good for.
type ApprovalScope string

// The scopes. The last two hold as long as the thread is there.
const (
	ApproveOnce      ApprovalScope = "once"
	ApproveArguments ApprovalScope = "arguments" // each call of the tool in the thread with exactly these arguments
	ApproveThread    ApprovalScope = "thread"    // each call of the tool in the thread
)

// MaxApprovalReason bounds the reason of a decision, in bytes.
const MaxApprovalReason = 1024

// Approval is a call that a person is asked about.
type Approval struct {
	ID      string        `json:"id"`
	State   ApprovalState `json:"state" enum:"pending,approved,denied,expired,cancelled"`
	Tenant  string        `json:"tenant"`
	User    string        `json:"user"`
	Thread  string        `json:"thread_id"`
	Exec    string        `json:"exec_id,omitempty"`    // whose code made the call
	Request string        `json:"request_id,omitempty"` // by which the exec, or the call, came
	KeyID   string        `json:"key_id,omitempty"`     // its credential

	Server      string          `json:"server,omitempty"` // the MCP server
	Tool        string          `json:"tool"`             // printed; skill:<name>/<script> for a skill's script
	Annotations json.RawMessage `json:"annotations,omitempty" doc:"What the MCP server says of the tool; hints of a stranger"`
	Skill       string          `json:"skill,omitempty"`
	Arguments   json.RawMessage `json:"arguments,omitempty" doc:"Redacted, at most 4 KiB"`
	ArgsHash    string          `json:"args_hash" doc:"sha256 of the arguments as they are"`
	Bytes       int64           `json:"bytes" doc:"Of the arguments"`
	Why         string          `json:"why" doc:"The rule that asks"`

	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at" doc:"Denied without a decision by then; for an approval that no call has used, its end"`
	ApprovalOutcome
	// Record is the audit record of the request.
	Record string `json:"record,omitempty"`
}

// ApprovalOutcome says how a request was decided, and when its call heard of it.
type ApprovalOutcome struct {
	Decision *ApprovalDecision `json:"decision,omitempty"`
	// Used is when the call went on, or was refused, by the decision.
	Used *time.Time `json:"used_at,omitempty"`
}

// ApprovalDecision is how a request was decided, by whom, and for what.
type ApprovalDecision struct {
	By     string        `json:"by"`
	KeyID  string        `json:"key_id,omitempty"`
	How    string        `json:"how" enum:"api,webhook"`
	Scope  ApprovalScope `json:"scope,omitempty" enum:"once,arguments,thread"`
	Reason string        `json:"reason,omitempty"`
	At     time.Time     `json:"at"`
}

// ApprovalVerdict is the decision of a person.
type ApprovalVerdict struct {
	Approve bool
	Scope   ApprovalScope // "" is once
	Reason  string
}

// ApprovalFilter selects requests of one tenant; what is empty selects all.
type ApprovalFilter struct {
	Tenant string
	User   string
	Thread string
	Tool   string
	State  ApprovalState
	Cursor string
	Limit  int // 1 to 1000; 0: 100
}

// ApprovalCall is a call that may be made only when a person says so.
type ApprovalCall struct {
	Thread      Thread
	Caller      Caller
	Exec        string // "": the agent's own call
	Server      string
	Tool        string // printed
	Annotations json.RawMessage
	Skill       string
	SkillDigest string // of its files
	ArgsHash    string
	Bytes       int64           // of the arguments
	Shown       json.RawMessage // the arguments without secrets that are known
	Why         string
	Record      string // audit record of the call
}
