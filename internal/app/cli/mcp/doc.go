// Package mcp is the commands below `skerry mcp`. The tools are those of a Skerry server, or of MCP servers that the
// command starts itself.
package mcp
