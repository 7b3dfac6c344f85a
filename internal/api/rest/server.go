package rest

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"reflect"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"
	"github.com/gin-gonic/gin"

	"github.com/skerry-sandbox/skerry/internal/api/auth"
	"github.com/skerry-sandbox/skerry/internal/api/held"
	"github.com/skerry-sandbox/skerry/internal/api/mcp"
	"github.com/skerry-sandbox/skerry/internal/api/rest/access"
	"github.com/skerry-sandbox/skerry/internal/api/rest/audits"
	"github.com/skerry-sandbox/skerry/internal/api/rest/eventstream"
	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/execs"
	"github.com/skerry-sandbox/skerry/internal/api/rest/files"
	"github.com/skerry-sandbox/skerry/internal/api/rest/forward"
	"github.com/skerry-sandbox/skerry/internal/api/rest/idempotency"
	"github.com/skerry-sandbox/skerry/internal/api/rest/logins"
	"github.com/skerry-sandbox/skerry/internal/api/rest/overview"
	"github.com/skerry-sandbox/skerry/internal/api/rest/problem"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/audit/summary"
	"github.com/skerry-sandbox/skerry/internal/observe/tracing"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/secrets"
	"github.com/skerry-sandbox/skerry/internal/service"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// Check is the state of one thing that the server depends on.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"` // for administrators of the machine: no secrets
}

// Options are the use cases that the server translates to, and who may call it.
type Options struct {
	service.Service
	Administration
	Clients
	// Runnable says whether a skill can run here; nil: unknown.
	Runnable func(ctx context.Context, c sandbox.Caller, sk sandbox.Skill, template string) (sandbox.Runnable, error)
	// SBOM lists what the image of a template is made of, as CycloneDX JSON; nil: it is not known.
	SBOM func(ctx context.Context, template string) ([]byte, error)
	// Placement says which server answers a request about a thread; nil: there is only this one.
	Placement forward.Placement
	// RemoteFiles: sandboxes have copies of their threads' files, which only the server that holds the
	// thread reaches.
	RemoteFiles bool
	// Adapters are APIs of other products, answered by the use cases above.
	Adapters []Adapter
	// Limits bound the requests of callers; nil: there are none, and no usage.
	Limits limiter
	// Tracer makes the spans of requests; nil: none are made.
	Tracer *tracing.Tracer
	// Observe is told of each request that was answered: its route, method, status and time. May be nil.
	Observe func(route, method string, status int, took time.Duration)
	// Held bounds the bodies that are in memory, with those of the adapters; nil: they have a bound of their own.
	Held *held.Bytes
	// Idempotency remembers answers; nil: the header Idempotency-Key is ignored.
	Idempotency idempotency.Memory

	// Ready says what the server depends on; nil: it is always ready.
	Ready func(ctx context.Context) []Check
	// Console answers below /ui; nil: 404.
	Console http.Handler
	// Metrics answers GET /metrics; nil: 404.
	Metrics http.Handler
	Version string
	Log     *slog.Logger
}

// Clients says who may call.
type Clients struct {
	// Keys checks credentials. Without it no key is valid.
	Keys keys
	// Anonymous is who a request without a key is, an administrator and operator. nil: a key is
	// required.
	Anonymous *sandbox.Owner
	// OperatorTenant is the tenant whose administrators also administer what all tenants share. "": no
	// tenant's do, but for Anonymous.
	OperatorTenant string
	// AuthRefused is told of each credential that was refused, or did not do for its route. May be nil.
	AuthRefused access.Refused
	// Logins are the identity providers at which people log in to the console; nil: there are none.
	Logins logins.Issuers

	// AllowedHosts are values of the Host header to answer to, besides loopback names with any port:
	// "name" (any port), "name:port", or "*".
	AllowedHosts []string
	// AllowedOrigins are pages ("https://name[:port]") that may call, besides those of the server
	// itself. Without any, pages from loopback names may.
	AllowedOrigins []string
}

