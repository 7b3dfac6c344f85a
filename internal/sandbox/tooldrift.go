package sandbox

import "time"

// ToolListing is what one connection to an MCP server lists.
type ToolListing struct {
	Owner      Owner  // whose connection it is; the zero Owner for a shared connection
	Server     string // its name
	Own        bool   // a user's own server: no other user has one of this name
	Definition string // changes with the way in which the server is reached or started
	Quarantine bool   // a tool is offered only if an administrator approved its present form
	Tools      []Tool
}

// ToolChange is how one part of a tool differs from what was approved. The hashes are sha256, in hex.
type ToolChange struct {
	Field  string `json:"field" enum:"title,description,input,output,annotations"`
	Before string `json:"before,omitempty" doc:"sha256; absent when there was none"`
	After  string `json:"after,omitempty"`
	Diff   string `json:"diff,omitempty" doc:"Where the two part, at most 600 bytes, everything that is not plain escaped"`
}

// The states of a tool that is not as it was approved.
const (
	DriftAdded   = "added"   // after the server was first seen
	DriftChanged = "changed" // since it was first seen, or approved
	DriftRemoved = "removed"
)

// ToolDrift is a tool that is not as it was first seen, or approved.
type ToolDrift struct {
	Server      string       `json:"server"`
	Tool        string       `json:"tool"`
	State       string       `json:"state" enum:"added,changed,removed"`
	Quarantined bool         `json:"quarantined" doc:"It is not listed, and calls of it are refused, until it is approved"`
	Hash        string       `json:"hash" doc:"Of the tool as it is now; approving takes it"`
	Changes     []ToolChange `json:"changes"`
	SeenAt      time.Time    `json:"seen_at"`
}
