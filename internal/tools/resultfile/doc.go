// Package resultfile makes files of a thread of what a tool returns for them: embedded resources of MCP whose URI is
// below Prefix. A model and code then see the path, and no base64.
package resultfile
