package audit

import (
	"encoding/json"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit/record"
	"github.com/skerry-sandbox/skerry/internal/audit/verify"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Record is one line of the audit log. The caller of Append leaves ID, Time, Writer, Seq, Prev and Hash empty.
type Record = record.Record

// Head says which record of a writer has which hash.
type Head = record.Head

// What Verify returns.
type (
	// VerifyResult says whether a log is as it was written.
	VerifyResult = verify.Result
	// BadRecord names the first record that is not as it was written.
	BadRecord = verify.BadRecord
	// Writer is one server's part of the log.
	Writer = verify.Writer
)

// The phases of a record, and what the log records about itself.
const (
	PhaseAttempt    = record.PhaseAttempt
	PhaseResult     = record.PhaseResult
	ActionHead      = record.ActionHead
	ActionRetention = record.ActionRetention
	ActionGap       = record.ActionGap
)

// About returns a record that says who does what, and to which thread.
func About(c sandbox.Caller, t sandbox.Thread, action, phase string) Record {
	return Record{Tenant: t.Tenant, User: t.User, Thread: t.ID, Action: action, Phase: phase}.By(c)
}

// Args returns what a Record keeps of a call's arguments, redacted, and the hash of the arguments as they were:
// record.Args.
func Args(v any) (args json.RawMessage, hash string) { return record.Args(v) }

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
