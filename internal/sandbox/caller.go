package sandbox

import "time"

// Caller is who makes a request, as the credential says, with what the audit log keeps of the request.
type Caller struct {
	Owner
	KeyID     string // "" when no authentication is configured
	Admin     bool
	RequestID string
	Source    string // address of the peer
	UserAgent string
}

// AllSkills in AcquireOptions.Skills stands for all skills that are on.
const AllSkills = "*"

// AcquireOptions is the body of PUT /api/threads/{t}/sandbox.
type AcquireOptions struct {
	Template string            // "" = default
	Labels   map[string]string // replaces the thread's labels when not nil
	Env      map[string]string // for every exec of this sandbox
	Skills   []string          // the thread has only these skills from now on; AllSkills among them: all; nil = as before
	Mode     string            // "direct", "code", "auto" or ""
	Wait     time.Duration     // how long to wait for a starting sandbox; 0: until it is ready
}

// ThreadFilter selects threads of one owner.
type ThreadFilter struct {
	Labels map[string]string
	State  State // "" = any, also threads without a sandbox
	Limit  int
	Cursor string
}

// DiskUsage is what a workspace holds.
type DiskUsage struct {
	Bytes int64 `json:"bytes"`
	Files int64 `json:"files"`
}

// ThreadView is a thread as the API shows it.
type ThreadView struct {
	ThreadInfo
	Workspace DiskUsage `json:"workspace"`
	Sandbox   *Info     `json:"sandbox,omitempty"`
}
