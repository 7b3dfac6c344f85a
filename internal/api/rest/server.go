package rest

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"path"
	"reflect"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"
	"github.com/gin-gonic/gin"

	"github.com/skerry-sandbox/skerry/internal/api/auth"
	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/observe/tracing"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/secrets"
	"github.com/skerry-sandbox/skerry/internal/service"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// maxJSONBytes bounds the body of a request, but for raw uploads.
const maxJSONBytes = 32 << 20

// Check is the state of one thing that the server depends on.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"` // for administrators of the machine: no secrets
}

// Options are the use cases that the server translates to, and who may call it.
type Options struct {
	service.Service
	MCPServers mcpServers
	MCPLogins  mcpLogins
	Audit      auditLog
	AuditProof auditProof // nil: the log is not verified here
	// Policy are the rules; nil: there are none.
	Policy rules
	// Drift is what has changed of tools; nil: tools are not compared.
	Drift toolDrift
	// Secrets are named values; nil: there are none.
	Secrets secretStore
	// Runnable says whether a skill can run here; nil: unknown.
	Runnable func(ctx context.Context, c sandbox.Caller, sk sandbox.Skill) sandbox.Runnable
	// Placement says which server answers a request about a thread; nil: there is only this one.
	Placement placement
	// RemoteFiles: sandboxes have copies of their threads' files, which only the server that holds the thread reaches.
	RemoteFiles bool
	// Adapters are APIs of other products, answered by the use cases above.
	Adapters []Adapter
	// Limits bound the requests of callers; nil: there are none, and no usage.
	Limits limiter
	// Tracer makes the spans of requests; nil: none are made.
	Tracer *tracing.Tracer
	// Observe is told of each request that was answered: its route, method, status and time. May be nil.
	Observe func(route, method string, status int, took time.Duration)
	// Keys checks credentials. Without it no key is valid.
	Keys keys
	// Idempotency remembers answers; nil: the header Idempotency-Key is ignored.
	Idempotency idempotency

	// Anonymous is who a request without a key is, an administrator and operator. nil: a key is
	// required.
	Anonymous *sandbox.Owner
	// OperatorTenant is the tenant whose administrators also administer what all tenants share. "": no tenant's do,
	// but for Anonymous.
	OperatorTenant string
	// AuthRefused is told of each credential that was refused, or did not do for its route: Caller has what is
	// known of it, at least the request's id, source and user agent. May be nil.
	// unseen: too many came before it, so that it was not even looked at.
	AuthRefused func(ctx context.Context, c sandbox.Caller, reason string, unseen bool)

	// AllowedHosts are values of the Host header to answer to, besides loopback names with any port:
	// "name" (any port), "name:port", or "*".
	AllowedHosts []string
	// AllowedOrigins are pages ("https://name[:port]") that may call, besides those of the server
	// itself. Without any, pages from loopback names may.
	AllowedOrigins []string

	// Ready says what the server depends on; nil: it is always ready.
	Ready func(ctx context.Context) []Check
	// Metrics answers GET /metrics; nil: 404.
	Metrics http.Handler
	Version string
	Log     *slog.Logger
}

type server struct {
	o         Options
	guard     *guard
	api       huma.API // routes that need a caller
	open      huma.API // routes that do not
	heartbeat time.Duration
	idle      time.Duration
	follows   chan struct{}   // places of those who follow or export the audit log
	archives  chan struct{}   // places of those who send or get an archive
	recheck   time.Duration   // of the credential of an MCP request that goes on
	rules     map[string]rule // by method and path of gin; complete before the first request
	routes    gin.RoutesInfo  // all there are
}

// New makes the handler of the whole API. cmd serves it with a ReadHeaderTimeout and an IdleTimeout,
// and without ReadTimeout and WriteTimeout: the handler sets rolling deadlines itself.
func New(o Options) (http.Handler, error) {
	s, err := newServer(o)
	if err != nil {
		return nil, err
	}
	return s.handler()
}

func newServer(o Options) (*server, error) {
	if o.Threads == nil || o.Sandboxes == nil || o.Runs == nil || o.Execs == nil || o.Terminals == nil || o.Files == nil || o.Tools == nil || o.Upstream == nil || o.Prompts == nil || o.Skills == nil || o.ThreadSkills == nil || o.MCPServers == nil || o.MCPLogins == nil || o.Audit == nil || o.Log == nil {
		return nil, errors.New("rest: a use case is missing")
	}
	if o.Keys == nil && o.Anonymous == nil {
		return nil, errors.New("rest: no client could call: neither Keys nor Anonymous")
	}
	g, err := newGuard(o.AllowedHosts, o.AllowedOrigins)
	if err != nil {
		return nil, err
	}
	return &server{o: o, guard: g, heartbeat: heartbeat, idle: idleTimeout, recheck: recheckEvery}, nil
}

