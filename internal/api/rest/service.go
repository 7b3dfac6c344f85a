package rest

import (
	"context"
	"encoding/json"
	"time"

	"github.com/skerry-sandbox/skerry/internal/api/auth"
	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/policy"
	"github.com/skerry-sandbox/skerry/internal/prompt"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/secrets"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// The use cases that the server translates HTTP to. internal/orchestrator has most of them; cmd
// wires them together.

type threads interface {
	// Acquire returns the thread's sandbox and starts it when there is none. State is Starting when
	// AcquireOptions.Wait passed first.
	Acquire(ctx context.Context, c sandbox.Caller, thread string, o sandbox.AcquireOptions) (sandbox.Info, error)
	Thread(ctx context.Context, c sandbox.Caller, thread string) (sandbox.ThreadView, error)
	Threads(ctx context.Context, c sandbox.Caller, f sandbox.ThreadFilter) (items []sandbox.ThreadView, next string, err error)
	// ReleaseSandbox ends the sandbox and keeps the workspace.
	ReleaseSandbox(ctx context.Context, c sandbox.Caller, thread string) error
	DeleteThread(ctx context.Context, c sandbox.Caller, thread string) error
	Pause(ctx context.Context, c sandbox.Caller, thread string) (sandbox.Info, error)
	Resume(ctx context.Context, c sandbox.Caller, thread string) (sandbox.Info, error)
	// Hibernate is a Conflict when execs run and force is not given.
	Hibernate(ctx context.Context, c sandbox.Caller, thread string, force bool) (sandbox.Info, error)
	Templates() []sandbox.Template
}

type runs interface {
	// RunCommand, RunCode and RunScript start an exec and return its id at once. An exec goes on
	// when its caller goes away; it ends by itself or at its deadline.
	RunCommand(ctx context.Context, c sandbox.Caller, thread string, cmd sandbox.Command) (execID string, err error)
	RunCode(ctx context.Context, c sandbox.Caller, thread string, code sandbox.Code) (execID string, err error)
	RunScript(ctx context.Context, c sandbox.Caller, thread string, s sandbox.Script) (execID string, err error)
}

type execs interface {
	// Wait returns the result when the exec has ended, or ctx's error.
	Wait(ctx context.Context, c sandbox.Caller, thread, execID string) (sandbox.Result, error)
	// Exec returns the result as it is now.
	Exec(ctx context.Context, c sandbox.Caller, thread, execID string) (sandbox.Result, error)
	Execs(ctx context.Context, c sandbox.Caller, thread string) ([]sandbox.ExecInfo, error)
	// Events calls emit for every event after number `after`, as they come, up to and with the exit.
	Events(ctx context.Context, c sandbox.Caller, thread, execID string, after uint64, emit func(sandbox.Event) error) error
	SendStdin(ctx context.Context, c sandbox.Caller, thread, execID string, data []byte, closeIt bool) error
	// Signal takes a name such as "TERM".
	Signal(ctx context.Context, c sandbox.Caller, thread, execID, signal string) error
	Kill(ctx context.Context, c sandbox.Caller, thread, execID string) error
}

type terminals interface {
	// JoinTerminal records that the caller follows an exec with a terminal; sandbox.Conflict when it has none.
	JoinTerminal(ctx context.Context, c sandbox.Caller, thread, execID string) error
	// Resize changes the size of a terminal; sandbox.Conflict when the exec has none, or has ended.
	Resize(ctx context.Context, c sandbox.Caller, thread, execID string, size sandbox.TerminalSize) error
}

type files interface {
	// ReadFiles calls read with a view of the thread's files. It starts no sandbox.
	ReadFiles(ctx context.Context, c sandbox.Caller, thread string, read func(*paths.FS) error) error
	// ChangeFiles does the same for a change, which is recorded: action is one of audit.ActionFile…,
	// path its subject. change returns the bytes that it wrote.
	ChangeFiles(ctx context.Context, c sandbox.Caller, thread, action, path string, change func(*paths.FS) (int64, error)) error
	// WatchFiles tells emit what changes in a folder: nothing at first, when it has begun. It returns nil when the thread's sandbox
	// has ended.
	WatchFiles(ctx context.Context, c sandbox.Caller, thread, path string, recursive bool, emit func([]paths.Change) error) error
}

type tools interface {
	ToolServers(ctx context.Context, c sandbox.Caller, thread string) ([]sandbox.ToolServer, error)
	SearchTools(ctx context.Context, c sandbox.Caller, thread string, q sandbox.ToolQuery) (sandbox.ToolSearch, error)
	// ToolsOf returns all tools of one server that the thread may use, sorted by name.
	ToolsOf(ctx context.Context, c sandbox.Caller, thread, server string) ([]sandbox.Tool, error)
	CallTool(ctx context.Context, c sandbox.Caller, thread string, ref sandbox.ToolRef, input json.RawMessage) (sandbox.ToolResult, error)
}

// prompts makes the sections of a prompt that tell an agent what it has.
type prompts interface {
	Prompt(ctx context.Context, c sandbox.Caller, thread string) (prompt.Prompt, error)
}

// upstream is what /mcp passes on of MCP servers, beside tools.
type upstream interface {
	Offer(ctx context.Context, c sandbox.Caller, thread string) (sandbox.Offer, error)
	WatchTool(ctx context.Context, c sandbox.Caller, thread string, ref sandbox.ToolRef, input json.RawMessage, watch sandbox.ToolWatch) (sandbox.ToolResult, error)
	// Upstream lists what all servers offer of a kind, or what one does.
	Upstream(ctx context.Context, c sandbox.Caller, thread string, kind sandbox.UpstreamKind, server string) ([]sandbox.UpstreamItem, error)
	AskUpstream(ctx context.Context, c sandbox.Caller, thread string, r sandbox.UpstreamRequest) (json.RawMessage, error)
	// WatchUpstream calls changed whenever a server says that a resource is another one, until ctx ends.
	WatchUpstream(ctx context.Context, c sandbox.Caller, thread, server, uri string, changed func()) error
	// ToolsChanged returns a channel that is closed when the tools of any thread may have changed.
	ToolsChanged() <-chan struct{}
	// UpstreamChanged does so for prompts and resources.
	UpstreamChanged(kind sandbox.UpstreamKind) <-chan struct{}
}

// skills is what a user does with skills, beside those of a thread.
type skills interface {
	UserSkills(ctx context.Context, c sandbox.Caller) ([]sandbox.Skill, error)
	UserSkill(ctx context.Context, c sandbox.Caller, name string) (sandbox.Skill, error)
	// SwitchSkill switches a skill for the caller, or for all users, which is Forbidden to all but administrators.
	SwitchSkill(ctx context.Context, c sandbox.Caller, name string, enabled, everybody bool) (sandbox.Skill, error)
	SkillText(ctx context.Context, c sandbox.Caller, name string) ([]byte, error)
	WriteSkillText(ctx context.Context, c sandbox.Caller, name string, text []byte) (sandbox.Skill, error)
	DeleteSkill(ctx context.Context, c sandbox.Caller, name string) error
}

// mcpServers is the administration of MCP servers (the hub). Config is one value of mcpServers in
// extensions_config.json, its secrets as "***".
type mcpServers interface {
	ServerConfigs(ctx context.Context) (map[string]json.RawMessage, error)
	PutServer(ctx context.Context, name string, config json.RawMessage) error
	DeleteServer(ctx context.Context, name string) error
	ReconnectServer(ctx context.Context, name string) error
	ServerTools(ctx context.Context, c sandbox.Caller, name string) ([]sandbox.Tool, error)
	// ServerStates lists the enabled servers as the caller's own connections have them. It connects to none.
	ServerStates(c sandbox.Caller) []sandbox.ToolServer
	// BeginLogin returns the URL at which a person logs in; FinishLogin takes the URL that the browser was
	// sent back to. The login is the caller's own.
	BeginLogin(ctx context.Context, c sandbox.Caller, name, redirect string) (sandbox.ToolLogin, error)
	FinishLogin(ctx context.Context, c sandbox.Caller, name, redirected string) error
	Logout(ctx context.Context, c sandbox.Caller, name string) error
}

// toolDrift is the tools of MCP servers that are not as they were first seen, or approved.
type toolDrift interface {
	List(ctx context.Context, c sandbox.Caller, server string) ([]sandbox.ToolDrift, error)
	// Approve takes a tool as it is now, all of a server for tool "". A hash says what was looked at.
	Approve(ctx context.Context, c sandbox.Caller, server, tool, hash string) (approved []string, err error)
}

// rules is the policy. tenant is whose own rules are meant, "" for those of the server.
type rules interface {
	Status(tenant string) policy.Status
	// PutPolicy replaces rules. Invalid has a field for each problem; Conflict: digest is not that of what is there.
	PutPolicy(ctx context.Context, c sandbox.Caller, tenant, text, digest string) (policy.Status, error)
	// TryPolicy says what rules say of a call, or of a record of the caller's tenant. text "" are those that count.
	TryPolicy(ctx context.Context, c sandbox.Caller, tenant, text string, call *policy.Sample, record string) (policy.Trial, error)
}

// secretStore keeps secrets. Nothing that it returns has a value.
type secretStore interface {
	Put(ctx context.Context, c sandbox.Caller, scope secrets.Scope, name, value string, exec bool) (info secrets.Info, made bool, err error)
	Get(ctx context.Context, c sandbox.Caller, name string) ([]secrets.Info, error)
	List(ctx context.Context, c sandbox.Caller) ([]secrets.Info, error)
	Delete(ctx context.Context, c sandbox.Caller, scope secrets.Scope, name string) error
	Rotate(ctx context.Context, c sandbox.Caller) (secrets.Rotation, error)
}

type auditLog interface {
	List(ctx context.Context, f audit.Filter) (items []audit.Record, next string, err error)
	// Follow calls emit with records as they come, from behind the cursor after on; "": from now on.
	Follow(ctx context.Context, f audit.Filter, after string, emit func(r audit.Record, cursor string) error) error
}

// limiter bounds what callers take, and says what they took.
type limiter interface {
	// Request lets a request in, or says which limit it met.
	Request(ctx context.Context, c sandbox.Caller) error
	// Defer leaves that to the use case that the request asks for; Settle counts a request that asked for none after all.
	Defer(ctx context.Context) context.Context
	Settle(ctx context.Context, c sandbox.Caller)
	Usage(ctx context.Context, c sandbox.Caller, q sandbox.UsageQuery) (sandbox.UsageReport, error)
}

type keys interface {
	// Authenticate says whose a credential is; *auth.TooMany when it was not looked at.
	Authenticate(ctx context.Context, cred auth.Credential) (sandbox.Caller, error)
	CreateKey(ctx context.Context, c sandbox.Caller, k auth.Key) (made auth.Key, secret string, err error)
	ListKeys(ctx context.Context, c sandbox.Caller) ([]auth.Key, error)
	RevokeKey(ctx context.Context, c sandbox.Caller, id string) error
}

// idempotency remembers the answers to requests with an Idempotency-Key for 24 hours.
type idempotency interface {
	// Begin claims key for a request whose method, path and body have the hash fingerprint, and which,
	// when it is a retry, was first sent age ago. first: go on and call Finish. Else answer is what the
	// first request was answered with; sandbox.KeyConflict when that one is still running or unknown
	// what became of it, Invalid when it had another fingerprint.
	Begin(ctx context.Context, o sandbox.Owner, key, fingerprint string, age time.Duration) (first bool, answer []byte, err error)
	// Finish stores the answer; a nil answer frees the key.
	Finish(ctx context.Context, o sandbox.Owner, key string, answer []byte) error
}
