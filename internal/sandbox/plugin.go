package sandbox

import "time"

// Plugin is one plugin as a user sees it. Values are shared: callers must not change what slices hold.
type Plugin struct {
	Name        string       `json:"name"` // unique for a user, and its name everywhere
	DisplayName string       `json:"display_name,omitempty"`
	Version     string       `json:"version,omitempty"`
	Description string       `json:"description"`
	Author      string       `json:"author,omitempty"`
	Homepage    string       `json:"homepage,omitempty"`
	Repository  string       `json:"repository,omitempty"`
	License     string       `json:"license,omitempty"`
	Keywords    []string     `json:"keywords,omitempty"`
	Format      string       `json:"format"`  // "claude" or "agent-plugins"
	Enabled     bool         `json:"enabled"` // for the user who asked
	Shared      bool         `json:"shared"`  // all users of the tenant have it
	Digest      string       `json:"digest"`  // of all files: "sha256:" and 64 hex digits
	Location    string       `json:"location"`
	Source      PluginSource `json:"source"`
	InstalledAt time.Time    `json:"installed_at"`
	PluginContents
}

// PluginContents is what was found in the folder of a plugin.
type PluginContents struct {
	Skills   []PluginSkill   `json:"skills"`
	Commands []PluginCommand `json:"commands"`
	Servers  []PluginServer  `json:"mcp_servers"`
	Options  []PluginOption  `json:"options,omitempty"`
	Findings []Finding       `json:"findings"` // at most 300
}

// PluginSource says where a plugin came from, without secrets.
type PluginSource struct {
	Kind        string `json:"kind"`                  // "archive", "git", "folder", or "server"
	From        string `json:"from,omitempty"`        // URL, or the name of a file
	Ref         string `json:"ref,omitempty"`         // branch or tag that was asked for
	Commit      string `json:"commit,omitempty"`      // of a git source
	Path        string `json:"path,omitempty"`        // folder within the source
	SHA256      string `json:"sha256,omitempty"`      // of an archive
	Marketplace string `json:"marketplace,omitempty"` // whose entry it was
}

// PluginSkill is a skill of a plugin.
type PluginSkill struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Location    string `json:"location"` // virtual path of SKILL.md
	Broken      bool   `json:"broken,omitempty"`
}

// PluginCommand is one command: /plugin:name.
type PluginCommand struct {
	Name         string   `json:"name"`
	Description  string   `json:"description"`
	ArgumentHint string   `json:"argument_hint"`
	AllowedTools []string `json:"allowed_tools,omitempty"` // a pre-approval, never a restriction by itself
	Model        string   `json:"model,omitempty"`         // what its author had in mind; nothing here uses it
	Kind         string   `json:"kind"`                    // "command", or "skill" for a skill that people may call
	Hidden       bool     `json:"hidden,omitempty"`        // "disable-model-invocation": for people only
}

// PluginServer is an MCP server that a plugin declares.
type PluginServer struct {
	Name       string `json:"name"`       // as the plugin says it
	Registered string `json:"registered"` // plugin:<plugin>:<name>, its name in the tool set
	Transport  string `json:"transport"`  // "stdio", "http" or "sse"
	State      string `json:"state"`      // "ok", "unusable" (Reason says why), "duplicate" (Reason names the used one)
	Reason     string `json:"reason,omitempty"`
}

