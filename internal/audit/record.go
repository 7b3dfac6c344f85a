package audit

import (
	"encoding/json"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// The actions that are recorded.
const (
	ActionExec              = "exec"
	ActionCode              = "execute_code"
	ActionSkillRun          = "skill_run"
	ActionToolCall          = "tool_call"
	ActionUpstream          = "mcp_request" // to an MCP server, other than a tool call
	ActionFileWrite         = "file_write"
	ActionFileEdit          = "file_edit"
	ActionFileDelete        = "file_delete"
	ActionFileMove          = "file_move"
	ActionFileMkdir         = "file_mkdir"
	ActionSandboxCreate     = "sandbox_create"
	ActionSandboxPool       = "sandbox_pool"  // the start of a sandbox that waits for a thread
	ActionSandboxClaim      = "sandbox_claim" // a thread got one of those
	ActionSandboxRemove     = "sandbox_remove"
	ActionSandboxAdopt      = "sandbox_adopt" // from a server that ended, or was stopped
	ActionSandboxPause      = "sandbox_pause"
	ActionSandboxResume     = "sandbox_resume"
	ActionSandboxHibernate  = "sandbox_hibernate" // its end, too: no sandbox_remove follows
	ActionSandboxExpire     = "sandbox_expire"    // likewise, with execs in it, because of its age
	ActionSandboxReap       = "sandbox_reap"      // a sandbox that no server knew, or what was left of one
	ActionSandboxQueue      = "sandbox_queue"     // it waited for a place
	ActionServerDrain       = "server_drain"
	ActionThreadDelete      = "thread_delete"
	ActionKeyCreate         = "key_create"
	ActionKeyRevoke         = "key_revoke"
	ActionAuthRefused       = "auth_refused"
	ActionMCPConfig         = "mcp_config"
	ActionSignal            = "exec_signal"
	ActionToolDrift         = "tool_drift" // a tool of an MCP server is not as it was
	ActionSecretSet         = "secret_set"
	ActionSecretDelete      = "secret_delete"
	ActionSecretRotate      = "secret_rotate" // everything that is encrypted was encrypted for a new key
	ActionEgressRefused     = "egress_refused"
	ActionSkillInstall      = "skill_install"
	ActionSkillSwitch       = "skill_switch" // on or off
	ActionSkillWrite        = "skill_write"  // of its SKILL.md
	ActionSkillDelete       = "skill_delete"
	ActionSkillActivate     = "skill_activate" // its instructions were given to an agent
	ActionPluginInstall     = "plugin_install"
	ActionPluginChange      = "plugin_change" // on or off, and values that it asks for
	ActionPluginRemove      = "plugin_remove"
	ActionPluginCommand     = "plugin_command"
	ActionMarketplaceAdd    = "marketplace_add"
	ActionMarketplaceRemove = "marketplace_remove"
	ActionContextOpen       = "context_open"      // a stateful interpreter of a thread
	ActionContextInterrupt  = "context_interrupt" // of the run in it
	ActionContextRestart    = "context_restart"
	ActionContextClose      = "context_close"
	ActionApprovalRequest   = "approval_request"  // a call waits for a person
	ActionApprovalDecision  = "approval_decision" // of a person, or none in time; or a standing answer was used
	ActionTerminal          = "exec_pty"          // a caller joined the terminal of an exec
	ActionFileChange        = "file_change"       // a file that changed while an exec ran; its parent is the exec's attempt
	ActionPolicyChange      = "policy_change"     // rules were put by the API
	ActionConfigReload      = "config_reload"     // a file of the configuration was read again
)

// What the log records about itself, of no tenant.
const (
	ActionHead = "audit_head" // the signed head: Args is a Head
	// ActionRetention says that a segment is archived and will be removed from this disk; Args is a Manifest.
	ActionRetention = "audit_retention"
	ActionGap       = "audit_gap" // what was done while nothing could be recorded (on_failure: open)
)

// The phases of a record. What can fail midway has an attempt and then exactly one result, whose
// Parent is the attempt; the rest is recorded once, as a result.
const (
	PhaseAttempt = "attempt"
	PhaseResult  = "result"
)

// Record is one line of the audit log. The caller of Append leaves ID, Time, Writer, Seq, Prev and
// Hash empty.
//
// Children are found by Parent. The result of an attempt has the attempt as its parent and the same action. What code did
// has the attempt of its exec: tool calls (their attempt) and changed files. What a tool call did has the attempt of the
// call. All records of one request of the API have its RequestID.
type Record struct {
	ID       string          `json:"id"` // UUIDv7
	Time     time.Time       `json:"time"`
	Writer   string          `json:"writer"` // the server process
	Seq      uint64          `json:"seq"`    // within the writer, 1, 2, 3 …
	Tenant   string          `json:"tenant"`
	User     string          `json:"user"`
	Thread   string          `json:"thread,omitempty"`
	Sandbox  string          `json:"sandbox,omitempty"`
	Exec     string          `json:"exec,omitempty"`
	Parent   string          `json:"parent,omitempty"` // ID of another record: see above
	Phase    string          `json:"phase"`
	Action   string          `json:"action"`
	Subject  string          `json:"subject,omitempty"`   // command, path, tool …, cut to 1 KiB
	ArgsHash string          `json:"args_hash,omitempty"` // sha256 hex of the arguments as they were
	Args     json.RawMessage `json:"args,omitempty"`      // redacted, at most 4 KiB
	Outcome  string          `json:"outcome,omitempty"`   // of a result: "ok", "error", "denied", "timeout", or an exec's status
	Detail   string          `json:"detail,omitempty"`
	Millis   int64           `json:"ms"`
	BytesIn  int64           `json:"bytes_in"`
	BytesOut int64           `json:"bytes_out"`
	OutHash  string          `json:"out_hash,omitempty"` // sha256 hex of the result

	// Why says how a decision came about: the rules, capabilities and facts that led to it. Redacted and bounded as Args.
	Why json.RawMessage `json:"why,omitempty"`

	// Who did it. User is for whom it was done; the rest says how they were known. By fills it in.
	Auth      string `json:"auth,omitempty"` // "key", "jwt", "none" (no authentication is configured); "" the server itself
	KeyID     string `json:"key_id,omitempty"`
	Role      string `json:"role,omitempty"`  // agent, developer, admin, auditor
	Actor     string `json:"actor,omitempty"` // who presented the credential, when that is not User (On-Behalf-Of)
	RequestID string `json:"request_id,omitempty"`
	TraceID   string `json:"trace_id,omitempty"` // W3C: 32 hex digits
	Source    string `json:"source,omitempty"`
	UserAgent string `json:"user_agent,omitempty"`

	Prev string `json:"prev"` // Hash of the record before, of this writer
	Hash string `json:"hash"`
}

// About returns a record that says who does what, and to which thread.
func About(c sandbox.Caller, t sandbox.Thread, action, phase string) Record {
	return Record{Tenant: t.Tenant, User: t.User, Thread: t.ID, Action: action, Phase: phase}.By(c)
}

// By returns r with what is known of who asked for it.
func (r Record) By(c sandbox.Caller) Record {
	r.TraceID = c.TraceID
	r.KeyID, r.RequestID, r.Source, r.UserAgent = c.KeyID, c.RequestID, c.Source, c.UserAgent
	r.Auth, r.Role = c.Method, string(c.Role)
	if c.OnBehalf() {
		r.Actor = c.Actor
	}
	return r
}

// Filter selects records of one tenant. Empty fields select all.
type Filter struct {
	Tenant  string
	User    string
	Thread  string
	Exec    string
	Action  string
	Tool    string // subject of a tool_call
	Outcome string
	Since   time.Time
	Until   time.Time
	Text    string // anywhere in a text of the record, whatever the case; at most MaxText
	Cursor  string
	Limit   int // 1 to 1000; 0 = 100
}
