package rest

import (
	"context"
	"encoding/json"

	"github.com/skerry-sandbox/skerry/internal/api/auth"
	"github.com/skerry-sandbox/skerry/internal/api/rest/access"
	"github.com/skerry-sandbox/skerry/internal/api/rest/audits"
	"github.com/skerry-sandbox/skerry/internal/api/rest/overview"
	"github.com/skerry-sandbox/skerry/internal/policy"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/secrets"
)

// What administrators do, and what requests pass on their way. The use cases of agents are in
// internal/service.

// Administration is what administrators do. Its fields say so when they may be nil.
type Administration struct {
	MCPServers mcpServers
	MCPLogins  mcpLogins
	Audit      audits.Log
	AuditProof audits.Proof // nil: the log is not verified here
	// Overview is how the server goes; nil: it keeps no series.
	Overview *overview.Server
	// Fleet is the servers of the installation; nil: they are not known.
	Fleet overview.Fleet
	// Policy are the rules; nil: there are none.
	Policy rules
	// Drift is what has changed of tools; nil: tools are not compared.
	Drift toolDrift
	// Packs are tool packs; nil: the server takes none.
	Packs toolPacks
	// Secrets are named values; nil: there are none.
	Secrets secretStore
}

// mcpServers is the administration of MCP servers (the hub). Config is one value of mcpServers in
// extensions_config.json, its secrets as "***".
type mcpServers interface {
	ServerConfigs(ctx context.Context) (map[string]json.RawMessage, error)
	PutServer(ctx context.Context, name string, config json.RawMessage) error
	DeleteServer(ctx context.Context, name string) error
	ReconnectServer(ctx context.Context, name string) error
	// InstallServer fetches the packages of a server that runs in a sandbox, and returns how many tools it has.
	InstallServer(ctx context.Context, c sandbox.Caller, name string) (tools int, err error)
	ServerTools(ctx context.Context, c sandbox.Caller, name string) ([]sandbox.Tool, error)
	// ServerStates lists the enabled servers as the caller's own connections have them. It connects to none.
	ServerStates(c sandbox.Caller) []sandbox.ToolServer
}

// mcpLogins are the logins of callers at MCP servers.
type mcpLogins interface {
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
	// PutPolicy replaces rules. Invalid has a field for each problem; Conflict: digest is not that of what
	// is there.
	PutPolicy(ctx context.Context, c sandbox.Caller, tenant, text, digest string) (policy.Status, error)
	// TryPolicy returns the decision of rules on a call, or on a record of the caller's tenant. An empty
	// text means the rules in force.
	TryPolicy(ctx context.Context, c sandbox.Caller, tenant, text string, call *policy.Sample, record string) (policy.Trial, error)
	// Past tries rules on the calls of the caller's tenant that the audit log has.
	Past(ctx context.Context, c sandbox.Caller, tenant, text string, q policy.PastQuery) (policy.PastReport, error)
}

// secretStore keeps secrets. Nothing that it returns has a value.
type secretStore interface {
	Put(ctx context.Context, c sandbox.Caller, scope secrets.Scope, name, value string, exec bool) (info secrets.Info, made bool, err error)
	Get(ctx context.Context, c sandbox.Caller, name string) ([]secrets.Info, error)
	List(ctx context.Context, c sandbox.Caller) ([]secrets.Info, error)
	Delete(ctx context.Context, c sandbox.Caller, scope secrets.Scope, name string) error
	Rotate(ctx context.Context, c sandbox.Caller) (secrets.Rotation, error)
}

type keys interface {
	access.Keys
	CreateKey(ctx context.Context, c sandbox.Caller, k auth.Key) (made auth.Key, secret string, err error)
	ListKeys(ctx context.Context, c sandbox.Caller) ([]auth.Key, error)
	RevokeKey(ctx context.Context, c sandbox.Caller, id string) error
}
