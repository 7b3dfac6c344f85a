// Package schema checks values against the JSON Schemas of tools. A schema comes from an MCP server, and
// may be hostile: what it may cost is bounded by its shape beforehand, and by a count of steps while it is
// applied.
//
// Locks: Validator.mu is held while a schema is compiled or applied. No other lock is taken meanwhile.
package schema