// libraries sets what gin and huma keep in package variables.
var libraries = sync.OnceFunc(func() {
	gin.SetMode(gin.ReleaseMode)
	huma.NewError = newHumaError
	huma.DefaultArrayNullable = false
})

func (s *server) handler() (http.Handler, error) {
	libraries()
	engine := gin.New()
	engine.HandleMethodNotAllowed = true
	engine.RedirectTrailingSlash = false
	engine.UseRawPath = true // "/api/threads/a%2Fb" is a bad thread id, not another route
	engine.NoRoute(func(c *gin.Context) {
		writeProblem(c.Writer, newProblem(sandbox.NotFound, "no such route; /docs lists them all"))
	})
	engine.NoMethod(func(c *gin.Context) {
		writeProblem(c.Writer, newProblem(sandbox.Invalid, "this route does not take that method").withStatus(http.StatusMethodNotAllowed))
	})
	cfg := apiConfig(s.o.Version)
	s.open = humagin.New(engine, cfg)
	s.api = humagin.NewWithGroup(engine, engine.Group("", s.authenticate, s.authorize, s.place, s.limit, contentType, s.idempotent), cfg)
	threadRoutes{s}.add()
	execRoutes{s}.add()
	contextRoutes{s}.add()
	fileRoutes{s}.add()
	transferRoutes{s}.add()
	archiveRoutes{s}.add()
	watchRoutes{s}.add()
	toolRoutes{s}.add()
	skillInstallRoutes{s}.add()
	skillRoutes{s}.add()
	skillToolRoutes{s}.add()
	pluginRoutes{s}.add()
	adminRoutes{s}.add()
	auditProofRoutes{s}.add()
	policyRoutes{s}.add()
	secretRoutes{s}.add()
	approvalRoutes{s}.add()
	usageRoutes{s}.add()
	auditRoutes{s}.add()
	healthRoutes{s}.add()
	terminalRoutes{s}.add(engine)
	doc, err := json.Marshal(s.api.OpenAPI())
	if err != nil {
		return nil, err
	}
	docsRoutes{s}.add(engine, doc)
	mcpRoutes{s}.add(engine)
	adapterRoutes{s}.add(engine)
	s.routes = engine.Routes()
	if err := s.checkRules(); err != nil {
		return nil, err
	}
	return s.exchanges(engine), nil
}

func apiConfig(version string) huma.Config {
	if version == "" {
		version = "dev"
	}
	format := huma.DefaultJSONFormat
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "Skerry", Version: version,
				Description: "Sealed sandboxes for agent threads. Times are RFC 3339 in UTC, sizes are bytes, _s is seconds, _ms milliseconds. " +
					"Errors are problem documents (RFC 9457) whose code is stable. Every answer has X-Request-Id. " +
					"Idempotency-Key on a POST makes a retry answer with the first result for 24 hours. A retry that also says in Idempotency-Age how many " +
					"seconds ago the request was first sent is never done twice: when the server cannot know, it answers 409. Such a conflict has in errors " +
					"the field Idempotency-Key with running (ask again after Retry-After), done (its answer is not kept) or unknown (it may have been done).",
				License: &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"},
			},
			Components: &huma.Components{
				Schemas: huma.NewMapRegistry("#/components/schemas/", schemaName),
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"bearer": {Type: "http", Scheme: "bearer"},
					"apiKey": {Type: "apiKey", In: "header", Name: "X-API-Key"},
				},
			},
			Tags: []*huma.Tag{
				{Name: tagThreads, Description: "A thread owns a workspace and has at most one live sandbox."},
				{Name: tagRun, Description: "Commands, code and skill scripts. Each run is an exec with one end."},
				{Name: tagFiles, Description: "A thread's files, by virtual path. None of these starts a sandbox."},
				{Name: tagTools, Description: "Tools of MCP servers."},
				{Name: tagSkills, Description: "Skills, plugins and commands: what agents know."},
				{Name: tagAdmin, Description: "Audit, keys and MCP servers."},
				{Name: tagServer, Description: "Health and metrics; no key needed."},
			},
		},
		Formats:       map[string]huma.Format{"application/json": format, "json": format},
		DefaultFormat: "application/json",
	}
}

// Tags group the routes in the document.
const (
	tagThreads = "Threads and sandboxes"
	tagRun     = "Running things"
	tagFiles   = "Files"
	tagTools   = "Tools"
	tagSkills  = "Skills, plugins, commands"
	tagAdmin   = "Audit and administration"
	tagServer  = "Server"
)

