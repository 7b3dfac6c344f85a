package rest

import (
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// clientModel is a schema of the document that the clients have as a type.
type clientModel struct {
	schema string
	name   string // in the clients; the schema's when empty
	ts     string // in the TypeScript client, when it is another name; inline: without a name, where it is used
	only   string // the only client that has it: goClient or tsClient
	is     string // the comment of the type, behind its name
	// fields is their order, which is the order of what the commands print. The document's further ones follow.
	fields string
	// without are fields that the clients do not have: commands print the models, and their output stays the same.
	without   string
	withoutTS string // the same of the TypeScript client alone

	made []clientField
}

const (
	inline   = "inline"
	goClient = "go"
	tsClient = "typescript"
)

// clientModelTable is what the document does not say of the models.
var clientModelTable = []clientModel{
	{
		schema: "Thread", name: "ThreadInfo", is: "is a thread as the server knows it.",
		fields: "thread_id tenant user labels mode created_at last_active_at workspace usage sandbox", without: "capabilities skills",
	},
	{schema: "ThreadUsage", is: "is what a thread used, as it was last written.", fields: "disk_bytes measured_at execs exec_seconds"},
	{schema: "DiskUsage", ts: inline, is: "is how much a thread's files take.", fields: "bytes files"},
	{
		schema: "Sandbox", is: "is the sandbox of a thread.",
		fields: "id state template driver runtime warm created_at idle_timeout_s timings_ms", without: "loosened waiting",
	},
	{schema: "Timings", ts: inline, is: "are how long the start of a sandbox took, in milliseconds.", fields: "queue create ready"},
	{
		schema: "Template", is: "is a kind of sandbox.",
		fields:  "name description languages runtime idle_timeout_s limits",
		without: "deno env image interpreters javascript loosened max_age_s pool smoke wasm",
	},
	{
		schema: "Limits", name: "TemplateLimits", ts: inline, is: "bound a sandbox.",
		fields: "cpu_millis memory_bytes disk_bytes file_bytes tmp_bytes open_files pids",
	},
	{
		schema: "SandboxBody", name: "AcquireOptions",
		is:     "are what a thread asks of its sandbox. An empty value: one of the default template, or as it was.",
		fields: "template labels env skills capabilities mode wait_s",
	},
	{
		schema: "ExecBody", name: "Command", is: "is what {Exec} runs: either {Command} by a shell, or {Argv} without one.",
		fields: "command argv cwd env env_secrets redact_env stdin keep_stdin timeout_s max_output_bytes report_files leave_processes background pty", withoutTS: "background",
	},
	{schema: "PtySize", name: "PTYSize", ts: inline, is: "is the size of a terminal, in characters.", fields: "cols rows"},
	{
		schema: "CodeBody", name: "Code", is: "is what {ExecuteCode} runs.",
		fields: "code language timeout max_output_chars env env_secrets redact_env context_id",
	},
	{schema: "SkillBody", name: "Script", is: "is what {RunSkill} runs.", fields: "script args stdin env env_secrets redact_env timeout_s"},
	{
		schema: "ExecResult", name: "Result", ts: "ExecResult", is: "is an exec, running or ended.",
		fields: "exec_id status detail exit_code stdout stderr encoding truncated stdout_path stderr_path duration_ms usage " +
			"tools_called files files_truncated left_processes context results results_left_out",
	},
	{schema: "ExecUsage", name: "Usage", ts: inline, is: "is what an exec used.", fields: "cpu_ms max_rss_bytes"},
	{schema: "ToolCall", name: "ToolCalled", is: "is one tool call that code made.", fields: "tool status ms error"},
	{schema: "FileChange", is: "is a file that an exec changed.", fields: "path bytes mime sha256 change"},
	{schema: "ContextOutcome", ts: inline, is: "is what became of the context that code ran in.", fields: "context_id state detail"},
	{schema: "Process", is: "is a process of a command that runs, or that outlived its command.", fields: "pid parent_pid exec_id running command started_at rss_bytes cpu_ms threads"},
	{
		schema: "SandboxMetrics", is: "is what a sandbox uses, and may use.",
		fields: "at cpu_ms cpu_limit_millis memory_bytes memory_limit_bytes pids pids_limit disk",
	},
	{schema: "SandboxDisk", ts: inline, is: "is what a thread's files take, and may take.", fields: "bytes files limit_bytes"},
	{schema: "ExecInfo", is: "is one line of the list of execs.", fields: "exec_id action subject status exit_code background started_at"},
	{
		schema: "CodeContext", is: "is an interpreter that keeps its variables between runs.",
		fields: "context_id language cwd state detail exec_id runs created_at last_used_at",
	},
	{schema: "ContextBody", name: "ContextOptions", is: "are what is asked of a new context.", fields: "language cwd"},
	{
		schema: "FileText", is: "is a file by lines.",
		fields: "path content encoding bytes total_lines start_line end_line next_offset truncated modified_at",
	},
	{schema: "Unpacked", is: "is what {PutArchive} wrote.", fields: "path files bytes"},
	{schema: "WatchedChange", is: "is a change in a watched folder.", fields: "path change is_dir"},
	{schema: "Written", is: "is a file that was written.", fields: "path bytes etag"},
	{schema: "Edited", is: "is an edited file: how often a text was replaced.", fields: "path occurrences"},
	{schema: "FileEntry", is: "is a file or folder.", fields: "path is_dir bytes mode modified_at symlink"},
	{schema: "FileListing", is: "is what a folder holds, or what a pattern found.", fields: "items truncated"},
	{schema: "GrepMatch", ts: inline, is: "is a line that a pattern found.", fields: "path line text before after"},
	{schema: "GrepMatches", is: "are the lines that a pattern found.", fields: "items truncated"},
	{
		schema: "Transferred", is: "is what became of one file of an upload or download.",
		fields: "path bytes content encoding error detail",
	},
	{
		schema: "ToolServer", ts: inline, is: "is an MCP server that a thread may use.",
		fields: "name description transport state tool_count error",
	},
	{schema: "ServersAnswer", name: "ToolServers", is: "are the MCP servers that a thread may use.", fields: "servers total_tools"},
	{
		schema: "ToolFound", name: "Tool", is: "is a tool of an MCP server; the detail of a ToolQuery says which fields are there.",
		fields: "name short_name server description parameters output wrapper_path", without: "findings quarantined score why",
	},
	{
		schema: "ToolSearch", is: "is what a search found, best first, at most 15.",
		fields: "query server_filter match_count showing tools also",
	},
	{schema: "ToolResult", is: "is what a tool answered.", fields: "result is_error ms call_id", without: "file"},
	{schema: "ToolDefinition", is: "is a tool to register with a model.", fields: "name description input_schema defer_loading"},
	{schema: "Prompt", is: "is what to tell an agent, and which tools to register with it.", fields: "text sections mode tools version"},
	{schema: "Finding", is: "is something suspicious in a skill.", fields: "rule severity message file line"},
	{
		schema: "Skill", is: "is a skill of the caller.",
		fields: "name description license category enabled location digest findings", without: "runnable text trusted",
	},
	{schema: "SkillFound", is: "is a skill that a search found.", fields: "name description location"},
	{
		schema: "VirtualBody", name: "VirtualSkill", is: "is a skill of one thread, given as text.",
		fields: "name description body files binary_files channel replace",
	},
	{
		schema: "VirtualSkill", name: "AddedSkill", is: "is a virtual skill as the server has it.",
		fields: "name description category location digest findings channel",
	},
	{schema: "SkillKey", is: "lets a program provide the tools of a skill of one thread.", fields: "pack_id key"},
	{schema: "SkillTool", is: "is a tool of a skill's channel.", fields: "name description input_schema"},
	{schema: "ActiveSkill", is: "is the text of a skill and what is in its folder.", fields: "name content location resources tools"},
	{schema: "SkillFile", is: "is a file of a skill.", fields: "path location bytes mime text"},
	{
		schema: "SkillInstalled", is: "is what became of an installation.",
		fields: "success skill_name digest message findings",
	},
	{
		schema: "Approval", is: "is a call that waits, or waited, for a person.",
		fields:  "id state tenant user thread_id exec_id server tool skill why arguments args_hash created_at expires_at",
		without: "annotations bytes decision key_id record request_id used_at",
	},
	{schema: "DecisionBody", name: "Decision", is: "is what a person says to an Approval.", fields: "decision reason scope"},
	{
		schema: "ThreadEvent", is: "is something that happened in a thread. Which fields it has follows from its kind.",
		fields: "id kind at versions exec approval files sandbox",
	},
	{schema: "ThreadVersions", ts: inline, is: "are digests of what an agent is told: equal ones stand for equal content.", fields: "tools skills prompt"},
	{schema: "ApprovalSummary", ts: inline, is: "is what an event tells of a request for approval.", fields: "id state exec_id server tool why expires_at"},
	{schema: "ChangedSandbox", ts: inline, is: "says which sandbox began, changed its state or ended.", fields: "sandbox_id template why"},
	{schema: "ChangedFiles", ts: inline, is: "says where files changed.", fields: "exec_id paths more"},
	{
		schema: "AuditRecord", is: "is one record of the audit log.",
		fields: "id writer seq time phase action outcome subject detail tenant user thread sandbox exec parent request_id " +
			"args args_hash ms bytes_in bytes_out prev hash",
		without: "actor auth key_id out_hash role source trace_id user_agent why",
	},
	{
		schema: "AuditSummary", is: "is how many records of the audit log fit a filter: in all, by time, and by the values of some fields.",
		fields: "count denied failed partial counted_since from until bucket_s buckets users actions tools outcomes",
	},
	{schema: "AuditBucket", is: "is a span of time, and the records in it.", fields: "start count denied failed"},
	{schema: "AuditFacet", is: "is the values of a field, those with the most records first.", fields: "values other"},
	{schema: "AuditFacetValue", is: "is a value of a field, and the records that have it.", fields: "value count denied failed"},
	{
		schema: "AuditVerification", is: "is the outcome of a check of the audit log.",
		fields: "ok records first_bad", without: "heads writers",
	},
	{
		schema: "AuditBadRecord", ts: inline, is: "is the first record that is not as it was written.",
		fields: "writer seq id reason detail", without: "line segment through",
	},
	{
		schema: "PluginMessage", only: goClient, is: "is the text of a plugin's command, ready to be the user's message.",
		fields: "message findings",
	},
	{schema: "TypedCommand", is: "is a message of a user: a command of a plugin, or a message like any other.", fields: "recognised message command args unknown near findings"},
	{schema: "Health", only: goClient, is: "is what a server says of itself.", fields: "status version"},
	{schema: "FieldError", is: "is what is wrong with one field of a request.", fields: "field detail"},
	{
		schema: "Limit", is: "is the limit of a tenant, user or key that was met.",
		fields: "limit scope who max used retry_after_s free_at",
	},
	{
		schema: "Problem", only: tsClient, is: "is an error as the server sends it (RFC 9457).",
		fields: "type title status detail code errors limit not_started",
	},
}

// clientNotes are comments of fields that the document does not describe, or not for the users of a client.
var clientNotes = map[string]string{
	"CodeContext.exec_id":    "Of what runs in it",
	"ExecBody.background":    "{Start} sets it",
	"ExecBody.keep_stdin":    "Leave stdin open to write to it later; true with {Start} when absent",
	"ExecBody.pty":           "With {Start}: a terminal, joined by WebSocket",
	"ExecInfo.action":        "exec, execute_code or skill_run",
	"ExecResult.context":     "Of a run in a context: what became of it",
	"ExecResult.detail":      "Why the server ended it, or what it did not keep of it",
	"ExecResult.encoding":    "base64 when stdout or stderr is not UTF-8; then both are",
	"ExecResult.exit_code":   "Only when the status is exited",
	"ExecResult.results":     "Of a run in a context: what it displayed, by MIME type",
	"ExecResult.stdout":      "{StdoutBytes} decodes what is not text",
	"ExecResult.stdout_path": "Where all of it is, when it was cut",
	"FileChange.change":      "created, modified or deleted",
	"FileText.encoding":      "utf-8, or base64 when it is not text",
	"Limit.retry_after_s":    "Seconds; absent when the server does not know",
	"Sandbox.timings_ms":     "Milliseconds",
	"ToolCall.status":        "ok, error, denied or timeout",
	"ToolFound.name":         "{server}__{tool}",
	"ToolFound.parameters":   "A JSON Schema",
}

// clientValues are the texts that fields may have that the document does not say.
var clientValues = map[string][]string{
	"ExecInfo.status": execStatuses, "ExecResult.status": execStatuses,
	"Sandbox.state": texts(sandbox.Starting, sandbox.Running, sandbox.Paused, sandbox.Stopping, sandbox.Lost, sandbox.Hibernated),
}

var execStatuses = texts(sandbox.StatusRunning, sandbox.StatusExited, sandbox.StatusTimeout, sandbox.StatusOOM, sandbox.StatusKilled, sandbox.StatusLost)

func texts[T ~string](all ...T) []string {
	var out []string
	for _, one := range all {
		out = append(out, string(one))
	}
	return out
}

// goFieldNames are the names of Go that do not follow from those of the document.
var goFieldNames = map[string]string{
	"CodeBody.timeout": "TimeoutSeconds", "etag": "ETag", "idle_timeout_s": "IdleTimeout", "retry_after_s": "RetryAfter", "timings_ms": "Timings",
}

// goFieldTypes are types that the document does not tell apart: it has one for all whole numbers, and does
// not say whether zero differs from an absent value.
var goFieldTypes = map[string]string{
	"cols": "uint16", "rows": "uint16",
	"exit_code": "*int", "keep_stdin": "*bool", "wait_s": "*float64",
	"end_line": "int", "line": "int", "match_count": "int", "max_output_chars": "int", "next_offset": "int", "occurrences": "int",
	"results_left_out": "int", "retry_after_s": "int", "showing": "int", "start_line": "int", "tool_count": "int",
	"total_lines": "int", "total_tools": "int", "Unpacked.files": "int",
}

// tsAlias is a type of the TypeScript client for the texts that some fields may have.
type tsAlias struct {
	name, is string
	fields   string // the values are those of the first one
}

var tsAliases = []tsAlias{
	{"SandboxState", "is what a sandbox does.", "Sandbox.state"},
	{"Language", "is what {ExecuteCode} can run.", "CodeBody.language"},
	{"ExecStatus", "is how an exec ended, or that it runs.", "ExecResult.status ExecInfo.status"},
	{"ErrorCode", "is what kind of error the server answered. The codes stay the same over time, unlike the texts.", "Problem.code"},
}

// tsValues are texts that only the TypeScript client has.
var tsValues = map[string][]string{"WatchedChange.change": texts(sandbox.EventStarted)}
