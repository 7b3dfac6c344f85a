package skerry

import (
	"encoding/json"
	"time"
)

// The shapes of the API. TestModels holds them against what the server publishes at /openapi.json.

// ThreadInfo is a thread as the server knows it.
type ThreadInfo struct {
	ThreadID     string            `json:"thread_id"`
	Tenant       string            `json:"tenant"`
	User         string            `json:"user"`
	Labels       map[string]string `json:"labels"`
	Mode         string            `json:"mode,omitempty"`
	CreatedAt    time.Time         `json:"created_at"`
	LastActiveAt time.Time         `json:"last_active_at"`
	Workspace    DiskUsage         `json:"workspace"`
	Sandbox      *Sandbox          `json:"sandbox,omitempty"`
}

// DiskUsage is how much a thread's files take.
type DiskUsage struct {
	Bytes int64 `json:"bytes"`
	Files int64 `json:"files"`
}

// Sandbox is the sandbox of a thread.
type Sandbox struct {
	ID          string    `json:"id"`
	State       string    `json:"state"` // "starting", "running", "paused", "stopping", "lost" or "hibernated"
	Template    string    `json:"template"`
	Driver      string    `json:"driver"`
	Runtime     string    `json:"runtime"`
	Warm        bool      `json:"warm"`
	CreatedAt   time.Time `json:"created_at"`
	IdleTimeout int64     `json:"idle_timeout_s"`
	Timings     Timings   `json:"timings_ms"`
}

// Timings are how long the start of a sandbox took, in milliseconds.
type Timings struct {
	Queue  float64 `json:"queue"`
	Create float64 `json:"create"`
	Ready  float64 `json:"ready"`
}

// Template is a kind of sandbox.
type Template struct {
	Name        string         `json:"name"`
	Description string         `json:"description"`
	Languages   []string       `json:"languages"`
	Runtime     string         `json:"runtime"`
	IdleTimeout int64          `json:"idle_timeout_s"`
	Limits      TemplateLimits `json:"limits"`
}

// TemplateLimits bound a sandbox.
type TemplateLimits struct {
	CPUMillis   int64 `json:"cpu_millis"`
	MemoryBytes int64 `json:"memory_bytes"`
	DiskBytes   int64 `json:"disk_bytes"`
	FileBytes   int64 `json:"file_bytes"`
	TmpBytes    int64 `json:"tmp_bytes"`
	OpenFiles   int64 `json:"open_files"`
	PIDs        int64 `json:"pids"`
}