// schemaNames are the names in the document of types whose own name says too little outside of
// their package.
var schemaNames = map[reflect.Type]string{
	reflect.TypeFor[sandbox.Info]():       "Sandbox",
	reflect.TypeFor[sandbox.Result]():     "ExecResult",
	reflect.TypeFor[sandbox.Usage]():      "ExecUsage",
	reflect.TypeFor[sandbox.ThreadView](): "Thread",
	reflect.TypeFor[skillView]():          "Skill",
	reflect.TypeFor[paths.Text]():         "FileText",
	reflect.TypeFor[paths.Entry]():        "FileEntry",
	reflect.TypeFor[paths.Change]():       "WatchedChange",
	reflect.TypeFor[paths.Listing]():      "FileListing",
	reflect.TypeFor[paths.Match]():        "GrepMatch",
	reflect.TypeFor[paths.Matches]():      "GrepMatches",
	reflect.TypeFor[audit.Record]():       "AuditRecord",
	reflect.TypeFor[audit.VerifyResult](): "AuditVerification",
	reflect.TypeFor[audit.BadRecord]():    "AuditBadRecord",
	reflect.TypeFor[audit.Head]():         "AuditHead",
	reflect.TypeFor[audit.Writer]():       "AuditWriter",
	reflect.TypeFor[auth.Key]():           "Key",
	reflect.TypeFor[secrets.Info]():       "Secret",
	reflect.TypeFor[secrets.Rotation]():   "SecretRotation",
	reflect.TypeFor[limitShown]():         "Limit",
}

func schemaName(t reflect.Type, hint string) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if name := schemaNames[t]; name != "" {
		return name
	}
	return huma.DefaultSchemaNamer(t, hint)
}

// register adds a route. The handler's error becomes a problem document.
func register[I, O any](s *server, api huma.API, op huma.Operation, handle func(context.Context, *I) (*O, error)) {
	r := ruleOf(op)
	if (api == s.open) != (len(r.roles) == 0) {
		panic("rest: " + op.OperationID + ": a route for anyone is one without a credential, and no other")
	}
	s.rule(op.Method, op.Path, r)
	op.MaxBodyBytes = maxJSONBytes + 1 // huma refuses a body that reaches the limit
	op.BodyReadTimeout = -1            // exchange has a rolling one; huma's is five seconds for the whole body
	huma.Register(api, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := handle(ctx, in)
		if err != nil {
			return nil, s.problem(ctx, err)
		}
		return out, nil
	})
}

// also says that a route may answer with another status and the same body.
func also[T any](s *server, op huma.Operation, status, description string) huma.Operation {
	schemas := s.api.OpenAPI().Components.Schemas
	op.Responses = map[string]*huma.Response{
		status: {Description: description, Content: map[string]*huma.MediaType{
			"application/json": {Schema: schemas.Schema(reflect.TypeFor[T](), true, "")},
		}},
		"default": s.problemResponse(),
	}
	return op
}

// problemResponse describes an error.
func (s *server) problemResponse() *huma.Response {
	schema := s.api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[Problem](), true, "Problem")
	return &huma.Response{Description: "Error", Content: map[string]*huma.MediaType{problemType: {Schema: schema}}}
}

// on describes a route of the API: its method and path, its stable id, group, rule, and a summary.
func on(method, route, id, tag string, r rule, summary string) huma.Operation {
	return r.ruled(huma.Operation{Method: method, Path: path.Join("/", route), OperationID: id, Tags: []string{tag}, Summary: summary})
}

// ThreadIn is the part of an input that names a thread. It and its likes are exported because huma
// sees only exported fields.
type ThreadIn struct {
	Thread string `path:"thread" pattern:"^[A-Za-z0-9_-]{1,128}$" doc:"The caller's name of the conversation"`
}

// ThreadListIn names a list of a thread.
type ThreadListIn struct {
	ThreadIn
	ListIn
}

// body is an output that is only a JSON body.
type body[T any] struct{ Body T }

func bodyOf[T any](v T) *body[T] { return &body[T]{Body: v} }

// statusBody is an output whose status differs from case to case.
type statusBody[T any] struct {
	Status int
	Body   T
}

// page is a list.
type page[T any] struct {
	Items      []T    `json:"items"`
	NextCursor string `json:"next_cursor,omitempty" doc:"Send it as cursor to get the rest; not there at the end"`
}

func pageOf[T any](items []T, next string) *body[page[T]] {
	if items == nil {
		items = []T{}
	}
	return bodyOf(page[T]{Items: items, NextCursor: next})
}

// written is an output that writes itself: a stream, or bytes.
type written struct{ Body func(huma.Context) }

func (s *server) writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header()["Content-Type"] = jsonType
	w.WriteHeader(status)
	_ = huma.DefaultJSONFormat.Marshal(w, v) // the client is gone when this fails
}

var jsonType = []string{"application/json"}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
