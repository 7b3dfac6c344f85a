package sandbox

import "time"

// What UsageQuery.By may be.
const (
	UsageByDay  = "day"
	UsageByUser = "user"
	UsageByKey  = "key"
)

// UsageQuery asks what was used on some days, both ends included.
type UsageQuery struct {
	From, To time.Time // zero: today
	By       string    // "" = UsageByDay
	User     string    // only this one's
}

// Load is what a sandbox uses, and may use.
type Load struct {
	At     time.Time
	CPU    time.Duration // since it was made
	Memory int64         // bytes, now, with the cache of its files
	PIDs   int64         // processes and threads, now
	Disk   *DiskUsage    // of the thread's files, some seconds ago; nil: unknown
	Limits Limits
}

// UsageReport is what was used.
type UsageReport struct {
	From   string       `json:"from" doc:"A day, in UTC"`
	To     string       `json:"to"`
	By     string       `json:"by"`
	Items  []UsageItem  `json:"items"`
	Total  UsageAmounts `json:"total"`
	Limits []LimitState `json:"limits" doc:"Those of the caller's tenant, of the caller and of the key"`
}

// UsageItem is a part of a report.
type UsageItem struct {
	Day   string `json:"day,omitempty"`
	User  string `json:"user,omitempty"`
	KeyID string `json:"key_id,omitempty"`
	UsageAmounts
}

// UsageAmounts are what is counted.
type UsageAmounts struct {
	Requests        int64   `json:"requests"`
	Refused         int64   `json:"refused" doc:"Calls that met a limit"`
	Execs           int64   `json:"execs" doc:"Those that ended"`
	ExecSeconds     float64 `json:"exec_seconds"`
	CPUSeconds      float64 `json:"cpu_seconds"`
	ToolCalls       int64   `json:"tool_calls"`
	CodeToolCalls   int64   `json:"code_tool_calls" doc:"Those of the tool calls that code in sandboxes made"`
	ToolResultBytes int64   `json:"tool_result_bytes" doc:"What tools answered"`
	ReturnedBytes   int64   `json:"returned_bytes" doc:"What the callers got of it: the answers to direct calls, and the output of programs that called tools"`
	SandboxStarts   int64   `json:"sandbox_starts"`
	SandboxSeconds  float64 `json:"sandbox_seconds"`
}

// LimitState is a limit with what is taken of it.
type LimitState struct {
	Limit string `json:"limit"`
	Scope string `json:"scope" enum:"tenant,user,key"`
	Who   string `json:"who"`
	Max   int64  `json:"max"`
	Used  *int64 `json:"used,omitempty" doc:"Now; absent for a rate"`
}
