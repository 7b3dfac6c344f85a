// Package rest translates HTTP to use cases and back. The OpenAPI document is made from the handlers that are registered here.
//
// What happens to a request, in this order: it gets an id and rolling deadlines (exchange.go), its
// Host and Origin are checked (guard.go), gin finds the route, the credential becomes a
// sandbox.Caller and the content type is checked (authenticate.go), a repeated Idempotency-Key is
// answered from memory (idempotency.go), huma checks the shape, and a handler calls one use case. An
// error becomes a problem document in one place (problem.go).
//
// # /mcp
//
// api/rest/mcp*.go. Every request is authenticated and names its thread. Since 2026-07-28 it stands alone
// (the SDK's stateless handler); in the era before, initialize makes a session that is bound to key,
// thread and view, and each session has an SDK server of its own. While a request goes on, its credential
// is checked again every 10 s. mcpCall.receive answers what depends on the thread: lists, calls,
// resources, prompts; the SDK does the rest and our own tools. What MCP servers say is passed on as raw
// JSON (ToolResult.Raw, Hub.Ask), never decoded into the SDK's types, with two changes: names
// ({server}__{tool} from the tool set, skerry-mcp://{server}/{uri} there and back) and the members that an
// era wants. /mcp/{thread}/{server} shows one server under its own names, unchanged: the official
// conformance suite runs against it. In the era without sessions a result may ask the client for input, so
// it is passed on; before it, servers cannot ask, because connections are shared and do not say for whom.
//
// Locks: execStream.mu and that of an event stream are held while one event is written to the client, whose connection has a
// deadline. mcpSessions.mu and watchedResources.mu guard maps. None is held while another one is taken, or while a use
// case is called.
package rest
