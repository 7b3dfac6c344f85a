package record

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
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

// OfLog begins a record of the log about itself.
func OfLog(action, subject string) (Record, error) {
	id, err := uuid.NewV7()
	return Record{ID: id.String(), Phase: PhaseResult, Action: action, Subject: subject}, err
}
