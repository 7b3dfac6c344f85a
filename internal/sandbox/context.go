package sandbox

import (
	"encoding/json"
	"time"
)

// ContextState says what a stateful context does.
type ContextState string

// The states of a context. A lost one has no variables any more; a restart makes it anew.
const (
	ContextStarting ContextState = "starting"
	ContextIdle     ContextState = "idle"
	ContextBusy     ContextState = "busy"
	ContextLost     ContextState = "lost"
)

const (
	// MaxContexts is the most contexts that live in one sandbox.
	MaxContexts = 8
	// ContextIdleTime is how long a context lives without a run.
	ContextIdleTime = time.Hour
	// MaxResults is how many things a run in a context displays in its answer.
	MaxResults = 64
	// MaxResultBytes bounds them together.
	MaxResultBytes = 8 << 20
	// ResultFilesType is the MIME type of the list of files ([]KeptResult) that hold what was too large.
	ResultFilesType = "application/vnd.skerry.file+json"
)

// ContextRequest asks for a context.
type ContextRequest struct {
	Language string // "python", "typescript" or "javascript"
	Cwd      string // virtual path where it begins; "" = WorkspaceDir
}

// CodeContext is a stateful context as the API shows it: an interpreter of a thread that keeps its
// variables between runs.
type CodeContext struct {
	ContextID  string       `json:"context_id"`
	Language   string       `json:"language"`
	Cwd        string       `json:"cwd"`
	State      ContextState `json:"state"`
	Detail     string       `json:"detail,omitempty"`  // why it is lost, and what to do
	ExecID     string       `json:"exec_id,omitempty"` // of the run, while busy
	CreatedAt  time.Time    `json:"created_at"`        // or restarted
	LastUsedAt time.Time    `json:"last_used_at"`
	Runs       int          `json:"runs"` // since CreatedAt, as this server process counted them
}

// RichResult is one thing that a run displayed: MIME types and their data. Data is a string, base64 for
// images, and any value for JSON types.
type RichResult map[string]json.RawMessage

// KeptResult is a file with data that was too large for an answer.
type KeptResult struct {
	MIME  string `json:"mime"`
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
}

// ContextOutcome is what a result says of the context that its code ran in.
type ContextOutcome struct {
	ContextID string       `json:"context_id"`
	State     ContextState `json:"state"`
	Detail    string       `json:"detail,omitempty"` // why the variables are gone, or that a deadline passed
}