type server struct {
	o         Options
	guard     *exchange.Guard
	table     *route.Table
	heartbeat time.Duration
	idle      time.Duration
	recheck   time.Duration // of the credential of a request that goes on
	follows   *audits.Followers
	followers *followers
	archives  files.Places
	routes    gin.RoutesInfo // all there are
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
	if o.Threads == nil || o.Sandboxes == nil || o.Runs == nil || o.Execs == nil || o.Terminals == nil || o.Files == nil || o.Events == nil || o.Tools == nil || o.Upstream == nil || o.Prompts == nil || o.Skills == nil || o.ThreadSkills == nil || o.MCPServers == nil || o.MCPLogins == nil || o.Audit == nil || o.Log == nil {
		return nil, errors.New("rest: a use case is missing")
	}
	if o.Keys == nil && o.Anonymous == nil {
		return nil, errors.New("rest: no client could call: neither Keys nor Anonymous")
	}
	g, err := exchange.NewGuard(o.AllowedHosts, o.AllowedOrigins)
	if err != nil {
		return nil, err
	}
	if o.Held == nil {
		o.Held = held.New()
	}
	table := route.NewTable()
	return &server{
		o: o, guard: g, table: table, followers: &followers{table: table}, archives: files.NewPlaces(), follows: &audits.Followers{},
		heartbeat: eventstream.Heartbeat, idle: exchange.IdleTimeout, recheck: access.RecheckEvery,
	}, nil
}

// libraries sets what gin and huma keep in package variables.
var libraries = sync.OnceFunc(func() {
	gin.SetMode(gin.ReleaseMode)
	huma.NewError = problem.FromHuma
	huma.DefaultArrayNullable = false
})

// unescape decodes the parameters of a path, which gin would decode as those of a query: a + as a space. Without a raw
// path they are decoded.
func unescape(c *gin.Context) {
	if c.Request.URL.RawPath == "" {
		return
	}
	for i, p := range c.Params {
		if value, err := url.PathUnescape(p.Value); err == nil { // as of any path that was parsed
			c.Params[i].Value = value
		}
	}
}

func (s *server) handler() (http.Handler, error) {
	libraries()
	engine := gin.New()
	engine.HandleMethodNotAllowed = true
	engine.RedirectTrailingSlash = false
	engine.UseRawPath = true // "/api/threads/a%2Fb" is a bad thread id, not another route
	engine.UnescapePathValues = false
	engine.Use(unescape)
	engine.NoRoute(func(c *gin.Context) {
		problem.Write(c.Writer, problem.New(sandbox.NotFound, "no such route; /docs lists them all"))
	})
	engine.NoMethod(func(c *gin.Context) {
		problem.Write(c.Writer, problem.New(sandbox.Invalid, "this route does not take that method").WithStatus(http.StatusMethodNotAllowed))
	})
	cfg := apiConfig(s.o.Version)
	checks := s.checks()
	open := humagin.NewWithGroup(engine, engine.Group("", checks.table.CheckQuery), cfg)
	api := route.NewAPI(s.table, humagin.NewWithGroup(engine, engine.Group("", checks.all()...), cfg), open)
	o := s.o
	threadRoutes{o.Threads, o.Sandboxes}.add(api)
	templateRoutes{o.Sandboxes, o.SBOM}.add(api)
	run := execs.Routes{Runs: o.Runs, Execs: o.Execs, Terminals: o.Terminals, Processes: o.Processes, Contexts: o.Contexts, Access: checks.access, Heartbeat: s.heartbeat, Idle: s.idle}
	run.Add(api)
	files.Routes{Files: o.Files, Access: checks.access, Archives: s.archives, Stopping: checks.forward.Stopping, Heartbeat: s.heartbeat, Log: o.Log}.Add(api)
	eventRoutes{api, o.Events, checks.access, checks.forward.Stopping, s.heartbeat}.add()
	toolRoutes{o.Tools, o.Prompts, o.MCPServers}.add(api)
	activeToolRoutes{o.ActiveTools}.add(api)
	loginRoutes{o.MCPLogins}.add(api)
	skillInstallRoutes{o.SkillInstalls, o.Files}.add(api)
	skillRoutes{o.Skills, o.Runnable}.add(api)
	skillToolRoutes{o.ThreadSkills, o.SkillChannels, o.Tools}.add(api)
	pluginRoutes{o.Plugins, o.Marketplaces, o.Messages, o.Files}.add(api)
	s.administration(api, checks.access)
	packRoutes{o.Packs, s.table, checks.access}.add(api, engine)
	healthRoutes{o.Ready, o.Metrics, o.Version}.add(api)
	whoamiRoutes{}.add(api)
	logins.New(o.Logins, o.AuthRefused).Add(api)
	run.AddTerminal(api, engine.Group("", checks.limited()...))
	s.table.LearnQueries(api.OpenAPI())
	doc, err := json.Marshal(api.OpenAPI())
	if err != nil {
		return nil, err
	}
	docsRoutes{s.table}.add(engine, doc)
	consoleRoutes{s.table, o.Console}.add(engine)
	endpoint := mcp.Options{Service: o.Service, Host: mcpErrors{o.Log}, Tracer: o.Tracer, MaxBody: route.MaxJSONBytes, CheckBody: route.CheckJSON, Follow: s.followers.enter, Version: o.Version, Log: o.Log}
	mcpRoutes{s.table, checks.access, endpoint}.add(engine.Group("", checks.read()...))
	adapterRoutes{s.table, checks, o.Adapters}.add(engine)
	s.routes = engine.Routes()
	if err := s.table.Check(s.routes); err != nil {
		return nil, err
	}
	return s.exchanges(engine), nil
}

