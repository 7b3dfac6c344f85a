package sandbox

import "time"

// ThreadEventKind says what of a thread changed.
type ThreadEventKind string

// The kinds. Followers read the state itself where they need more than an event tells.
const (
	EventToolsChanged      ThreadEventKind = "tools.changed"
	EventSkillsChanged     ThreadEventKind = "skills.changed"
	EventPromptChanged     ThreadEventKind = "prompt.changed"
	EventApprovalRequested ThreadEventKind = "approval.requested"
	EventApprovalEnded     ThreadEventKind = "approval.decided"
	EventExecStarted       ThreadEventKind = "exec.started"
	EventExecEnded         ThreadEventKind = "exec.ended"
	EventFilesChanged      ThreadEventKind = "files.changed"
	EventSandboxStarted    ThreadEventKind = "sandbox.started"
	EventSandboxPaused     ThreadEventKind = "sandbox.paused"
	EventSandboxResumed    ThreadEventKind = "sandbox.resumed"
	EventSandboxHibernated ThreadEventKind = "sandbox.hibernated"
	EventSandboxEnded      ThreadEventKind = "sandbox.ended"
	// EventFollowing comes first: from then on all is told.
	EventFollowing ThreadEventKind = "started"
	// EventReset says that events are missing: the follower reads the thread's state anew.
	EventReset ThreadEventKind = "reset"
)

// ThreadEventKinds are those that a thread's life makes, without those of the stream itself.
func ThreadEventKinds() []ThreadEventKind {
	return []ThreadEventKind{
		EventToolsChanged, EventSkillsChanged, EventPromptChanged, EventApprovalRequested, EventApprovalEnded, EventExecStarted, EventExecEnded, EventFilesChanged,
		EventSandboxStarted, EventSandboxPaused, EventSandboxResumed, EventSandboxHibernated, EventSandboxEnded,
	}
}

// ThreadEvent is something that happened in a thread. Which members it has follows from its kind.
type ThreadEvent struct {
	ID       string           `json:"id,omitempty" doc:"Resume behind it: send it as Last-Event-ID, or as after"`
	Kind     ThreadEventKind  `json:"kind" enum:"started,reset,tools.changed,skills.changed,prompt.changed,approval.requested,approval.decided,exec.started,exec.ended,files.changed,sandbox.started,sandbox.paused,sandbox.resumed,sandbox.hibernated,sandbox.ended"`
	At       time.Time        `json:"at"`
	Versions *ThreadVersions  `json:"versions,omitempty" doc:"As the caller sees the thread now; with started, reset and the three kinds of change"`
	Exec     *ExecInfo        `json:"exec,omitempty" doc:"With exec.started and exec.ended; the subject is cut to 200 characters"`
	Approval *ApprovalSummary `json:"approval,omitempty" doc:"With approval.requested and approval.decided"`
	Files    *ChangedFiles    `json:"files,omitempty" doc:"With files.changed"`
	Sandbox  *ChangedSandbox  `json:"sandbox,omitempty" doc:"With the kinds that begin with sandbox."`
}

// ThreadVersions are digests of what an agent is told: equal ones stand for equal content.
type ThreadVersions struct {
	Tools  string `json:"tools"`
	Skills string `json:"skills"`
	Prompt string `json:"prompt" doc:"The version of GET /api/threads/{thread}/prompt"`
}

// ApprovalSummary is what an event tells of a request for approval.
type ApprovalSummary struct {
	ID        string        `json:"id"`
	State     ApprovalState `json:"state" enum:"pending,approved,denied,expired,cancelled"`
	ExecID    string        `json:"exec_id,omitempty"`
	Server    string        `json:"server,omitempty"`
	Tool      string        `json:"tool"`
	Why       string        `json:"why"`
	ExpiresAt time.Time     `json:"expires_at"`
}

// ChangedSandbox says which sandbox began, changed its state or ended.
type ChangedSandbox struct {
	ID       ID     `json:"sandbox_id"`
	Template string `json:"template"`
	Why      string `json:"why,omitempty" doc:"Such as asked, idle, age, room, or how it ended by itself"`
}

// ChangedFiles says where files changed.
type ChangedFiles struct {
	ExecID string   `json:"exec_id,omitempty" doc:"The exec that changed them; absent for a call of the API"`
	Paths  []string `json:"paths" doc:"At most 50. A folder stands for what is in it"`
	More   bool     `json:"more,omitempty" doc:"Other files may have changed, too: list the folders"`
}
