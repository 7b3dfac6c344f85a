package sandbox

// ToolServerStart tells the PID 1 of an MCP server's sandbox what to run. It travels over
// StdioSocket and not with the Spec, for the environment holds secrets and a Spec is shown by engines.
type ToolServerStart struct {
	Argv   []string `json:"argv"`
	Env    []string `json:"env"` // all of it, "NAME=value"
	Dir    string   `json:"dir"`
	Egress bool     `json:"egress,omitempty"` // there is a proxy on EgressSocket
	// Copy is made before the program starts; nil: none.
	Copy *FolderCopy `json:"copy,omitempty"`
}

// FolderCopy is a copy of a folder that stays: the next start makes it anew only when Key, which names the
// contents, is another one. What was written into it goes then.
type FolderCopy struct {
	From string `json:"from"`
	To   string `json:"to"`
	Key  string `json:"key"`
}
