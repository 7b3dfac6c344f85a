package run

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/execution"
	"github.com/skerry-sandbox/skerry/internal/execution/contexts"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/load"
	"github.com/skerry-sandbox/skerry/internal/limits"
	"github.com/skerry-sandbox/skerry/internal/observe/metrics"
	"github.com/skerry-sandbox/skerry/internal/observe/tracing"
	"github.com/skerry-sandbox/skerry/internal/policy"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
	"github.com/skerry-sandbox/skerry/internal/skills/mounted"
	"github.com/skerry-sandbox/skerry/internal/tools/bridge"
	"github.com/skerry-sandbox/skerry/internal/tools/wrappers"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// Starts bring sandboxes up.
type Starts interface {
	// Enter returns the thread's running sandbox, which it starts if there is none, with the variables of every exec. An
	// exec is counted in until Lifecycle.Left.
	Enter(ctx context.Context, c sandbox.Caller, t sandbox.Thread) (*instance.Instance, map[string]string, error)
	// EnterTemplate is Enter for a script that runs in a sandbox of a template: the thread's own, or a second one beside it.
	EnterTemplate(ctx context.Context, c sandbox.Caller, t sandbox.Thread, template string) (*instance.Instance, map[string]string, error)
}

// Lifecycle is told of the uses of sandboxes.
type Lifecycle interface {
	// Left counts an exec out.
	Left(inst *instance.Instance)
	// Touch notes that the thread was used just now.
	Touch(inst *instance.Instance)
}

// Teardown ends sandboxes.
type Teardown interface {
	// Abandon ends a sandbox that does not keep the contract.
	Abandon(inst *instance.Instance, why string)
	// Died ends a sandbox that ended by itself.
	Died(inst *instance.Instance, oom bool)
}

// Files are those of threads.
type Files interface {
	// With opens the thread's files on this disk; with a uid they may be changed.
	With(t sandbox.Thread, uid *int, use func(*paths.FS) error) error
	// Change opens them for a change, which is copied to the sandbox.
	Change(ctx context.Context, t sandbox.Thread, uid int, change func(*paths.FS) error) error
	// SaveResult writes the result of a tool into the thread's files. name is fit for a file name.
	SaveResult(ctx context.Context, t sandbox.Thread, name string, result json.RawMessage) (sandbox.ResultFile, error)
	// SaveToolFile writes a file that a tool returned.
	SaveToolFile(ctx context.Context, t sandbox.Thread, path string, content []byte) error
}

// Copies are those of the files, where sandboxes have disks of their own.
type Copies interface {
	// Begin copies what is due to the sandbox before an exec begins. report says that it will be asked what it changed.
	Begin(ctx context.Context, inst *instance.Instance, report bool) error
	// End copies what an exec changed to this disk.
	End(inst *instance.Instance, report bool, exit *sandboxv1.Exit) error
}

// Threads keep the files of threads elsewhere.
type Threads interface {
	// Save saves them as they are. Conflict: another server went on with them.
	Save(ctx context.Context, t sandbox.Thread, uid int) error
	// AbandonSuperseded ends the sandbox of a thread that another server went on with.
	AbandonSuperseded(t sandbox.Thread)
}

// Hub decides on runs.
type Hub interface {
	// PlanRun decides on what is to run in a sandbox; Permit says whether it may, once it is recorded.
	PlanRun(ctx context.Context, r policy.Request, hide func([]byte) []byte) policy.Plan
	Permit(ctx context.Context, p policy.Plan, attempt string) error
}

// Options are the parts that a Runner works with. A field is needed unless its comment says what nil means.
type Options struct {
	Parts
	Driver driver.Driver
	// OOMEndsSandbox are the runtimes under which the kernel's counter of memory is not seen inside.
	OOMEndsSandbox []string
	Hub            Hub
	Audit          *audit.Log
	Bridge         *bridge.Bridge
	// Secrets returns values by name; nil: there are none.
	Secrets SecretValues
	Limits  *limits.Gate // nil: there are none
	Metrics *metrics.Metrics
	Tracer  *tracing.Tracer // nil: nothing is traced
	// ApprovalWait is how long, altogether, an exec's deadline is held while calls of it wait for people.
	ApprovalWait time.Duration
	// CodeSettings are the settings of a tenant.
	CodeSettings func(tenant string) sandbox.CodeSettings
	Log          *slog.Logger
	// Group counts what runs in the background, which ends with the context.
	Group *sync.WaitGroup
}

// Parts are those of the server's own parts that a Runner works with.
type Parts struct {
	Live      *instance.Map
	Starts    Starts
	Lifecycle Lifecycle
	Teardown  Teardown
	Files     Files
	Copies    Copies
	Threads   Threads
	Registry  *execution.Registry
	Contexts  *contexts.Registry
	Skills    *mounted.Skills
	Wrappers  *wrappers.Wrappers
	Loads     *load.Watcher
}

// Runner starts execs and sees them to their ends.
type Runner struct {
	o   Options
	ctx context.Context // ends with the server
}

// New returns a runner of a server on which nothing runs yet.
func New(ctx context.Context, o Options) *Runner { return &Runner{o: o, ctx: ctx} }

const (
	// UnansweredGrace is how long past its deadline an exec may stay silent before its sandbox is ended (design §5).
	UnansweredGrace = 2 * time.Second
	// inspectTimeout bounds the question how a sandbox died, which stands between an exec and its end.
	inspectTimeout = 2 * time.Second
	// oomSettles is how long the end of an exec out of memory waits for that of its sandbox: outliveOOM.
	oomSettles = time.Second
	// recordTimeout bounds records that must outlive the request they belong to.
	recordTimeout = 10 * time.Second
)
