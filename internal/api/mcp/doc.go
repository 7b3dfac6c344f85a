// Package mcp is /mcp: the use cases as tools, resources and prompts of an MCP server, and what a thread's own MCP servers offer.
//
// Every request is authenticated and names its thread. Since 2026-07-28 each request stands alone (the SDK's
// stateless handler). In the era before, initialize makes a session that is bound to key, thread and view,
// and each session has its own SDK server. While a request runs, the server checks its credential again
// every 10 s. methods.receive answers what depends on the thread: lists, calls, resources, prompts; the SDK
// does the rest and our own tools. Results of MCP servers are passed on as raw JSON (ToolResult.Raw,
// Hub.Ask), never decoded into the SDK's types. Two things change: names ({server}__{tool} from the tool
// set, skerry-mcp://{server}/{uri} there and back) and the members that an era wants. /mcp/{thread}/{server}
// shows one server under its own names, unchanged: the official conformance suite runs against it. In the
// era without sessions a result may ask the client for input, and the server passes it on. In the era
// before, servers cannot ask, because connections are shared and do not say for whom.
//
// Locks: sessions.mu and watchedResources.mu guard maps. Neither is held while another one is taken, or while a use case is
// called.
package mcp
