package rest

import (
	"net/http"
	"time"

	"github.com/skerry-sandbox/skerry/internal/api/rest/eventstream"
	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/execs"
	"github.com/skerry-sandbox/skerry/internal/api/rest/files"
	"github.com/skerry-sandbox/skerry/internal/api/rest/idempotency"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// clientConstants is a group of constants that the clients share.
type clientConstants struct {
	is     string
	prefix string // of their names
	in     string // the clients that have them: "go ts py"; all when empty
	public bool   // Go programs use them, by names without the prefix
	goType string // of the values; the client declares it
	of     []clientConstant
}

// clientConstant has a string, a time.Duration, an int, a list of HTTP statuses, or their codes, as its value.
type clientConstant struct {
	name  string
	value any
	note  string
}

// Behaviour of the clients that the API does not set. docs/decisions/0039 says why these values.
const (
	clientTimeout   = 2 * time.Minute
	clientPatience  = 30 * time.Second
	clientSilence   = 4 * eventstream.Heartbeat
	clientWait      = 10 * time.Minute
	clientTransfer  = time.Hour
	takeUpFor       = 30 * time.Second
	takeUpPause     = 500 * time.Millisecond
	auditTakeUpFor  = time.Minute
	firstPause      = 100 * time.Millisecond
	longestPause    = 5 * time.Second
	pauseSpread     = 4
	clientMaxAnswer = 256 << 20
	maxShownFrame   = 4 << 20
	clientsVersion  = "0.1.0"
)

var clientConstantTable = []clientConstants{
	{
		is: "The codes of errors. They stay the same over time, unlike the texts.", prefix: "code", in: "go py", public: true, goType: "ErrorCode",
		of: []clientConstant{
			{"not_found", sandbox.NotFound, "no such thing, or it is another user's"},
			{"invalid", sandbox.Invalid, "the request cannot be right, whatever the state"},
			{"conflict", sandbox.Conflict, "right in another state"},
			{"forbidden", sandbox.Forbidden, "the caller may not"},
			{"unauthorized", sandbox.Unauthorized, "no key, or a bad one"},
			{"quota_exceeded", sandbox.QuotaExceeded, "a limit of the thread, user or tenant"},
			{"capacity_exceeded", sandbox.CapacityExceeded, "a limit of the server"},
			{"not_supported", sandbox.NotSupported, "the server's driver, template or version cannot"},
			{"sandbox_lost", sandbox.SandboxLost, "the sandbox ended under the call"},
			{"tool_failed", sandbox.ToolFailed, "the MCP server answered with an error"},
			{"timeout", sandbox.Timeout, "a deadline passed"},
			{"unavailable", sandbox.Unavailable, "a part that is needed does not answer now"},
			{"internal", sandbox.Internal, "the server's fault; its log has more under the request's id"},
		},
	},
	{
		is: "The events of an exec: started, any number of the others, exit.", prefix: "event", public: true, goType: "EventType",
		of: []clientConstant{
			{"started", sandbox.EventStarted, ""},
			{"stdout", sandbox.EventStdout, ""},
			{"stderr", sandbox.EventStderr, ""},
			{"approval_required", sandbox.EventApprovalRequired, "a call of it waits for a person"},
			{"approval_decided", sandbox.EventApprovalDecided, ""},
			{"exit", sandbox.EventExit, ""},
		},
	},
	{
		is: "The statuses of a result.", in: "go py", public: true,
		of: []clientConstant{
			{"status_running", sandbox.StatusRunning, ""},
			{"status_exited", sandbox.StatusExited, ""},
			{"status_timeout", sandbox.StatusTimeout, ""},
			{"status_oom", sandbox.StatusOOM, ""},
			{"status_killed", sandbox.StatusKilled, ""},
			{"status_lost", sandbox.StatusLost, ""},
		},
	},
	{
		is: "Defaults of a client's options.", public: true,
		of: []clientConstant{
			{"default_timeout", clientTimeout, "of a call that runs nothing"},
			{"default_silence", clientSilence, "of a stream that the server keeps alive"},
			{"default_wait", clientWait, "until a run begins, or a tool answers"},
		},
	},
	{in: "go ts", public: true, of: []clientConstant{{"default_patience", clientPatience, "how long a failed request is sent again"}}},
	{
		is: "Other events of streams.", prefix: "event",
		of: []clientConstant{
			{"error", eventstream.EventError, "the problem that ended the stream"},
			{"end", eventstream.EventEnd, "the stream has no more to say"},
			{"change", eventstream.EventChange, "of a file"},
		},
	},
	{
		prefix: "event", in: "py",
		of: []clientConstant{{"record", eventstream.EventRecord, "of the audit log"}},
	},
	{
		is: "Headers.", prefix: "header",
		of: []clientConstant{
			{"on_behalf_of", exchange.OnBehalfOfHeader, ""},
			{"request_id", exchange.RequestIDHeader, ""},
			{"idempotency_key", sandbox.KeyHeader, ""},
			{"idempotency_age", exchange.KeyAgeHeader, ""},
			{"last_event_id", "Last-Event-ID", ""},
			{"retry_after", "Retry-After", ""},
		},
	},
	{
		prefix: "header", in: "go ts",
		of: []clientConstant{{"left_out", files.LeftOutHeader, "how many files an archive does not have"}},
	},
	{
		is: "Conflicts over an Idempotency-Key.", prefix: "key",
		of: []clientConstant{
			{"running", sandbox.KeyRunning, "the first request goes on; its answer comes when it has ended"},
			{"done", sandbox.KeyDone, "it was done, and its answer was not kept"},
			{"unknown", sandbox.KeyUnknown, "it may have been done"},
		},
	},
	{
		is: "How a request is sent again, and a stream taken up again.",
		of: []clientConstant{
			{"first_pause", firstPause, "each pause is twice the one before"},
			{"longest_pause", longestPause, ""},
			{"pause_spread", pauseSpread, "a pause is longer by at most one part in so many"},
			{"max_retry_age", idempotency.MaxRetryAge, "that a server takes"},
			{"take_up_for", takeUpFor, "since the last event of an exec"},
			{"take_up_pause", takeUpPause, ""},
			{"max_answer", clientMaxAnswer, "bytes of an answer, or of an event"},
			{"sent_frame", execs.MaxFrame / 2, "bytes that a terminal is sent at once"},
			{"retried_statuses", []int{http.StatusRequestTimeout, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout}, "what may be done twice is sent again"},
			{"passing_statuses", []int{http.StatusRequestTimeout, http.StatusTooManyRequests}, "below 500, and the next try may succeed"},
		},
	},
	{
		in: "go ts",
		of: []clientConstant{
			{"audit_take_up_for", auditTakeUpFor, "since the last record"},
			{"code_of_status", map[int]sandbox.Kind{
				http.StatusUnauthorized: sandbox.Unauthorized, http.StatusForbidden: sandbox.Forbidden, http.StatusNotFound: sandbox.NotFound,
				http.StatusRequestTimeout: sandbox.Timeout, http.StatusTooManyRequests: sandbox.Unavailable, http.StatusBadGateway: sandbox.Unavailable,
				http.StatusServiceUnavailable: sandbox.Unavailable, http.StatusGatewayTimeout: sandbox.Timeout,
			}, "of an answer that a proxy made"},
		},
	},
	{in: "go py", of: []clientConstant{{"max_shown_frame", maxShownFrame, "bytes that a terminal shows at once"}}},
	{
		is: "Of calls.", in: "ts py",
		of: []clientConstant{
			{"transfer", clientTransfer, "an upload or download"},
			{"exec_timeout", sandbox.DefaultExecTimeout, "of a command that does not say"},
			{"max_exec_timeout", sandbox.MaxExecTimeout, ""},
			{"code_timeout", sandbox.DefaultCodeTimeout, "of code that does not say"},
			{"max_code_timeout", sandbox.MaxCodeTimeout, ""},
			{"read_lines", paths.DefaultReadLines, "of a file that is read"},
			{"workspace", sandbox.WorkspaceDir, ""},
		},
	},
	{in: "ts", of: []clientConstant{{"outputs", sandbox.OutputsDir, ""}}},
	{
		in: "py",
		of: []clientConstant{
			{"user_data", sandbox.UserDataDir, ""},
			{"default_retries", pausesWithin(clientPatience), "as many as the patience of the other clients allows"},
			{"version", clientsVersion, ""},
		},
	},
}

// pausesWithin is how many pauses fit in a time.
func pausesWithin(most time.Duration) int {
	n := 0
	for all, pause := time.Duration(0), firstPause; all+pause <= most; n++ {
		all, pause = all+pause, min(2*pause, longestPause)
	}
	return n
}
