package sandbox

import "encoding/json"

// ToolServer is one MCP server as a thread sees it.
type ToolServer struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Transport   string `json:"transport"` // "stdio" or "http"
	ToolCount   int    `json:"tool_count"`
	State       string `json:"state"` // "idle" (not yet connected), "ready", "failed"
	Error       string `json:"error,omitempty"`
}

// Tool is one tool of one MCP server. The pair (Server, Name) identifies it; Printed
// ("{server}__{tool}") is only how it is written.
type Tool struct {
	Server      string
	Name        string
	Printed     string
	Description string
	Input       json.RawMessage // JSON Schema
	Output      json.RawMessage // JSON Schema, or nil
	WrapperPath string          // virtual path of the TypeScript wrapper

	// What the configuration says of the tool; each is empty when it says nothing.
	Disclosure Disclosure
	Summary    string   // one line for lists, in place of the description's beginning
	Keywords   []string // words by which a search finds the tool too
}

// Disclosure is when a tool's definition is put before a model. "" leaves it to the mode.
type Disclosure string

// The disclosures. A hidden tool is on no surface and cannot be called: it is never part of a ToolSet.
const (
	DiscloseAlways   Disclosure = "always"   // in every mode
	DiscloseDeferred Disclosure = "deferred" // only when it is searched for
	DiscloseHidden   Disclosure = "hidden"
)

// ToolRef names a tool: Server and Name, or Printed alone.
type ToolRef struct {
	Server  string
	Name    string
	Printed string
}

// ToolSet is all that a thread may use. Hash is the same for the same tools.
type ToolSet struct {
	Hash  string
	Tools []Tool // sorted by server, then name
}

// ToolQuery asks for tools. Detail is "name", "desc" or "full".
type ToolQuery struct {
	Query  string
	Server string
	Detail string
}

// ToolFound is one answer to a ToolQuery; empty fields were not asked for.
type ToolFound struct {
	Name        string          `json:"name"`
	ShortName   string          `json:"short_name"`
	Server      string          `json:"server"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
	Output      json.RawMessage `json:"output,omitempty"`
	WrapperPath string          `json:"wrapper_path,omitempty"`
	Why         []string        `json:"why,omitempty"` // the words of the query that matched, at detail "full"
}

// ToolSearch is the answer to a ToolQuery: at most 15 tools, best first.
type ToolSearch struct {
	Query        string      `json:"query"`
	ServerFilter string      `json:"server_filter"`
	MatchCount   int         `json:"match_count"`
	Showing      int         `json:"showing"`
	Tools        []ToolFound `json:"tools"`
}

// ToolResult is the answer of a tool: structuredContent when there is one, else the text parsed as
// JSON when it parses, else the text as a JSON string.
type ToolResult struct {
	Result  json.RawMessage `json:"result"`
	IsError bool            `json:"is_error"`
	Millis  int64           `json:"ms"`
	CallID  string          `json:"call_id"`
	// File is where the whole result is when Result holds only its beginning, as a string.
	File *ResultFile `json:"file,omitempty"`
}

// ResultFile is a result that was kept as a file of the thread, because it is large.
type ResultFile struct {
	Path   string `json:"path"` // virtual
	Bytes  int64  `json:"bytes"`
	Format string `json:"format"` // "json", or "text" when the result is a string: then it is that string
}