// AcquireOptions say what sandbox a thread gets. Its zero value: of the default template, or as it was.
type AcquireOptions struct {
	Template     string            `json:"template,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	Env          map[string]string `json:"env,omitempty"`
	Skills       []string          `json:"skills,omitempty"`
	Capabilities []string          `json:"capabilities,omitempty"`
	Mode         string            `json:"mode,omitempty"` // "direct", "code" or "auto"
	WaitSeconds  *float64          `json:"wait_s,omitempty"`
}

// Command is what Exec runs: either Command by a shell, or Argv without one.
type Command struct {
	Command        string            `json:"command,omitempty"`
	Argv           []string          `json:"argv,omitempty"`
	Cwd            string            `json:"cwd,omitempty"` // /mnt/user-data/workspace when empty
	Env            map[string]string `json:"env,omitempty"`
	EnvSecrets     map[string]string `json:"env_secrets,omitempty"` // variables by names of secrets
	Stdin          string            `json:"stdin,omitempty"`
	KeepStdin      *bool             `json:"keep_stdin,omitempty"` // for WriteStdin; Start does so when nil
	TimeoutSeconds float64           `json:"timeout_s,omitempty"`  // 60 when 0, at most 3600
	MaxOutputBytes int64             `json:"max_output_bytes,omitempty"`
	ReportFiles    bool              `json:"report_files,omitempty"`
	Background     bool              `json:"background,omitempty"` // set by Start
	PTY            *PTYSize          `json:"pty,omitempty"`        // with Start: a terminal, joined by WebSocket
}

// PTYSize is the size of a terminal, in characters.
type PTYSize struct {
	Cols uint16 `json:"cols"`
	Rows uint16 `json:"rows"`
}

// Code is what ExecuteCode runs.
type Code struct {
	Code           string            `json:"code"`
	Language       string            `json:"language,omitempty"`         // "typescript", "javascript", "python" or "bash"
	TimeoutSeconds float64           `json:"timeout,omitempty"`          // 30 when 0, at most 120
	MaxOutputChars int               `json:"max_output_chars,omitempty"` // of stdout; 10000 when 0
	Env            map[string]string `json:"env,omitempty"`
	EnvSecrets     map[string]string `json:"env_secrets,omitempty"`
	ContextID      string            `json:"context_id,omitempty"` // in a context, and its language
}

// Script is what RunSkill runs.
type Script struct {
	Script         string            `json:"script"` // path in the skill's folder
	Args           []string          `json:"args,omitempty"`
	Stdin          string            `json:"stdin,omitempty"`
	Env            map[string]string `json:"env,omitempty"`
	EnvSecrets     map[string]string `json:"env_secrets,omitempty"`
	TimeoutSeconds float64           `json:"timeout_s,omitempty"`
}

// The statuses of a Result.
const (
	StatusRunning = "running"
	StatusExited  = "exited"
	StatusTimeout = "timeout"
	StatusOOM     = "oom"
	StatusKilled  = "killed"
	StatusLost    = "lost"
)

// Result is an exec, running or ended.
type Result struct {
	ExecID         string       `json:"exec_id"`
	Status         string       `json:"status"`
	Detail         string       `json:"detail,omitempty"` // why it was ended, or what is not kept of it
	ExitCode       *int         `json:"exit_code"`        // nil unless Status is "exited"
	Stdout         string       `json:"stdout"`           // StdoutBytes decodes what is not text
	Stderr         string       `json:"stderr"`
	Encoding       string       `json:"encoding,omitempty"`
	Truncated      bool         `json:"truncated"`
	StdoutPath     *string      `json:"stdout_path"` // where all of it is, when it was cut
	StderrPath     *string      `json:"stderr_path"`
	DurationMillis int64        `json:"duration_ms"`
	Usage          Usage        `json:"usage"`
	ToolsCalled    []ToolCalled `json:"tools_called,omitempty"`
	Files          []FileChange `json:"files"`
	FilesTruncated bool         `json:"files_truncated,omitempty"`
	// Of a run in a context: what became of it, and what was displayed, by MIME type.
	Context        *ContextOutcome              `json:"context,omitempty"`
	Results        []map[string]json.RawMessage `json:"results,omitempty"`
	ResultsLeftOut int                          `json:"results_left_out,omitempty"`
}

// Usage is what an exec used.
type Usage struct {
	CPUMillis   int64 `json:"cpu_ms"`
	MaxRSSBytes int64 `json:"max_rss_bytes"`
}

// ToolCalled is one tool call that code made.
type ToolCalled struct {
	Tool   string `json:"tool"`
	Status string `json:"status"` // "ok", "error", "denied" or "timeout"
	Millis int64  `json:"ms"`
	Error  string `json:"error,omitempty"`
}

// FileChange is a file that an exec changed.
type FileChange struct {
	Path   string `json:"path"`
	Bytes  int64  `json:"bytes"`
	MIME   string `json:"mime,omitempty"`
	SHA256 string `json:"sha256,omitempty"`
	Change string `json:"change"` // "created", "modified" or "deleted"
}

// ContextOutcome is what became of the context that code ran in.
type ContextOutcome struct {
	ContextID string `json:"context_id"`
	State     string `json:"state"`
	Detail    string `json:"detail,omitempty"`
}

// ExecInfo is one line of the list of execs.
type ExecInfo struct {
	ExecID     string    `json:"exec_id"`
	Action     string    `json:"action"` // "exec", "execute_code" or "skill_run"
	Subject    string    `json:"subject"`
	Status     string    `json:"status"`
	ExitCode   *int      `json:"exit_code"`
	Background bool      `json:"background"`
	StartedAt  time.Time `json:"started_at"`
}

// CodeContext is an interpreter that keeps its variables between runs.
type CodeContext struct {
	ContextID  string    `json:"context_id"`
	Language   string    `json:"language"`
	Cwd        string    `json:"cwd"`
	State      string    `json:"state"`
	Detail     string    `json:"detail,omitempty"`
	ExecID     string    `json:"exec_id,omitempty"` // of what runs in it
	Runs       int64     `json:"runs"`
	CreatedAt  time.Time `json:"created_at"`
	LastUsedAt time.Time `json:"last_used_at"`
}

// ContextOptions say what context is made.
type ContextOptions struct {
	Language string `json:"language,omitempty"`
	Cwd      string `json:"cwd,omitempty"`
}

// FileText is a file by lines.
type FileText struct {
	Path       string    `json:"path"`
	Content    string    `json:"content"`
	Encoding   string    `json:"encoding"` // "utf-8", or "base64" when it is not text
	Bytes      int64     `json:"bytes"`
	TotalLines int       `json:"total_lines"`
	StartLine  int       `json:"start_line"`
	EndLine    int       `json:"end_line"`
	NextOffset int       `json:"next_offset,omitempty"`
	Truncated  bool      `json:"truncated,omitempty"`
	ModifiedAt time.Time `json:"modified_at"`
}

// Unpacked is what PutArchive wrote.
type Unpacked struct {
	Path  string `json:"path"`
	Files int    `json:"files"`
	Bytes int64  `json:"bytes"`
}

// WatchedChange is one change of WatchFiles: created, modified or deleted.
type WatchedChange struct {
	Path   string `json:"path"`
	Change string `json:"change"`
	IsDir  bool   `json:"is_dir"`
}

// Written is a file that was written.
type Written struct {
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
}

// Edited says how often a text was replaced.
type Edited struct {
	Path        string `json:"path"`
	Occurrences int    `json:"occurrences"`
}

// FileEntry is a file or folder.
type FileEntry struct {
	Path       string    `json:"path"`
	IsDir      bool      `json:"is_dir"`
	Bytes      int64     `json:"bytes"`
	Mode       string    `json:"mode"`
	ModifiedAt time.Time `json:"modified_at"`
	Symlink    string    `json:"symlink,omitempty"`
}

// FileListing is what a folder holds, or what a pattern found.
type FileListing struct {
	Items     []FileEntry `json:"items"`
	Truncated bool        `json:"truncated"`
}

// GrepMatch is a line that a pattern found.
type GrepMatch struct {
	Path   string   `json:"path"`
	Line   int      `json:"line"`
	Text   string   `json:"text"`
	Before []string `json:"before,omitempty"`
	After  []string `json:"after,omitempty"`
}

// GrepMatches are the lines that a pattern found.
type GrepMatches struct {
	Items     []GrepMatch `json:"items"`
	Truncated bool        `json:"truncated"`
}

// Transferred is what became of one file of an upload or download.
type Transferred struct {
	Path     string `json:"path"`
	Bytes    int64  `json:"bytes"`
	Content  string `json:"content,omitempty"`
	Encoding string `json:"encoding,omitempty"`
	// Error is "" or "file_not_found", "permission_denied", "is_directory", "invalid_path", "quota_exceeded".
	Error  string `json:"error,omitempty"`
	Detail string `json:"detail,omitempty"`
}

// ToolServer is an MCP server that a thread may use.
type ToolServer struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Transport   string `json:"transport"`
	State       string `json:"state"`
	ToolCount   int    `json:"tool_count"`
	Error       string `json:"error,omitempty"`
}

// ToolServers are the MCP servers that a thread may use.
type ToolServers struct {
	Servers    []ToolServer `json:"servers"`
	TotalTools int          `json:"total_tools"`
}

// Tool is a tool of an MCP server; how much is known of it depends on ToolQuery.Detail.
type Tool struct {
	Name        string          `json:"name"` // {server}__{tool}
	ShortName   string          `json:"short_name"`
	Server      string          `json:"server"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"` // a JSON Schema
	Output      json.RawMessage `json:"output,omitempty"`
	WrapperPath string          `json:"wrapper_path,omitempty"`
}

