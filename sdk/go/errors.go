package skerry

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ErrorCode says what kind of error the server answered. It is itself an error, so that
// errors.Is(err, skerry.NotFound) works on what any method returns.
type ErrorCode string

func (c ErrorCode) Error() string { return string(c) }

// Error is an error that the server answered.
type Error struct {
	Status     int          `json:"status"`
	Code       ErrorCode    `json:"code"`
	Title      string       `json:"title"`
	Detail     string       `json:"detail"`
	Fields     []FieldError `json:"errors"`
	Limit      *Limit       `json:"limit"`
	NotStarted bool         `json:"not_started"` // nothing of the request was done

	RequestID  string        `json:"-"`
	RetryAfter time.Duration `json:"-"` // 0: the server did not say
}

// Error is the detail, what is wrong with which field, and the code.
func (e *Error) Error() string {
	text := e.Detail
	for _, f := range e.Fields {
		if strings.Contains(e.Detail, f.Detail) { // it is said already
			continue
		}
		text += fmt.Sprintf("\n  %s: %s", f.Field, f.Detail)
	}
	return fmt.Sprintf("%s (%s)", text, e.Code)
}

// ErrPreconditionFailed says that a file is not what a Condition wants. It is a Conflict, too.
var ErrPreconditionFailed = errors.New("the file is not what the condition wants")

// Is reports whether target is the code of e, or ErrPreconditionFailed.
func (e *Error) Is(target error) bool {
	if target == ErrPreconditionFailed {
		return e.Status == http.StatusPreconditionFailed
	}
	c, ok := target.(ErrorCode)
	return ok && c == e.Code
}

// LostError says that the connection was lost and what was asked for is not known to have ended. It
// is not sent again, because it may have been done.
type LostError struct {
	// ExecID of what may still run; "" when the server had not yet said it. Thread.Execs lists all.
	ExecID string
	Err    error
}

func (e *LostError) Error() string {
	if e.ExecID == "" {
		return "the connection was lost before the server answered; the request may have been done: " + e.Err.Error()
	}
	return "the connection was lost; exec " + e.ExecID + " may still run: " + e.Err.Error()
}

// Unwrap returns how the connection was lost.
func (e *LostError) Unwrap() error { return e.Err }

// maxProblem bounds what is read of an answer that is an error.
const maxProblem = 1 << 20

// ErrorFrom makes the *Error of an answer with a status of 400 or more. It reads the body and does not
// close it.
func ErrorFrom(res *http.Response) error {
	e := &Error{}
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxProblem))
	if err != nil || json.Unmarshal(raw, e) != nil || e.Code == "" {
		e = &Error{Code: codeOf(res.StatusCode), Title: http.StatusText(res.StatusCode), Detail: "the server answered " + res.Status}
	}
	e.Status, e.RequestID = res.StatusCode, res.Header.Get(headerRequestID)
	if s, err := strconv.Atoi(res.Header.Get(headerRetryAfter)); err == nil && s > 0 {
		e.RetryAfter = time.Duration(s) * time.Second
	}
	return e
}

// codeOf is the code of an answer that is not the server's own, but of a proxy before it, say.
func codeOf(status int) ErrorCode {
	if code, ok := codeOfStatus[status]; ok {
		return code
	}
	if status >= http.StatusInternalServerError {
		return Internal
	}
	return Invalid
}
