package sandbox

import (
	"errors"
	"fmt"
	"net/http"
)

// statuses has the HTTP status of each kind. A lost sandbox is a 503: the next call starts a new one, so the
// client may try again.
var statuses = map[Kind]int{
	NotFound:         http.StatusNotFound,
	Invalid:          http.StatusBadRequest,
	Conflict:         http.StatusConflict,
	Forbidden:        http.StatusForbidden,
	Unauthorized:     http.StatusUnauthorized,
	QuotaExceeded:    http.StatusRequestEntityTooLarge,
	CapacityExceeded: http.StatusServiceUnavailable,
	NotSupported:     http.StatusNotImplemented,
	SandboxLost:      http.StatusServiceUnavailable,
	ToolFailed:       http.StatusBadGateway,
	Timeout:          http.StatusGatewayTimeout,
	Unavailable:      http.StatusServiceUnavailable,
	Internal:         http.StatusInternalServerError,
}

// HTTPStatus returns the status of a kind. A quota of calls has another one: see the function HTTPStatus.
func (k Kind) HTTPStatus() int {
	if status, ok := statuses[k]; ok {
		return status
	}
	return http.StatusInternalServerError
}

// HTTPStatus returns the status of err in an answer over HTTP. The API, the bridge and the adapters use it, so
// that an error has the same status on each way. QuotaExceeded is 429 for too many calls, else 413.
func HTTPStatus(err error) int {
	kind := KindOf(err)
	var e *Error
	if kind == QuotaExceeded && errors.As(err, &e) && e.tooManyCalls() {
		return http.StatusTooManyRequests
	}
	return kind.HTTPStatus()
}

// diskLimit is the limit of files: waiting frees no space.
const diskLimit = "disk_mib"

func (e *Error) tooManyCalls() bool {
	return e.Calls || e.Limit != nil && e.Limit.Limit != diskLimit
}

// TooManyCalls makes a QuotaExceeded of calls: too many in a time, at once or in total.
func TooManyCalls(format string, args ...any) error {
	return &Error{Kind: QuotaExceeded, Detail: fmt.Sprintf(format, args...), Calls: true}
}