// ToolQuery finds tools.
type ToolQuery struct {
	Query  string
	Server string
	Detail string // "name", "desc" (when empty) or "full"
}

// ToolSearch is what was found, best first, at most 15.
type ToolSearch struct {
	Query        string `json:"query"`
	ServerFilter string `json:"server_filter"`
	MatchCount   int    `json:"match_count"`
	Showing      int    `json:"showing"`
	Tools        []Tool `json:"tools"`
}

// ToolResult is what a tool answered.
type ToolResult struct {
	Result  json.RawMessage `json:"result"`
	IsError bool            `json:"is_error"`
	Millis  int64           `json:"ms"`
	CallID  string          `json:"call_id"`
}

// Prompt is what to tell an agent, and which tools to register with it.
type Prompt struct {
	Text     string            `json:"text"`
	Sections map[string]string `json:"sections"`
	Mode     string            `json:"mode"`
	Tools    []json.RawMessage `json:"tools"`
}

// Finding is something suspicious in a skill.
type Finding struct {
	Rule     string `json:"rule"`
	Severity string `json:"severity"`
	Message  string `json:"message"`
	File     string `json:"file,omitempty"`
	Line     int    `json:"line,omitempty"`
}

// Skill is a skill of the caller.
type Skill struct {
	Name        string    `json:"name"`
	Description string    `json:"description"`
	License     string    `json:"license"`
	Category    string    `json:"category"`
	Enabled     bool      `json:"enabled"`
	Location    string    `json:"location"`
	Digest      string    `json:"digest"`
	Findings    []Finding `json:"findings"`
}

