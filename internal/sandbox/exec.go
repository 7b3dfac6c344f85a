package sandbox

import "time"

// Status says how an exec ended, or that it has not.
type Status string

// An exec has exactly one terminal status; StatusRunning is the only other one.
const (
	StatusRunning Status = "running"
	StatusExited  Status = "exited"
	StatusTimeout Status = "timeout"
	StatusOOM     Status = "oom"
	StatusKilled  Status = "killed"
	StatusLost    Status = "lost"
)

// Limits of a request to run something.
const (
	DefaultExecTimeout = 60 * time.Second
	MaxExecTimeout     = time.Hour
	DefaultCodeTimeout = 30 * time.Second
	MaxCodeTimeout     = 120 * time.Second
	DefaultOutputBytes = 1 << 20
	MaxOutputBytes     = 16 << 20
	MaxStdinBytes      = 8 << 20
	MaxCodeBytes       = 4 << 20
	MaxOutputChars     = 1_000_000 // of the stdout of a program text
	MaxTerminalSide    = 1000
	MaxApprovalWait    = time.Hour // of one exec: its deadline is held while calls of it wait for people
)

// Command is a request to run a command. Exactly one of Shell and Argv is set.
type Command struct {
	Shell          string
	Argv           []string
	Cwd            string            // virtual path; "" = WorkspaceDir
	Env            map[string]string // its values, from 8 bytes on, are hidden here in the audit log
	EnvSecrets     map[string]string `json:",omitempty"` // variables whose values are those of secrets, by name; here and below
	RedactEnv      bool              `json:",omitempty"` // hide values of Env, and of the sandbox's variables, in output; here and below
	Stdin          string
	KeepStdin      bool // leave stdin open for SendStdin
	Timeout        time.Duration
	Background     bool
	MaxOutputBytes int64 // each of stdout and stderr
	ReportFiles    bool
	// Terminal attaches the command to a terminal of this size instead of pipes, and leaves stdin open. What
	// it shows is stdout, and goes on coming as events beyond MaxOutputBytes: of those the newest
	// MaxOutputBytes are kept.
	Terminal *TerminalSize `json:",omitempty"`
	// LeaveProcesses lets processes outlive the command: the exec ends with it, and they stay until they end, are killed, or
	// the sandbox ends. At the deadline, or when the exec is killed before, they end with it.
	LeaveProcesses bool `json:",omitempty"`
}

// TerminalSize is counted in characters, 1 to MaxTerminalSide each.
type TerminalSize struct {
	Cols uint16 `json:"cols"`
	Rows uint16 `json:"rows"`
}

// Valid tells whether a terminal can have this size.
func (s TerminalSize) Valid() bool {
	return s.Cols >= 1 && s.Cols <= MaxTerminalSide && s.Rows >= 1 && s.Rows <= MaxTerminalSide
}

// Code is a request to run a program text.
type Code struct {
	Language       string // one of Languages; "" = that of the context, else the configured one
	Description    string `json:",omitempty"` // what it does, in the caller's words: for lists and the audit log
	ContextID      string `json:",omitempty"` // "" = a fresh interpreter
	Text           string
	Env            map[string]string
	EnvSecrets     map[string]string `json:",omitempty"`
	RedactEnv      bool              `json:",omitempty"`
	Timeout        time.Duration
	MaxOutputChars int
}

// Script is a request to run a script of a skill.
type Script struct {
	Skill      string
	Path       string // relative to the skill's folder; "" with Module
	Module     string `json:",omitempty"` // in place of Path: a Python module of the skill, "scripts.report"
	Cwd        string `json:",omitempty"` // WorkspaceDir when ""
	Args       []string
	Stdin      string
	Env        map[string]string
	EnvSecrets map[string]string `json:",omitempty"`
	RedactEnv  bool              `json:",omitempty"`
	Timeout    time.Duration
}

// Usage is what an exec used.
type Usage struct {
	CPUMillis   int64 `json:"cpu_ms"`
	MaxRSSBytes int64 `json:"max_rss_bytes"`
}

// FileChange is a file under UserDataDir that an exec made, changed or deleted.
type FileChange struct {
	Path   string `json:"path"`
	Bytes  int64  `json:"bytes"`
	MIME   string `json:"mime,omitempty"`
	SHA256 string `json:"sha256,omitempty"` // "" above 10 MB and for a deleted file
	Change string `json:"change"`           // "created", "modified" or "deleted"
}

