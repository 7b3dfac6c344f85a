package bridge

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/observe/tracing"
	"github.com/skerry-sandbox/skerry/internal/platform/redact"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/call"
	"github.com/skerry-sandbox/skerry/internal/tools/resultfile"
)

// Limits are those of one exec. A limit of 0 takes its default.
type Limits struct {
	Calls       int           // requests; 10,000
	Bytes       int64         // of all results together; 256 MiB
	CallTime    time.Duration // of one call; 1 h: the hub has shorter ones, by server and tool
	InlineBytes int           // of a result; a larger one is kept as a file; 1 MiB
}

func (l Limits) filled() Limits {
	return Limits{
		Calls: cmp.Or(l.Calls, 10_000), Bytes: cmp.Or(l.Bytes, 256<<20),
		CallTime: cmp.Or(l.CallTime, time.Hour), InlineBytes: cmp.Or(l.InlineBytes, 1<<20),
	}
}

// Limits of what code in a sandbox may ask of the bridge.
const (
	MaxParallel      = 64       // requests of one exec at a time
	MaxBodyBytes     = 4 << 20  // of a request
	MaxConnections   = 256      // of a sandbox
	maxBodyBytesHeld = 64 << 20 // of all requests of a sandbox at a time
	maxRefusals      = 20       // records of refused tokens, of a sandbox in a second

	finishWait   = time.Second // for the calls of an exec that ended
	closeWait    = time.Second
	recordWait   = 5 * time.Second
	headerWait   = 10 * time.Second
	requestWait  = 30 * time.Second // for a whole request
	answerWait   = time.Minute      // for the caller to take the answer
	idleWait     = 2 * time.Minute  // between requests; longer than clients keep a connection
	maxNameBytes = 512              // of a tool in a request
)

// Refusals keep the record of refused tokens. Their method may be called at the same time.
type Refusals interface {
	// Refused records a request whose token is not that of a running exec of the thread.
	Refused(ctx context.Context, t sandbox.Thread, detail string) error
}

// Exec is what a token stands for.
type Exec struct {
	ExecID      string
	Thread      sandbox.Thread
	Caller      sandbox.Caller
	Skill       *sandbox.Skill // whose script it runs; nil: none
	AuditParent string         // record of the exec's own attempt
	// Hide are what was given to the exec as a secret: records of its calls must not tell them. The tools get them.
	Hide *redact.Secrets
	// SaveResult writes large results of its calls into the thread's files.
	SaveResult SaveResult
	// SaveFile writes files that tools return into the thread's files.
	SaveFile resultfile.Save
	// Trace is the span that calls are below.
	Trace tracing.Link
}

// SaveResult writes a result that is too large for an answer into the thread's files. name is fit for a file;
// what it returns is what code is told. Errors are those of writing: QuotaExceeded when the disk is full.
type SaveResult func(ctx context.Context, t sandbox.Thread, name string, result json.RawMessage) (sandbox.ResultFile, error)

// Options are what a Bridge works with. Calls and Refusals are needed; a nil Log discards.
type Options struct {
	Calls    *call.Maker
	Refusals Refusals
	Limits   Limits
	Tracer   *tracing.Tracer // nil: nothing is traced
	Log      *slog.Logger
}

// Bridge holds the tokens of all running execs. All methods may be called at the same time.
type Bridge struct {
	calls    *call.Maker
	refusals Refusals
	limits   Limits
	tracer   *tracing.Tracer
	log      *slog.Logger

	mu      sync.Mutex
	byToken map[[sha256.Size]byte]*exec
	byID    map[string]*exec
}

// New returns a bridge without execs and endpoints. It panics when a part is missing: that is a
// mistake of the program, found when it starts.
func New(o Options) *Bridge {
	if o.Calls == nil || o.Refusals == nil {
		panic("bridge: Calls and Refusals are required")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Bridge{calls: o.Calls, tracer: o.Tracer, refusals: o.Refusals, limits: o.Limits.filled(), log: o.Log, byToken: map[[sha256.Size]byte]*exec{}, byID: map[string]*exec{}}
}

// Register returns a new token for an exec: 64 hex digits, good on the endpoints of its thread until
// Finish. Registering an exec again ends its earlier token.
func (b *Bridge) Register(x Exec) (token string) {
	var secret [32]byte
	rand.Read(secret[:]) // never fails
	token = hex.EncodeToString(secret[:])
	e := newExec(x, sha256.Sum256([]byte(token)), b.limits)
	b.mu.Lock()
	old := b.byID[x.ExecID]
	if old != nil {
		delete(b.byToken, old.key)
	}
	b.byToken[e.key], b.byID[x.ExecID] = e, e
	b.mu.Unlock()
	if old != nil {
		old.cancel()
	}
	return token
}

// Finish ends an exec's token, cancels its calls, and waits up to a second for them. It returns all calls of
// the exec in the order in which they started. A call that has not ended by then is an "error". An unknown
// exec, or a finished one, has no calls.
func (b *Bridge) Finish(execID string) []sandbox.ToolCall {
	b.mu.Lock()
	e := b.byID[execID]
	if e != nil {
		delete(b.byToken, e.key)
		delete(b.byID, execID)
	}
	b.mu.Unlock()
	if e == nil {
		return nil
	}
	return e.end(finishWait)
}

// lookup returns the exec of a token. Otherwise why says what is wrong with it, for the record only: the
// sender learns no more than that it is not good.
func (b *Bridge) lookup(token string, t sandbox.Thread) (e *exec, why string) {
	if token == "" {
		return nil, "no token"
	}
	key := sha256.Sum256([]byte(token))
	b.mu.Lock()
	e = b.byToken[key]
	b.mu.Unlock()
	switch {
	case e == nil:
		return nil, "a token that is unknown or whose exec has ended"
	case e.Thread != t:
		return nil, "a token of another thread"
	}
	return e, ""
}
