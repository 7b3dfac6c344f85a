package sandbox

// SecretAsker is who asks for the value of a secret: a connection to an MCP server, or an exec.
type SecretAsker struct {
	Owner         // of a connection that all share: the zero Owner
	Server string // the MCP server; "" when it is an exec
	Skill  *Skill // whose script runs; nil = none
	// OwnOnly: nothing but the user's own secrets count. It is for a user's own servers.
	OwnOnly bool
	// NotOwn: the user's own do not count. It is for what decides where others are sent to.
	NotOwn bool
}

// SealedValue begins a value of a plugin's option that is kept encrypted; base64 follows.
const SealedValue = "age:"

// PluginValuePurpose is for what such a value is encrypted: a user cannot lend a value to another.
func PluginValuePurpose(o Owner) string { return "plugin value " + o.Tenant + "/" + o.User }
