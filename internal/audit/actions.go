package audit

// The actions that are recorded.
const (
	ActionExec              = "exec"
	ActionCode              = "execute_code"
	ActionSkillRun          = "skill_run"
	ActionToolCall          = "tool_call"
	ActionUpstream          = "mcp_request" // to an MCP server, other than a tool call
	ActionFileWrite         = "file_write"
	ActionFileEdit          = "file_edit"
	ActionFileDelete        = "file_delete"
	ActionFileMove          = "file_move"
	ActionFileMkdir         = "file_mkdir"
	ActionSandboxCreate     = "sandbox_create"
	ActionSandboxPool       = "sandbox_pool"  // the start of a sandbox that waits for a thread
	ActionSandboxClaim      = "sandbox_claim" // a thread got one of those
	ActionSandboxRemove     = "sandbox_remove"
	ActionSandboxAdopt      = "sandbox_adopt" // from a server that ended, or was stopped
	ActionSandboxPause      = "sandbox_pause"
	ActionSandboxResume     = "sandbox_resume"
	ActionSandboxHibernate  = "sandbox_hibernate" // its end, too: no sandbox_remove follows
	ActionSandboxExpire     = "sandbox_expire"    // likewise, with execs in it, because of its age
	ActionSandboxReap       = "sandbox_reap"      // a sandbox that no server knew, or what was left of one
	ActionSandboxQueue      = "sandbox_queue"     // it waited for a place
	ActionServerDrain       = "server_drain"
	ActionThreadDelete      = "thread_delete"
	ActionKeyCreate         = "key_create"
	ActionKeyRevoke         = "key_revoke"
	ActionAuthRefused       = "auth_refused"
	ActionMCPConfig         = "mcp_config"
	ActionSignal            = "exec_signal"
	ActionToolDrift         = "tool_drift" // a tool of an MCP server is not as it was
	ActionPack              = "pack"       // a tool pack connected, went or was refused
	ActionPackKey           = "pack_key"   // a key of packs was added or taken away
	ActionSecretSet         = "secret_set"
	ActionSecretDelete      = "secret_delete"
	ActionSecretRotate      = "secret_rotate" // everything that is encrypted was encrypted for a new key
	ActionEgressRefused     = "egress_refused"
	ActionSkillInstall      = "skill_install"
	ActionSkillSwitch       = "skill_switch" // on or off
	ActionSkillWrite        = "skill_write"  // of its SKILL.md
	ActionSkillDelete       = "skill_delete"
	ActionSkillActivate     = "skill_activate" // its instructions were given to an agent
	ActionPluginInstall     = "plugin_install"
	ActionPluginChange      = "plugin_change" // on or off, and values that it asks for
	ActionPluginRemove      = "plugin_remove"
	ActionPluginCommand     = "plugin_command"
	ActionMarketplaceAdd    = "marketplace_add"
	ActionMarketplaceRemove = "marketplace_remove"
	ActionContextOpen       = "context_open"      // a stateful interpreter of a thread
	ActionContextInterrupt  = "context_interrupt" // of the run in it
	ActionContextRestart    = "context_restart"
	ActionContextClose      = "context_close"
	ActionApprovalRequest   = "approval_request"  // a call waits for a person
	ActionApprovalDecision  = "approval_decision" // of a person, or none in time; or a standing answer was used
	ActionTerminal          = "exec_pty"          // a caller joined the terminal of an exec
	ActionFileChange        = "file_change"       // a file that changed while an exec ran; its parent is the exec's attempt
	ActionPolicyChange      = "policy_change"     // rules were put by the API
	ActionConfigReload      = "config_reload"     // a file of the configuration was read again
)

// actions are all of them, and those of records of the log about itself.
var actions = []string{
	ActionExec, ActionCode, ActionSkillRun, ActionToolCall, ActionUpstream, ActionFileWrite, ActionFileEdit,
	ActionFileDelete, ActionFileMove, ActionFileMkdir, ActionSandboxCreate, ActionSandboxPool,
	ActionSandboxClaim, ActionSandboxRemove, ActionSandboxAdopt, ActionSandboxPause, ActionSandboxResume,
	ActionSandboxHibernate, ActionSandboxExpire, ActionSandboxReap, ActionSandboxQueue, ActionServerDrain,
	ActionThreadDelete, ActionKeyCreate, ActionKeyRevoke, ActionAuthRefused, ActionMCPConfig, ActionSignal,
	ActionToolDrift, ActionPack, ActionPackKey, ActionSecretSet, ActionSecretDelete, ActionSecretRotate,
	ActionEgressRefused, ActionSkillInstall, ActionSkillSwitch, ActionSkillWrite, ActionSkillDelete,
	ActionSkillActivate, ActionPluginInstall, ActionPluginChange, ActionPluginRemove, ActionPluginCommand,
	ActionMarketplaceAdd, ActionMarketplaceRemove, ActionContextOpen, ActionContextInterrupt,
	ActionContextRestart, ActionContextClose, ActionApprovalRequest, ActionApprovalDecision, ActionTerminal,
	ActionFileChange, ActionPolicyChange, ActionConfigReload, ActionHead, ActionRetention, ActionGap,
}
