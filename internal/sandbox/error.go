package sandbox

import (
	"errors"
	"fmt"
	"time"
)

// Kind is the stable code of an error, as the API publishes it. A Kind is itself an error, so that
// errors.Is(err, sandbox.NotFound) works on any error made by Errorf.
type Kind string

// The kinds of error. HTTPStatus has the status of each.
const (
	NotFound         Kind = "not_found"         // no such thing, or it belongs to another user
	Invalid          Kind = "invalid"           // the request cannot be right, whatever the state
	Conflict         Kind = "conflict"          // right in another state
	Forbidden        Kind = "forbidden"         // the caller may not
	Unauthorized     Kind = "unauthorized"      // no credential, or a bad one
	QuotaExceeded    Kind = "quota_exceeded"    // a limit of the thread, user or tenant
	CapacityExceeded Kind = "capacity_exceeded" // a limit of this server
	NotSupported     Kind = "not_supported"     // this driver, template or version cannot
	SandboxLost      Kind = "sandbox_lost"      // the sandbox died under the call
	ToolFailed       Kind = "tool_failed"       // the tool or its MCP server answered with an error
	Timeout          Kind = "timeout"           // a deadline passed
	Unavailable      Kind = "unavailable"       // a part that is needed does not answer now
	Internal         Kind = "internal"          // our fault; the detail stays in the log
)

func (k Kind) Error() string { return string(k) }

// Field names one wrong field of a request, as a JSON path without a leading dot ("limits.pids").
type Field struct {
	Name   string
	Detail string
}

// Error is an error with a Kind. Detail is written for the caller: it never holds a host path, a
// message of a driver, or a secret. Err is for the log and is never shown.
type Error struct {
	Kind   Kind
	Detail string
	Fields []Field
	Limit  *LimitHit // of QuotaExceeded: the limit of a tenant, user or key that was met
	// Calls marks a QuotaExceeded of calls rather than of data.
	Calls bool
	// NotStarted says that nothing of the request was done, so that it may be sent again as it is.
	// Without it, it may have been.
	NotStarted bool
	Err        error
}

// LimitHit is a limit of a tenant, user or key that a call met.
type LimitHit struct {
	Limit  string // its name, as the configuration has it
	Scope  string // tenant, user or key
	Who    string
	Max    int64
	Used   int64
	Wait   time.Duration // after so long a call like it may go on; 0: waiting is of no use, or unknown
	FreeAt time.Time     // the same
}

func (e *Error) Error() string {
	if e.Err != nil {
		return e.Detail + ": " + e.Err.Error()
	}
	return e.Detail
}

// Unwrap returns the hidden cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is the Kind of e.
func (e *Error) Is(target error) bool {
	k, ok := target.(Kind)
	return ok && k == e.Kind
}

// RetryAfter is Wait in whole seconds, rounded up.
func (h *LimitHit) RetryAfter() int { return int((h.Wait + time.Second - 1) / time.Second) }

// DetailOf returns what the caller is told of an error, "" when it is not an Error.
func DetailOf(err error) string {
	var known *Error
	if errors.As(err, &known) {
		return known.Detail
	}
	return ""
}

// TextOf is DetailOf, and the text of an error that is not an Error.
func TextOf(err error) string {
	var known *Error
	if errors.As(err, &known) {
		return known.Detail
	}
	return err.Error()
}

// Errorf makes an error of a kind. The text is shown to the caller. With %w the wrapped error is
// part of that text, so wrap only errors that were written for callers; for others use Wrap.
func Errorf(k Kind, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return &Error{Kind: k, Detail: err.Error(), Err: nil}
}

// KeyHeader is the header whose key makes a repeated request known, and the field of a conflict over it.
const KeyHeader = "Idempotency-Key"

// What a conflict over an Idempotency-Key is about. They are part of the API: clients go by them.
const (
	KeyRunning = "running" // the first request still runs: ask again
	KeyDone    = "done"    // it was done, and its answer is not kept
	KeyUnknown = "unknown" // it may have been done
)

// KeyConflict is why a request is not done with an Idempotency-Key that was used, or may have been, before.
func KeyConflict(what, detail string) error {
	return &Error{Kind: Conflict, Detail: detail, Fields: []Field{{Name: KeyHeader, Detail: what}}}
}

// Wrap makes an error of a kind whose text is shown to the caller and whose cause is not.
func Wrap(k Kind, cause error, format string, args ...any) error {
	return &Error{Kind: k, Detail: fmt.Sprintf(format, args...), Err: cause}
}

// NotStarted returns err as one from before anything of the request was done. An error without a Kind stays as it is.
func NotStarted(err error) error {
	var known *Error
	if !errors.As(err, &known) {
		return err
	}
	marked := *known
	marked.NotStarted = true
	return &marked
}

// IsNotStarted reports whether err says that nothing of the request was done.
func IsNotStarted(err error) bool {
	var known *Error
	return errors.As(err, &known) && known.NotStarted
}

// Retell returns an error with another text. It is of the kind of err, and is NotStarted when err is.
func Retell(err error, format string, args ...any) error {
	return &Error{Kind: KindOf(err), Detail: fmt.Sprintf(format, args...), NotStarted: IsNotStarted(err)}
}

// KindOf returns the kind of err: Internal for an error without one, "" for nil.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	var k Kind
	if errors.As(err, &k) {
		return k
	}
	return Internal
}
