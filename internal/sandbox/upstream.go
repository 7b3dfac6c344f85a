package sandbox

import "encoding/json"

// UpstreamKind is a kind of thing that an MCP server offers besides tools.
type UpstreamKind string

// The kinds, by the member of a list answer that holds them.
const (
	UpstreamResources UpstreamKind = "resources"
	UpstreamTemplates UpstreamKind = "resourceTemplates"
	UpstreamPrompts   UpstreamKind = "prompts"
	UpstreamSkills    UpstreamKind = "skills"
)

// UpstreamItem is one resource, resource template, prompt or skill of an MCP server.
type UpstreamItem struct {
	Server  string
	Name    string          // the URI, the URI template, or the prompt's own name; of a skill the URI of its SKILL.md
	Printed string          // of a prompt: "{server}__{prompt}"; else ""
	Raw     json.RawMessage // the object as the server wrote it
}

// MethodSubscribe asks an MCP server to tell when a resource changes. Its one parameter is "uri".
const MethodSubscribe = "resources/subscribe"

// UpstreamRequest is a request for one MCP server, in the words of the protocol.
type UpstreamRequest struct {
	Server string
	Method string          // "resources/read", "prompts/get", "completion/complete" or MethodSubscribe
	Params json.RawMessage // an object
}

// UpstreamError is an error that an MCP server answered with. It is the cause of a ToolFailed error, for
// those who pass it on as it is. Message and Data are a stranger's text.
type UpstreamError struct {
	Code    int64 // of JSON-RPC
	Message string
	Data    json.RawMessage // nil when there is none
}

func (e *UpstreamError) Error() string { return e.Message }
