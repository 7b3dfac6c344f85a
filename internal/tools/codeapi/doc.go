// Package codeapi turns a set of MCP tools into source code that calls them: one typed TypeScript
// function and one Python function for each tool, and what these need to reach the bridge. The tree
// it makes is what a sandbox sees as /mnt/code-api:
//
//	servers/<server>/<tool>.ts          one function with its input and output types
//	servers/<server>/index.ts           all of them
//	servers/<server_>/__init__.py       the same in Python, the server's name as an identifier
//	helpers/callMCPTool.ts, types.ts    the call itself
//	helpers/call_mcp_tool.py            the call itself
//
// Names, descriptions and schemas come from MCP servers and are not trusted: each of them reaches the
// code as a quoted string, as a cleaned identifier, or as a comment that it cannot end.
//
// Locks: target.mu is held while the folder of one sandbox is looked at or changed. Store.writing is taken under it, for one
// tree at a time, and so is Store.mu, which guards two maps. Store.mu is held while targets whose folders are gone are forgotten:
// their mutexes are tried then, never waited for.
package codeapi
