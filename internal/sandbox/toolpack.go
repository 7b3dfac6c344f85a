package sandbox

import (
	"context"
	"encoding/json"
	"time"
)

// ToolPack is a program that offers tools over a connection that it has opened to this server. The hub treats it as one
// more MCP server.
type ToolPack interface {
	// List returns the result of MCP's tools/list, and a channel that is closed when there is another one.
	List() (list json.RawMessage, changed <-chan struct{})
	// Call makes a call, and returns the result of MCP's tools/call. When ctx ends, so does the call.
	Call(ctx context.Context, call PackCall) (json.RawMessage, error)
	// Away says why the pack cannot be called now, or nil.
	Away() error
}

// PackCall is one call of a tool of a pack.
type PackCall struct {
	Tool     string
	Input    json.RawMessage
	Thread   Thread             // for whom; the zero value when it is for none
	Progress func(ToolProgress) // never nil
}

// PackState says whether a pack can be called.
type PackState string

// The states of packs.
const (
	PackConnected   PackState = "connected"
	PackDraining    PackState = "draining"    // it ends its calls, and takes no new ones
	PackUnavailable PackState = "unavailable" // it has gone, and its tools stay listed for a while
)

// PackInfo is a pack as administrators see it.
type PackInfo struct {
	ID          string     `json:"id"`
	Version     string     `json:"version"`
	Description string     `json:"description,omitempty"`
	Tenant      string     `json:"tenant,omitempty" doc:"Whose users have it; all when absent"`
	State       PackState  `json:"state" enum:"connected,draining,unavailable"`
	Error       string     `json:"error,omitempty" doc:"Why agents do not have it now"`
	Identity    string     `json:"identity" doc:"The credential that provides it"`
	Source      string     `json:"source" doc:"The address that it came from"`
	Server      string     `json:"server,omitempty" doc:"The other server that it is connected to; absent: this one"`
	Since       time.Time  `json:"since" doc:"When it connected, or went"`
	Parallel    int        `json:"max_parallel_calls"`
	Running     int        `json:"running" doc:"Calls under way"`
	Calls       uint64     `json:"calls" doc:"Calls of this connection"`
	Late        uint64     `json:"late" doc:"Answers of this connection that came when no caller waited for them"`
	ToolCount   int        `json:"tool_count"`
	Tools       []PackTool `json:"tools,omitempty"`
}

// PackTool is a tool in the manifest of a pack.
type PackTool struct {
	Name           string   `json:"name"`
	Description    string   `json:"description"`
	Capabilities   []string `json:"required_capabilities,omitempty"`
	TimeoutSeconds int      `json:"timeout_s"`
	Disclosure     string   `json:"disclosure,omitempty"`
}

// PackStream is a stream of a pack, as servers tell each other of it.
type PackStream struct {
	ID       string    `json:"id"`
	Tenant   string    `json:"tenant,omitempty"`  // whose users have the pack; "": those of all
	Thread   Thread    `json:"thread,omitzero"`   // of whose skill the pack is; zero: of none
	Channel  string    `json:"channel,omitempty"` // the random id of that skill
	Home     string    `json:"home,omitempty"`    // the server that has the skill
	Instance string    `json:"instance,omitempty"`
	Identity string    `json:"identity"`
	Source   string    `json:"source"`
	Since    time.Time `json:"since"`
	Digest   string    `json:"digest"` // of the manifest
	Draining bool      `json:"draining,omitempty"`
}

// PackKey lets whoever has the SSH key provide packs.
type PackKey struct {
	ID           string     `json:"id" doc:"The key's fingerprint"`
	Key          string     `json:"key" doc:"As in authorized_keys: type and base64"`
	Name         string     `json:"name,omitempty"`
	Authority    bool       `json:"cert_authority,omitempty" doc:"Certificates that it signed count, and not the key itself"`
	Tenant       string     `json:"tenant,omitempty" doc:"Whose users get the packs; all when absent"`
	Packs        []string   `json:"packs,omitempty" doc:"The only packs: names, or the beginning of names with a * behind it; all when absent"`
	Capabilities []string   `json:"capabilities,omitempty" doc:"The only capabilities that its tools may require; any when absent"`
	ExpiresAt    *time.Time `json:"expires_at,omitempty"`
	CreatedAt    *time.Time `json:"created_at,omitempty" doc:"Absent for a key of the file"`
	CreatedBy    string     `json:"created_by,omitempty"`
	File         bool       `json:"file,omitempty" doc:"It is in the file authorized_packs, and changed there"`
}