// PluginOption is a value that a plugin asks its user for: ${user_config.<Key>}, or ${<Key>} in its MCP servers.
type PluginOption struct {
	Key         string `json:"key"`
	Type        string `json:"type"` // "string", "number", "boolean", "directory", "file"
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`
	Required    bool   `json:"required,omitempty"`
	Sensitive   bool   `json:"sensitive,omitempty"`
	Default     any    `json:"default,omitempty"`
	Variable    bool   `json:"variable,omitempty"` // its MCP servers name it as ${KEY}
	Set         bool   `json:"set"`                // the user has given a value
	Value       any    `json:"value,omitempty"`    // "***" when Sensitive
}

// UserServer is an MCP server that a plugin adds for one user, or a tool pack.
type UserServer struct {
	Name   string            // plugin:<plugin>:<server>
	Config []byte            // as a value of mcpServers; what concerns the host has no effect in it
	Values map[string]string // what ${NAME} in it stands for, and nothing else does
	Root   string            // host folder of the plugin, read-only for its stdio servers
	Key    string            // names the contents of Root; of a pack, which one it is
	Pack   ToolPack          // answers in the place of an MCP server; nil for a plugin's server
	Tenant string            // of a pack: the one whose users have it; "" for all
}

// UserServers are those of one user, which do not change. As long as nothing does, one user's are the same pointer.
type UserServers struct {
	List []UserServer
}

// Folders of a plugin's stdio server, in the server's own sandbox.
const (
	PluginFiles = "/srv/plugin"          // the plugin as it was installed, read-only
	PluginData  = "/srv/home"            // the home folder, which is kept
	PluginRoot  = PluginData + "/plugin" // a copy of the files in it, where the server may write, as on its author's machine
)

// PluginFolders returns the names by which a plugin's configuration, and the environment of its programs, have these
// folders: those of Claude Code and of Agent Plugins.
func PluginFolders() map[string]string {
	return map[string]string{"CLAUDE_PLUGIN_ROOT": PluginRoot, "PLUGIN_ROOT": PluginRoot, "CLAUDE_PLUGIN_DATA": PluginData, "PLUGIN_DATA": PluginData}
}

// PluginInstall is a request to install a plugin.
type PluginInstall struct {
	Plugin      string // of the marketplace
	Marketplace string // "" for another source
	Kind        string // "git", "archive", "folder", or "" for what From looks like
	From        string // URL or folder; a name for people when the archive is sent along
	Ref         string // branch or tag
	SHA         string // commit
	SHA256      string // of an archive
	Path        string // folder within the source
	Digest      string // install only this very plugin; "" for any
	Thread      string // of the archive, for the audit log
	Shared      bool   // for all users of the tenant: administrators only
	Strict      bool   // refuse it when the static scan of its files has an error
	Replace     bool   // in place of one of that name
	Disabled    bool   // leave it switched off
}

// PluginMessage is the text of a command with its arguments put in.
type PluginMessage struct {
	Message  string    `json:"message"`
	Findings []Finding `json:"findings"`
}

// TypedCommand is a message of a user: a command of a plugin, or a message like any other.
type TypedCommand struct {
	Recognised bool      `json:"recognised"`
	Message    string    `json:"message" doc:"What to send to the agent: the text of the command, or the message as it came"`
	Command    string    `json:"command,omitempty" doc:"The command, as plugin:command"`
	Args       string    `json:"args,omitempty"`
	Unknown    string    `json:"unknown,omitempty" doc:"The name of a message that has the form of a command and is none"`
	Near       []string  `json:"near,omitempty" doc:"Commands whose names look like the unknown one, at most 3"`
	Findings   []Finding `json:"findings"`
}

// Marketplace is a list of plugins, and of skills that are no part of one, that was added.
type Marketplace struct {
	Name        string             `json:"name"`
	Owner       string             `json:"owner,omitempty"`
	Description string             `json:"description,omitempty"`
	Source      PluginSource       `json:"source"`
	AddedAt     time.Time          `json:"added_at"`
	Plugins     []MarketplaceEntry `json:"plugins"`
	Skills      []MarketplaceEntry `json:"skills,omitempty"`
	Findings    []Finding          `json:"findings"`
}

// MarketplaceEntry is one plugin of a marketplace, or one skill.
type MarketplaceEntry struct {
	Name        string `json:"name"`
	DisplayName string `json:"display_name,omitempty"`
	Description string `json:"description"`
	Version     string `json:"version,omitempty"`
	Category    string `json:"category,omitempty"`
	Source      string `json:"source"`            // "path", "git", "archive"
	Pinned      bool   `json:"pinned"`            // to a commit or a hash
	Problem     string `json:"problem,omitempty"` // why it cannot be installed
	Installed   bool   `json:"installed"`         // the caller has a plugin of that name from this marketplace; never of a skill
}
