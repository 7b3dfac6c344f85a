package service

import (
	"context"
	"encoding/json"
	"io"

	"github.com/skerry-sandbox/skerry/internal/prompt"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// Service is the use cases of a server. Its fields say so when they may be nil.
type Service struct {
	Threads       Threads
	Sandboxes     Sandboxes
	Runs          Runs
	Execs         Execs
	Terminals     Terminals
	Processes     Processes
	Contexts      Contexts
	Files         Files
	Events        Events
	Tools         Tools
	ActiveTools   ActiveTools
	Upstream      Upstream
	Prompts       Prompts
	Skills        Skills
	ThreadSkills  ThreadSkills
	SkillChannels SkillChannels
	// SkillInstalls installs skills from archives. May be nil.
	SkillInstalls SkillInstalls
	// Approvals are calls that wait for people. May be nil.
	Approvals Approvals
	PluginUse
}

// PluginUse is what callers do with plugins.
type PluginUse struct {
	// Plugins and Marketplaces are the caller's plugins, and where they come from. Both may be nil.
	Plugins      Plugins
	Marketplaces Marketplaces
	// Messages recognises commands of plugins in what users type. It is nil when Plugins is.
	Messages Messages
}

// Threads is what callers do with threads as such.
type Threads interface {
	Thread(ctx context.Context, c sandbox.Caller, thread string) (sandbox.ThreadView, error)
	// Threads lists the caller's threads. Those of other users are Forbidden to all but administrators.
	Threads(ctx context.Context, c sandbox.Caller, f sandbox.ThreadFilter) (sandbox.ThreadList, error)
	DeleteThread(ctx context.Context, c sandbox.Caller, thread string) error
}

// Sandboxes is what callers do with the sandbox of a thread.
type Sandboxes interface {
	// Acquire returns the thread's sandbox and starts it when there is none. State is Starting when
	// AcquireOptions.Wait passed first.
	Acquire(ctx context.Context, c sandbox.Caller, thread string, o sandbox.AcquireOptions) (sandbox.Info, error)
	// ReleaseSandbox ends the sandbox and keeps the workspace.
	ReleaseSandbox(ctx context.Context, c sandbox.Caller, thread string) error
	Pause(ctx context.Context, c sandbox.Caller, thread string) (sandbox.Info, error)
	Resume(ctx context.Context, c sandbox.Caller, thread string) (sandbox.Info, error)
	// Hibernate is a Conflict when execs run and force is not given.
	Hibernate(ctx context.Context, c sandbox.Caller, thread string, force bool) (sandbox.Info, error)
	Templates() []sandbox.Template
	// SandboxLoad says what the sandbox uses, and starts none. NotSupported: the driver does not measure it here;
	// Conflict: it is hibernated; NotFound: there is none.
	SandboxLoad(ctx context.Context, c sandbox.Caller, thread string) (sandbox.Load, error)
}

// Runs starts execs.
type Runs interface {
	// RunCommand, RunCode and RunScript start an exec and return its id at once. An exec goes on
	// when its caller goes away; it ends by itself or at its deadline.
	RunCommand(ctx context.Context, c sandbox.Caller, thread string, cmd sandbox.Command) (execID string, err error)
	RunCode(ctx context.Context, c sandbox.Caller, thread string, code sandbox.Code) (execID string, err error)
	RunScript(ctx context.Context, c sandbox.Caller, thread string, s sandbox.Script) (execID string, err error)
}

// Execs is what callers do with execs that were started.
type Execs interface {
	// Wait returns the result when the exec has ended, or ctx's error.
	Wait(ctx context.Context, c sandbox.Caller, thread, execID string) (sandbox.Result, error)
	// Exec returns the result as it is now.
	Exec(ctx context.Context, c sandbox.Caller, thread, execID string) (sandbox.Result, error)
	Execs(ctx context.Context, c sandbox.Caller, thread string) ([]sandbox.ExecInfo, error)
	// Events calls emit for every event after number `after`, as they come, up to and with the exit.
	Events(ctx context.Context, c sandbox.Caller, thread, execID string, after uint64, emit func(sandbox.Event) error) error
	SendStdin(ctx context.Context, c sandbox.Caller, thread, execID string, data []byte, closeIt bool) error
	// Signal takes a name such as "TERM".
	Signal(ctx context.Context, c sandbox.Caller, thread, execID, signal string) error
	Kill(ctx context.Context, c sandbox.Caller, thread, execID string) error
}

// Terminals is what callers do with the terminals of execs.
type Terminals interface {
	// JoinTerminal records that the caller follows an exec with a terminal; sandbox.Conflict when it has none.
	JoinTerminal(ctx context.Context, c sandbox.Caller, thread, execID string) error
	// Resize changes the size of a terminal; sandbox.Conflict when the exec has none, or has ended.
	Resize(ctx context.Context, c sandbox.Caller, thread, execID string, size sandbox.TerminalSize) error
}

// Processes is what callers do with processes that outlived their execs.
type Processes interface {
	// Processes lists them by their pids, with all those of running execs as well. It starts no sandbox; Conflict: it is paused.
	Processes(ctx context.Context, c sandbox.Caller, thread string, all bool) ([]sandbox.Process, error)
	// KillProcess ends one with all below it; NotFound when no exec of the thread left it.
	KillProcess(ctx context.Context, c sandbox.Caller, thread string, pid int) error
}

// Contexts are the interpreters of a thread that keep their variables between runs.
type Contexts interface {
	// CreateContext returns once the context can be used.
	CreateContext(ctx context.Context, c sandbox.Caller, thread string, q sandbox.ContextRequest) (sandbox.CodeContext, error)
	// Contexts lists them, oldest first. It starts no sandbox.
	Contexts(ctx context.Context, c sandbox.Caller, thread string) ([]sandbox.CodeContext, error)
	Context(ctx context.Context, c sandbox.Caller, thread, id string) (sandbox.CodeContext, error)
	// InterruptContext ends the run in a context and keeps its variables.
	InterruptContext(ctx context.Context, c sandbox.Caller, thread, id string) (sandbox.CodeContext, error)
	// RestartContext starts an empty interpreter for a context, also when its own was lost.
	RestartContext(ctx context.Context, c sandbox.Caller, thread, id string) (sandbox.CodeContext, error)
	DeleteContext(ctx context.Context, c sandbox.Caller, thread, id string) error
}

// Files is the files of threads.
type Files interface {
	// ReadFiles calls read with a view of the thread's files. It starts no sandbox.
	ReadFiles(ctx context.Context, c sandbox.Caller, thread string, read func(*paths.FS) error) error
	// ChangeFiles does the same for a change, which is recorded: action is one of audit.ActionFile…,
	// path its subject. change returns the bytes that it wrote.
	ChangeFiles(ctx context.Context, c sandbox.Caller, thread, action, path string, change func(*paths.FS) (int64, error)) error
	// WatchFiles tells emit what changes in a folder: nothing at first, when it has begun. It returns nil when the thread's sandbox
	// has ended.
	WatchFiles(ctx context.Context, c sandbox.Caller, thread, path string, recursive bool, emit func([]paths.Change) error) error
	// ReadSandbox and ChangeSandbox do the same with what only the thread's sandbox has, such as /tmp. They start it if there is none.
	ReadSandbox(ctx context.Context, c sandbox.Caller, thread string, read func(paths.Tree) error) error
	ChangeSandbox(ctx context.Context, c sandbox.Caller, thread, action, path string, change func(paths.Tree) (int64, error)) error
}

// Events is what happens in threads.
type Events interface {
	// FollowEvents calls emit with each event of a thread, as JSON, and its id, until ctx ends: first with started, or with reset
	// when events behind the one named by after are missing. It returns nil when the thread is deleted; Unavailable: another
	// server took the thread over.
	FollowEvents(ctx context.Context, c sandbox.Caller, thread, after string, emit func(id string, kind sandbox.ThreadEventKind, data []byte) error) error
}

// Tools is the tools of MCP servers, as a thread has them.
type Tools interface {
	ToolServers(ctx context.Context, c sandbox.Caller, thread string) ([]sandbox.ToolServer, error)
	SearchTools(ctx context.Context, c sandbox.Caller, thread string, q sandbox.ToolQuery) (sandbox.ToolSearch, error)
	// ToolsOf returns all tools of one server that the thread may use, sorted by name.
	ToolsOf(ctx context.Context, c sandbox.Caller, thread, server string) ([]sandbox.Tool, error)
	CallTool(ctx context.Context, c sandbox.Caller, thread string, ref sandbox.ToolRef, input json.RawMessage) (sandbox.ToolResult, error)
}

// ActiveTools are the tools whose definitions an agent gets because it activated them.
type ActiveTools interface {
	// ActivateTool takes a printed name, as PutAwayTool does. NotFound: the thread may use no such tool.
	ActivateTool(ctx context.Context, c sandbox.Caller, thread, name string) (sandbox.Tool, error)
	// PutAwayTool is NotFound for a tool that is not active.
	PutAwayTool(ctx context.Context, c sandbox.Caller, thread, name string) error
	// WatchActiveTools returns a channel that gets a value when the active tools of the thread have changed, until stop.
	WatchActiveTools(t sandbox.Thread) (changed <-chan struct{}, stop func())
}

// Upstream is what /mcp passes on of MCP servers, beside tools.
type Upstream interface {
	Offer(ctx context.Context, c sandbox.Caller, thread string) (sandbox.Offer, error)
	WatchTool(ctx context.Context, c sandbox.Caller, thread string, ref sandbox.ToolRef, input json.RawMessage, watch sandbox.ToolWatch) (sandbox.ToolResult, error)
	// Upstream lists what all servers offer of a kind, or what one does.
	Upstream(ctx context.Context, c sandbox.Caller, thread string, kind sandbox.UpstreamKind, server string) ([]sandbox.UpstreamItem, error)
	AskUpstream(ctx context.Context, c sandbox.Caller, thread string, r sandbox.UpstreamRequest) (json.RawMessage, error)
	// WatchUpstream calls changed whenever a server says that a resource is another one, until ctx ends.
	WatchUpstream(ctx context.Context, c sandbox.Caller, thread, server, uri string, changed func()) error
	// ToolsChanged returns a channel that is closed when the tools of any thread may have changed.
	ToolsChanged() <-chan struct{}
	// UpstreamChanged does so for prompts and resources.
	UpstreamChanged(kind sandbox.UpstreamKind) <-chan struct{}
}

// Prompts makes the sections of a prompt that tell an agent what it has.
type Prompts interface {
	Prompt(ctx context.Context, c sandbox.Caller, thread string) (prompt.Prompt, error)
}

// Skills is what a user does with skills, beside those of a thread.
type Skills interface {
	UserSkills(ctx context.Context, c sandbox.Caller) ([]sandbox.Skill, error)
	UserSkill(ctx context.Context, c sandbox.Caller, name string) (sandbox.Skill, error)
	// SwitchSkill switches a skill for the caller, or for all users, which is Forbidden to all but administrators.
	SwitchSkill(ctx context.Context, c sandbox.Caller, name string, enabled, everybody bool) (sandbox.Skill, error)
	SkillText(ctx context.Context, c sandbox.Caller, name string) ([]byte, error)
	// ReadSkill returns the SKILL.md of any skill of the caller. NotFound: no such skill, or it cannot be read.
	ReadSkill(ctx context.Context, c sandbox.Caller, name string) ([]byte, error)
	WriteSkillText(ctx context.Context, c sandbox.Caller, name string, text []byte) (sandbox.Skill, error)
	DeleteSkill(ctx context.Context, c sandbox.Caller, name string) error
}

// ThreadSkills is what agents do with the skills of their thread.
type ThreadSkills interface {
	// ThreadSkills lists them: first those that the thread was given, in their order, then all others by name.
	ThreadSkills(ctx context.Context, c sandbox.Caller, thread string) ([]sandbox.Skill, error)
	SkillManifest(ctx context.Context, c sandbox.Caller, thread, name string) (sandbox.SkillManifest, error)
	// SkillFile returns one file; path is relative to the skill's folder.
	SkillFile(ctx context.Context, c sandbox.Caller, thread, skill, path string) ([]byte, error)
	ActivateSkill(ctx context.Context, c sandbox.Caller, thread, name string) (sandbox.ActiveSkill, error)
	// SearchSkills returns at most 15, best first, and how many fit; the first of the list for an empty query.
	SearchSkills(ctx context.Context, c sandbox.Caller, thread, query string) (found []sandbox.SkillFound, matches int, err error)
	AddVirtualSkill(ctx context.Context, c sandbox.Caller, thread string, sk sandbox.VirtualSkill) (sandbox.Skill, error)
	RemoveVirtualSkill(ctx context.Context, c sandbox.Caller, thread, name string) error
	// SkillsChanged returns a channel that is closed when the skills of any thread may have changed.
	SkillsChanged() <-chan struct{}
}

// SkillChannels are the skills of threads whose tools are functions of a client's program.
type SkillChannels interface {
	// AttachSkill adds a skill as AddVirtualSkill does, and returns the key by which a program provides its tools. Invalid: the
	// name cannot be that of a pack; NotSupported: the server takes no packs.
	AttachSkill(ctx context.Context, c sandbox.Caller, thread string, sk sandbox.VirtualSkill) (sandbox.Skill, sandbox.SkillKey, error)
}

// SkillInstalls installs skills for the caller.
type SkillInstalls interface {
	// Install reads an archive to its end. Invalid: it is refused; Conflict: there is a skill of that name, or it has
	// not the digest that was asked for.
	Install(ctx context.Context, c sandbox.Caller, archive io.Reader, req sandbox.SkillInstall) (sandbox.SkillInstalled, error)
	// InstallListed installs req.Skill of req.Marketplace. NotSupported, NotFound, and what fetching
	// answers.
	InstallListed(ctx context.Context, c sandbox.Caller, req sandbox.SkillInstall) (sandbox.SkillInstalled, error)
	// InstallURL fetches the archive at req.Source first. NotSupported, NotFound, Forbidden, Unavailable.
	InstallURL(ctx context.Context, c sandbox.Caller, req sandbox.SkillInstall) (sandbox.SkillInstalled, error)
}

// Approvals is where people decide on calls that wait for them (internal/approval).
type Approvals interface {
	List(ctx context.Context, c sandbox.Caller, f sandbox.ApprovalFilter) (items []sandbox.Approval, next string, err error)
	Get(ctx context.Context, c sandbox.Caller, id string) (sandbox.Approval, error)
	// Decide is a Conflict when the request is decided, or over.
	Decide(ctx context.Context, c sandbox.Caller, id string, v sandbox.ApprovalVerdict) (sandbox.Approval, error)
}

// Plugins is what callers do with their plugins.
type Plugins interface {
	List(ctx context.Context, c sandbox.Caller) ([]sandbox.Plugin, error)
	Get(ctx context.Context, c sandbox.Caller, name string) (sandbox.Plugin, error)
	// Install installs what req names, or the archive when it is not nil. It is in force when Install returns.
	Install(ctx context.Context, c sandbox.Caller, archive io.Reader, req sandbox.PluginInstall) (sandbox.Plugin, error)
	Switch(ctx context.Context, c sandbox.Caller, name string, on bool) (sandbox.Plugin, error)
	// SetValues sets values that a plugin asks for; nil removes one.
	SetValues(ctx context.Context, c sandbox.Caller, name string, values map[string]any) (sandbox.Plugin, error)
	Remove(ctx context.Context, c sandbox.Caller, name string) error
	Commands(ctx context.Context, c sandbox.Caller, name string, skills bool) ([]sandbox.PluginCommand, error)
	// Invoke makes the text of a command for a thread.
	Invoke(ctx context.Context, c sandbox.Caller, thread, plugin, command, args string) (sandbox.PluginMessage, error)
}

// Messages is what users type.
type Messages interface {
	// ReadMessage returns the text of the command that a message is, or the message as it came.
	ReadMessage(ctx context.Context, c sandbox.Caller, thread, text string) (sandbox.TypedCommand, error)
}

// Marketplaces is where plugins come from.
type Marketplaces interface {
	Marketplaces(ctx context.Context, c sandbox.Caller) ([]sandbox.Marketplace, error)
	AddMarketplace(ctx context.Context, c sandbox.Caller, req sandbox.PluginInstall) (sandbox.Marketplace, error)
	RemoveMarketplace(ctx context.Context, c sandbox.Caller, name string) error
}
