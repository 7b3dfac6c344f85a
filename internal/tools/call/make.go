package call

import (
	"context"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/skerry-sandbox/skerry/internal/platform/redact"
	"github.com/skerry-sandbox/skerry/internal/policy"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/resultfile"
)

// Guard finds and calls tools, as the policy allows it. Its methods may be called at the same time.
type Guard interface {
	// Plan decides on a call of a tool that the caller may use, or is NotFound. Wrong arguments are Invalid;
	// the Plan then has only the tool.
	Plan(ctx context.Context, c policy.Call) (policy.Plan, error)
	// Make makes the call. attempt is its record. A tool's own failure is a result with IsError or
	// ToolFailed; a call that may not be made is Forbidden or QuotaExceeded.
	Make(ctx context.Context, p policy.Plan, attempt string, watch sandbox.ToolWatch) (sandbox.ToolResult, error)
}

// Records keep what calls did. Their methods may be called at the same time.
type Records interface {
	// Attempt records that a call is about to be made and returns the record's id. Without it there is no call.
	Attempt(ctx context.Context, a Attempt) (id string, err error)
	// Result records how the attempt ended.
	Result(ctx context.Context, id string, o Outcome) error
}

// Origin is where a call comes from: an agent, or the code of an exec.
type Origin struct {
	Caller sandbox.Caller
	Thread sandbox.Thread
	// ExecID is the exec whose code calls; "" of an agent's own call.
	ExecID string
	// Skill is the skill whose script the exec runs; nil: none.
	Skill *sandbox.Skill
	// AuditParent is the record of the exec's own attempt.
	AuditParent string
	// Hide are what was given to the exec as a secret: records of its calls must not tell them. The tools get them.
	Hide *redact.Secrets
	// SaveFile writes files that tools return into the thread; nil: they stay in the result.
	SaveFile resultfile.Save
}

// Attempt is a call that is about to be made. Tool is the printed name, or of an unknown tool the name that was asked
// for. Plan is what was decided on it: it says what of Input may be recorded, and why the call may be made or not.
type Attempt struct {
	From  Origin
	Tool  string
	Input []byte
	Plan  policy.Plan
}

// Outcome is how a call ended. Status is "ok", "error", "denied" or "timeout"; Detail says why it is
// not "ok". Output is the result as the caller received it.
type Outcome struct {
	Attempt  Attempt
	Status   string
	Detail   string
	Millis   int64
	BytesOut int64
	Output   []byte
	File     *sandbox.ResultFile  // that holds the result when it was too large; else nil
	Files    []sandbox.ResultFile // that the tool returned
}

// MakerOptions are what a Maker works with. A nil Admit lets every call in, a nil Log discards.
type MakerOptions struct {
	Guard   Guard
	Records Records
	// Admit lets a call in that was recorded, or says why not.
	Admit func(ctx context.Context, c sandbox.Caller) error
	Log   *slog.Logger
}

// Maker is the one way of a tool call. The bridge, the API, /mcp and prompts call tools by it: it resolves the tool
// once, records the attempt, also of an unknown tool, and makes the call. All methods may be called at the same time.
type Maker struct{ o MakerOptions }

// NewMaker returns a maker of calls.
func NewMaker(o MakerOptions) *Maker {
	if o.Admit == nil {
		o.Admit = func(context.Context, sandbox.Caller) error { return nil }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Maker{o}
}

// Call is a call whose attempt is recorded. Make makes it, and End records how it ended.
type Call struct {
	ID    string // of the attempt's record
	maker *Maker
	what  Attempt
	wrong error // why the call cannot be planned
	began time.Time
	files []sandbox.ResultFile // of the result, that are written
}

// Begin plans a call and records its attempt. An error means that it is not recorded, and so not to be made; what else
// is wrong with the call, Make says.
func (m *Maker) Begin(ctx context.Context, from Origin, ref sandbox.ToolRef, input []byte) (*Call, error) {
	plan, wrong := Contained(m.o.Log, func() (policy.Plan, error) {
		return m.o.Guard.Plan(ctx, policy.Call{Caller: from.Caller, Thread: from.Thread, Exec: from.ExecID, Skill: from.Skill, Ref: ref, Input: input, Hide: from.Hide.Bytes})
	})
	c := &Call{maker: m, wrong: wrong, what: Attempt{From: from, Tool: plan.Tool.Printed, Input: input, Plan: plan}}
	if c.what.Tool == "" {
		c.what.Tool = NameOf(ref)
	}
	var err error
	c.ID, err = Contained(m.o.Log, func() (string, error) { return m.o.Records.Attempt(ctx, c.what) })
	c.began = time.Now()
	return c, err
}

// Tool returns the printed name of the tool, or of an unknown one the name that was asked for.
func (c *Call) Tool() string { return c.what.Tool }

// Make makes the call, if it may be made.
func (c *Call) Make(ctx context.Context, watch sandbox.ToolWatch) (sandbox.ToolResult, error) {
	if c.wrong != nil {
		return sandbox.ToolResult{}, c.wrong
	}
	if err := c.maker.o.Admit(ctx, c.what.From.Caller); err != nil {
		return sandbox.ToolResult{}, sandbox.NotStarted(err)
	}
	return Contained(c.maker.o.Log, func() (sandbox.ToolResult, error) {
		res, err := c.maker.o.Guard.Make(ctx, c.what.Plan, c.ID, watch)
		if err != nil {
			return res, err
		}
		moved, files, err := resultfile.Move(ctx, c.what.From.Thread, res, c.what.From.SaveFile)
		c.files = files
		return moved, err
	})
}

// Files are those that the tool returned, and that are in the thread now.
func (c *Call) Files() []sandbox.ResultFile { return c.files }

// End records how the call ended. It fills in the attempt, the time and the files that the tool returned.
func (c *Call) End(ctx context.Context, o Outcome) error {
	o.Files = c.files
	o.Attempt, o.Millis = c.what, time.Since(c.began).Milliseconds()
	_, err := Contained(c.maker.o.Log, func() (struct{}, error) { return struct{}{}, c.maker.o.Records.Result(ctx, c.ID, o) })
	return err
}

// Contained turns a panic of a part behind a call into an error of this one call.
func Contained[T any](log *slog.Logger, do func() (T, error)) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			log.Error("a panic in a tool call", "panic", p, "stack", string(debug.Stack()))
			err = sandbox.Errorf(sandbox.Internal, "internal error")
		}
	}()
	return do()
}

// NameOf is how a reference is written before it is known what it names.
func NameOf(ref sandbox.ToolRef) string {
	if ref.Server == "" {
		return ref.Printed
	}
	return ref.Server + "." + ref.Name
}