// SkillFound is a skill that a search found.
type SkillFound struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Location    string `json:"location"`
}

// VirtualSkill is a skill of one thread, given as text.
type VirtualSkill struct {
	Name        string            `json:"name"`
	Description string            `json:"description"`
	Body        string            `json:"body"`
	Files       map[string]string `json:"files,omitempty"`
}

// AddedSkill is a virtual skill as the server has it.
type AddedSkill struct {
	Name        string    `json:"name"`
	Description string    `json:"description"`
	Category    string    `json:"category"`
	Location    string    `json:"location"`
	Digest      string    `json:"digest"`
	Findings    []Finding `json:"findings"`
}

// ActiveSkill is the text of a skill and what is in its folder.
type ActiveSkill struct {
	Name      string   `json:"name"`
	Content   string   `json:"content"`
	Location  string   `json:"location"`
	Resources []string `json:"resources"`
}

// SkillFile is a file of a skill.
type SkillFile struct {
	Path     string `json:"path"`
	Location string `json:"location"`
	Bytes    int64  `json:"bytes"`
	MIME     string `json:"mime"`
	Text     string `json:"text,omitempty"`
}

// SkillInstalled says what became of an installation.
type SkillInstalled struct {
	Success   bool      `json:"success"`
	SkillName string    `json:"skill_name"`
	Digest    string    `json:"digest"`
	Message   string    `json:"message"`
	Findings  []Finding `json:"findings"`
}

// Approval is a call that waits, or waited, for a person.
type Approval struct {
	ID        string          `json:"id"`
	State     string          `json:"state"` // "pending", "approved", "denied", "expired" or "cancelled"
	Tenant    string          `json:"tenant"`
	User      string          `json:"user"`
	ThreadID  string          `json:"thread_id"`
	ExecID    string          `json:"exec_id,omitempty"`
	Server    string          `json:"server,omitempty"`
	Tool      string          `json:"tool"`
	Skill     string          `json:"skill,omitempty"`
	Why       string          `json:"why"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	ArgsHash  string          `json:"args_hash"`
	CreatedAt time.Time       `json:"created_at"`
	ExpiresAt time.Time       `json:"expires_at"`
}

// Decision is what a person says to an Approval.
type Decision struct {
	Decision string `json:"decision"` // "approve" or "deny"
	Reason   string `json:"reason,omitempty"`
	Scope    string `json:"scope,omitempty"` // "once" (when empty), "arguments" or "thread"
}

// AuditRecord is one record of the audit log.
type AuditRecord struct {
	ID        string          `json:"id"`
	Writer    string          `json:"writer"`
	Seq       int64           `json:"seq"`
	Time      time.Time       `json:"time"`
	Phase     string          `json:"phase"`
	Action    string          `json:"action"`
	Outcome   string          `json:"outcome,omitempty"`
	Subject   string          `json:"subject,omitempty"`
	Detail    string          `json:"detail,omitempty"`
	Tenant    string          `json:"tenant"`
	User      string          `json:"user"`
	Thread    string          `json:"thread,omitempty"`
	Sandbox   string          `json:"sandbox,omitempty"`
	Exec      string          `json:"exec,omitempty"`
	Parent    string          `json:"parent,omitempty"`
	RequestID string          `json:"request_id,omitempty"`
	Args      json.RawMessage `json:"args,omitempty"`
	ArgsHash  string          `json:"args_hash,omitempty"`
	Millis    int64           `json:"ms"`
	BytesIn   int64           `json:"bytes_in"`
	BytesOut  int64           `json:"bytes_out"`
	Prev      string          `json:"prev"`
	Hash      string          `json:"hash"`
}

// AuditVerification says whether the audit log is whole.
type AuditVerification struct {
	OK       bool            `json:"ok"`
	Records  int64           `json:"records"`
	FirstBad *AuditBadRecord `json:"first_bad,omitempty"`
}

// AuditBadRecord is the first record that is not as it was written.
type AuditBadRecord struct {
	Writer string `json:"writer"`
	Seq    int64  `json:"seq"`
	ID     string `json:"id,omitempty"`
	Reason string `json:"reason"`
	Detail string `json:"detail,omitempty"`
}

// PluginMessage is the text of a plugin's command, ready to be the user's message.
type PluginMessage struct {
	Message  string    `json:"message"`
	Findings []Finding `json:"findings"`
}

// Health is what a server says of itself.
type Health struct {
	Status  string `json:"status"`
	Version string `json:"version"`
}