// administration adds the routes of what administrators do.
func (s *server) administration(api *route.API, a *access.Authenticator) {
	o := s.o
	driftRoutes{o.Drift}.add(api)
	adminRoutes{o.Keys}.add(api)
	policyRoutes{o.Policy}.add(api)
	secretRoutes{o.Secrets}.add(api)
	approvalRoutes{o.Approvals}.add(api)
	usageRoutes{o.Limits}.add(api)
	overview.Routes{Server: o.Overview, Fleet: o.Fleet}.Add(api)
	audits.Routes{Audit: o.Audit, Proof: o.AuditProof, Access: a, Follows: s.follows, Heartbeat: s.heartbeat, Log: o.Log}.Add(api)
}

// exchanges makes an exchange of each request before the router sees it.
func (s *server) exchanges(router http.Handler) http.Handler {
	return exchange.Server{Guard: s.guard, Idle: s.idle, Observe: s.o.Observe, Log: s.o.Log}.Handler(router)
}

func apiConfig(version string) huma.Config {
	if version == "" {
		version = "dev"
	}
	format := route.JSONFormat()
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "Skerry", Version: version,
				Description: "Sealed sandboxes for agent threads. Times are RFC 3339 in UTC, sizes are bytes, _s is seconds, _ms milliseconds. " +
					"Errors are problem documents (RFC 9457) whose code is stable. Every answer has X-Request-Id. " +
					"A query parameter that a route does not have is refused. Idempotency-Key on a POST makes a retry answer with the first result for 24 hours. A retry that also says in Idempotency-Age how many " +
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
				{Name: route.TagThreads, Description: "A thread owns a workspace and has at most one live sandbox."},
				{Name: route.TagRun, Description: "Commands, code and skill scripts. Each run is an exec with one end."},
				{Name: route.TagFiles, Description: "A thread's files, by virtual path. None of these starts a sandbox. A thread that is not there yet shows its skills and empty folders."},
				{Name: route.TagTools, Description: "Tools of MCP servers."},
				{Name: route.TagSkills, Description: "Skills, plugins and commands: what agents know."},
				{Name: route.TagAdmin, Description: "Audit, keys and MCP servers."},
				{Name: route.TagServer, Description: "Health and metrics; no key needed."},
			},
		},
		Formats:       map[string]huma.Format{"application/json": format, "json": format},
		DefaultFormat: "application/json",
	}
}

// schemaNames are the names in the document of types whose own name says too little outside of
// their package.
var schemaNames = map[reflect.Type]string{
	reflect.TypeFor[sandbox.Info]():             "Sandbox",
	reflect.TypeFor[sandbox.Result]():           "ExecResult",
	reflect.TypeFor[sandbox.Usage]():            "ExecUsage",
	reflect.TypeFor[sandbox.ThreadView]():       "Thread",
	reflect.TypeFor[templateView]():             "Template",
	reflect.TypeFor[route.Page[templateView]](): "PageTemplate",
	reflect.TypeFor[skillView]():                "Skill",
	reflect.TypeFor[paths.Text]():               "FileText",
	reflect.TypeFor[paths.Entry]():              "FileEntry",
	reflect.TypeFor[paths.Change]():             "WatchedChange",
	reflect.TypeFor[paths.Listing]():            "FileListing",
	reflect.TypeFor[paths.Match]():              "GrepMatch",
	reflect.TypeFor[paths.Matches]():            "GrepMatches",
	reflect.TypeFor[audit.Record]():             "AuditRecord",
	reflect.TypeFor[audit.VerifyResult]():       "AuditVerification",
	reflect.TypeFor[audit.BadRecord]():          "AuditBadRecord",
	reflect.TypeFor[audit.Head]():               "AuditHead",
	reflect.TypeFor[audit.Writer]():             "AuditWriter",
	reflect.TypeFor[audit.Summary]():            "AuditSummary",
	reflect.TypeFor[summary.Bucket]():           "AuditBucket",
	reflect.TypeFor[summary.Facet]():            "AuditFacet",
	reflect.TypeFor[summary.FacetValue]():       "AuditFacetValue",
	reflect.TypeFor[auth.Key]():                 "Key",
	reflect.TypeFor[secrets.Info]():             "Secret",
	reflect.TypeFor[secrets.Rotation]():         "SecretRotation",
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