// ToolCall is one tool call that an exec made, as the bridge counted it.
type ToolCall struct {
	Tool   string `json:"tool"`
	Status string `json:"status"` // "ok", "error", "denied" or "timeout"
	Millis int64  `json:"ms"`
	Error  string `json:"error,omitempty"`
	Bytes  int64  `json:"-"` // of the result that the code got, also of one in a file
}

// Result is an exec as the API shows it, running or ended. ToolsCalled is nil for a plain exec.
type Result struct {
	ExecID         string       `json:"exec_id"`
	Status         Status       `json:"status"`
	Detail         string       `json:"detail,omitempty"` // why it was ended (Status is killed), or what is not kept of it
	ExitCode       *int         `json:"exit_code"`        // nil unless Status is exited
	Stdout         string       `json:"stdout"`
	Stderr         string       `json:"stderr"`
	Encoding       string       `json:"encoding,omitempty"` // "base64" when either stream is not UTF-8 (then both are)
	Truncated      bool         `json:"truncated"`
	StdoutPath     *string      `json:"stdout_path"`
	StderrPath     *string      `json:"stderr_path"`
	DurationMillis int64        `json:"duration_ms"`
	Usage          Usage        `json:"usage"`
	ToolsCalled    []ToolCall   `json:"tools_called,omitempty"`
	Files          []FileChange `json:"files"`
	FilesTruncated bool         `json:"files_truncated,omitempty"`
	LeftProcesses  int          `json:"left_processes,omitempty"` // that outlived it: see Command.LeaveProcesses

	// Of a run in a context; nil for all others.
	Context        *ContextOutcome `json:"context,omitempty"`
	Results        *[]RichResult   `json:"results,omitempty"`
	ResultsLeftOut int             `json:"results_left_out,omitempty"` // displayed beyond MaxResults; kept in results.jsonl beside the exec's other files
}

// EventType is the kind of an event of an exec.
type EventType string

// The events of an exec, in the order: started, any number of outputs and approvals, exit.
const (
	EventStarted EventType = "started"
	EventStdout  EventType = "stdout"
	EventStderr  EventType = "stderr"
	EventExit    EventType = "exit"

	EventApprovalRequired EventType = "approval_required" // a call of it waits for a person
	EventApprovalDecided  EventType = "approval_decided"  // or does not any more
)

// Event is one numbered event of an exec. N begins at 1 and has no gaps.
type Event struct {
	N      uint64
	Type   EventType
	Time   time.Time
	Data   []byte  // of EventStdout and EventStderr
	Result *Result // of EventExit
	// Of EventApprovalRequired and EventApprovalDecided; without arguments and annotations.
	Approval *Approval
}

// ExecInfo is one line of the list of execs of a thread.
type ExecInfo struct {
	ExecID  string `json:"exec_id"`
	Action  string `json:"action"` // "exec", "execute_code" or "skill_run"
	Subject string `json:"subject"`
	// Description is what the caller of execute_code said that the code does.
	Description string    `json:"description,omitempty"`
	Status      Status    `json:"status"`
	ExitCode    *int      `json:"exit_code"`
	Background  bool      `json:"background"`
	StartedAt   time.Time `json:"started_at"`
	// DurationMillis is that of an ended exec.
	DurationMillis *int64 `json:"duration_ms,omitempty" doc:"Of an ended exec"`
	Terminal       bool   `json:"terminal,omitempty" doc:"It has a terminal, which a client can join"`
}

// Process is a process of an exec. What it says of itself is data of the sandbox.
type Process struct {
	PID       int        `json:"pid"`
	Parent    int        `json:"parent_pid,omitempty"`
	ExecID    string     `json:"exec_id"`
	Running   bool       `json:"running" doc:"Its exec runs; false: it outlived its exec"`
	Command   string     `json:"command" doc:"As the process tells it, secrets hidden"`
	Started   *time.Time `json:"started_at,omitempty"`
	RSSBytes  int64      `json:"rss_bytes"`
	CPUMillis int64      `json:"cpu_ms,omitempty" doc:"Time that it computed"`
	Threads   int        `json:"threads,omitempty"`
}
