package sandbox

import (
	"encoding/json"
	"slices"
	"strings"
)

// ToolServer is one MCP server as a thread sees it.
type ToolServer struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Transport   string `json:"transport"` // "stdio", "http" or "pack"
	ToolCount   int    `json:"tool_count"`
	State       string `json:"state"` // "idle" (not yet connected), "ready", "failed", "needs_login" (a person has to log in first), "unavailable" (the pack has gone, and may come back)
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

	// What else the server says of the tool, as JSON in its own words; each is nil when it says nothing.
	Title       string
	Annotations json.RawMessage // an object, with readOnlyHint and the like: hints of a stranger
	Icons       json.RawMessage // an array
	Meta        json.RawMessage // an object, "_meta"

	// Findings are signs of poisoning in what the server says: see package toolscan.
	Findings []Finding
	// Quarantined: only administrators see the tool until one of them approves it.
	Quarantined bool

	// What the configuration says of the tool; each is empty when it says nothing.
	Disclosure Disclosure
	Summary    string   // one line for lists, in place of the description's beginning
	Keywords   []string // words by which a search finds the tool too
	Requires   []string // capabilities that a caller of the tool needs, all of them

	// Active: the thread's agent activated it, so its definition is put before the model in every mode.
	Active bool
}

// MaxActiveTools is how many tools of a thread are active at most.
const MaxActiveTools = 100

// PrintedServer is the part of a printed name that stands for the server.
func PrintedServer(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, name)
}

// PrintedName is how a tool is written where there is one name for it.
func PrintedName(server, tool string) string { return PrintedServer(server) + "__" + tool }

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
	// Skills are the tools of skills with a channel which the thread's agent activated, for wrappers: they are on no list.
	Skills []Tool
	// Channels: a skill of the thread has a channel.
	Channels bool
}

// bytesPerToken is how many bytes of a definition are estimated as one token of a model. Vocabularies differ; with
// o200k the estimate is 5 to 10 % too high for the tools of real servers (bench, TestEstimate).
const bytesPerToken = 4

// Tokens estimates what the definition of a tool costs a model that gets it directly: a quarter of the bytes of its
// printed name, its description and its input schema.
func (t Tool) Tokens() int {
	return (len(t.Printed) + len(t.Description) + len(t.Input) + bytesPerToken - 1) / bytesPerToken
}

// ShownTokens estimates what a model reads when it gets the tools directly. Tools that only a search finds take no
// room.
func (s ToolSet) ShownTokens() int {
	n := 0
	for _, t := range s.Tools {
		if t.Disclosure != DiscloseDeferred {
			n += t.Tokens()
		}
	}
	return n
}

// WithActive returns the set with the tools of these printed names marked as active ones.
func (s ToolSet) WithActive(names []string) ToolSet {
	if len(names) == 0 {
		return s
	}
	s.Tools = slices.Clone(s.Tools)
	for i := range s.Tools {
		s.Tools[i].Active = slices.Contains(names, s.Tools[i].Printed)
	}
	return s
}

// How much of a tool a search answers with.
const (
	DetailName = "name"
	DetailDesc = "desc" // when a query names none
	DetailFull = "full"
)

// MaxToolsFound is how many tools a search answers with at most.
const MaxToolsFound = 15

// ToolQuery asks for tools. Detail is one of the constants.
type ToolQuery struct {
	Query  string
	Server string
	Detail string
	// Limit is how many tools are described, at most MaxToolsFound; 0: MaxToolsFound, and at DetailFull the few that
	// fit best.
	Limit int
	// OutputSchema asks for the schemas of results too, at DetailFull.
	OutputSchema bool
	// Visible reports of a tool whether the caller may know of it, of a server as of a tool without a name; nil: of all.
	Visible func(Tool) bool `json:"-"`
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
	Findings    []Finding       `json:"findings,omitempty" doc:"Signs of poisoning, for administrators"`
	Score       int             `json:"score,omitempty" doc:"Of the findings: 10 for each rule of severity error, 3 for a warning, 1 for info"`
	Quarantined bool            `json:"quarantined,omitempty" doc:"No thread gets it until it is approved"`
	Why         []string        `json:"why,omitempty"` // the words of the query that matched, at detail "full"
}

// ToolSearch is the answer to a ToolQuery: at most 15 tools, best first.
type ToolSearch struct {
	Query        string      `json:"query"`
	ServerFilter string      `json:"server_filter"`
	MatchCount   int         `json:"match_count"`
	Showing      int         `json:"showing"`
	Tools        []ToolFound `json:"tools"`
	Also         []string    `json:"also,omitempty" doc:"At detail full without a limit: the names of the next best tools, which are not described"`
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
	// Content and Structured are what the server wrote, for those who asked for it: see WithContent.
	Content    []json.RawMessage `json:"content,omitempty"`
	Structured json.RawMessage   `json:"structured_content,omitempty"`
	// Raw is the whole CallToolResult as the server wrote it, with all blocks of content, for those who
	// pass it on; nil when the tool was not reached.
	Raw json.RawMessage `json:"-"`
}

// ResultFile is a result that was kept as a file of the thread, because it is large, or a file that a tool returned.
type ResultFile struct {
	Path   string `json:"path"` // virtual
	Bytes  int64  `json:"bytes"`
	Format string `json:"format"` // "json", or "text" when the result is a string: then it is that string
}

// ToolWatch has the functions that listen to a server during one call; a nil one does not. The functions
// are called in the order in which the server speaks, one at a time, and not after the call has returned.
// They must not block: the call's return waits for them. Of a server that talks faster than they
// listen, the oldest sayings are lost.
type ToolWatch struct {
	Progress func(ToolProgress)
	Log      func(ToolLog)

	// Params are members of the request beside name and arguments, for a caller who passes a client's
	// request on: an object with _meta, inputResponses and requestState. A result that asks for input is
	// then given to the caller, who knows the client. nil: there are none.
	Params json.RawMessage
}

// ToolProgress says how far a call is. Total is 0 when it is not known.
type ToolProgress struct {
	Progress float64 `json:"progress"`
	Total    float64 `json:"total,omitempty"`
	Message  string  `json:"message,omitempty"` // at most 2 KiB
}

// ToolLog is a log message of a server. Level is one of those of syslog, as the server writes it.
type ToolLog struct {
	Level  string          `json:"level"`
	Logger string          `json:"logger,omitempty"`
	Data   json.RawMessage `json:"data"` // at most 16 KiB; a longer one is cut and a JSON string
}
