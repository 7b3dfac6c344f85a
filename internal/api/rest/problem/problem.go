package problem

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Problem is an error as the API answers it (RFC 9457). Code is one of the kinds of package sandbox
// and stays the same over time; the texts may change.
type Problem struct {
	Type   string       `json:"type" doc:"urn:skerry:error:<code>"`
	Title  string       `json:"title"`
	Status int          `json:"status"`
	Detail string       `json:"detail"`
	Code   string       `json:"code" doc:"Stable over time, unlike the texts"`
	Errors []FieldError `json:"errors,omitempty" doc:"What is wrong with which field of the request"`
	Limit  *Limit       `json:"limit,omitempty" doc:"With quota_exceeded: the limit of a tenant, user or key that was met"`
	// NotStarted lets a client repeat what it must not do twice.
	NotStarted bool `json:"not_started,omitempty" doc:"Nothing of the request was done: it may be sent again as it is. When absent from a 5xx, it may have been done"`

	header http.Header
}

// FieldError says what is wrong with one field of a request: "env.PATH", "limit".
type FieldError struct {
	Field  string `json:"field"`
	Detail string `json:"detail"`
}

// Error returns the detail.
func (p *Problem) Error() string { return p.Detail }

// GetStatus, GetHeaders and ContentType tell huma how to send p.
func (p *Problem) GetStatus() int { return p.Status }

// GetHeaders returns the headers that belong to the error, such as Retry-After.
func (p *Problem) GetHeaders() http.Header { return p.header }

// ContentType is that of RFC 9457, whatever was asked for.
func (p *Problem) ContentType(string) string { return ContentType }

// TransformSchema lists the codes in the document, from the one table there is.
func (p *Problem) TransformSchema(_ huma.Registry, schema *huma.Schema) *huma.Schema {
	for _, k := range Kinds() {
		schema.Properties["code"].Enum = append(schema.Properties["code"].Enum, string(k))
	}
	return schema
}

// ContentType is the media type of a problem document.
const ContentType = "application/problem+json"

// answer is how a kind of error is sent, beside its status.
type answer struct {
	title string
	retry string // Retry-After in seconds; "" = none
}

var answers = map[sandbox.Kind]answer{
	sandbox.NotFound:         {title: "Not found"},
	sandbox.Invalid:          {title: "Invalid request"},
	sandbox.Conflict:         {title: "Conflict"},
	sandbox.Forbidden:        {title: "Forbidden"},
	sandbox.Unauthorized:     {title: "Unauthorized"},
	sandbox.QuotaExceeded:    {title: "Quota exceeded"},
	sandbox.CapacityExceeded: {title: "Capacity exceeded", retry: "5"},
	sandbox.NotSupported:     {title: "Not supported"},
	sandbox.SandboxLost:      {title: "Sandbox lost", retry: "1"},
	sandbox.ToolFailed:       {title: "Tool failed"},
	sandbox.Timeout:          {title: "Timeout"},
	sandbox.Unavailable:      {title: "Unavailable", retry: "5"},
	sandbox.Internal:         {title: "Internal error"},
}

// Kinds returns the kinds of errors that there are, in order.
func Kinds() []sandbox.Kind { return slices.Sorted(maps.Keys(answers)) }

// internalDetail is all that a client learns of an internal error.
const internalDetail = "an internal error occurred; the server's log has it under this request id"

// New returns the problem of a kind of error.
func New(k sandbox.Kind, detail string, fields ...FieldError) *Problem {
	a, ok := answers[k]
	if !ok {
		k, a = sandbox.Internal, answers[sandbox.Internal]
	}
	if k == sandbox.Internal {
		detail = internalDetail
	}
	p := &Problem{Type: "urn:skerry:error:" + string(k), Title: a.title, Status: k.HTTPStatus(), Detail: detail, Code: string(k), Errors: fields}
	if a.retry != "" {
		p.header = http.Header{"Retry-After": {a.retry}}
	}
	if k == sandbox.Unauthorized {
		p.header = http.Header{"Www-Authenticate": {`Bearer realm="skerry"`}}
	}
	return p
}

// RetryAfter sends p with the header Retry-After.
func (p *Problem) RetryAfter(seconds int) {
	p.header = http.Header{"Retry-After": {strconv.Itoa(seconds)}}
}

// WithStatus sends p with a status that says more than its kind's.
func (p *Problem) WithStatus(status int) *Problem {
	p.Status = status
	return p
}

// StatusCancelled is the status of a request whose client went away. No client reads it.
const StatusCancelled = 499

// Of turns the error of a use case into what the client sees. ctx is that of the request.
func Of(ctx context.Context, err error) *Problem {
	var p *Problem
	if errors.As(err, &p) {
		return p
	}
	kind, detail := sandbox.KindOf(err), ""
	var fields []FieldError
	var e *sandbox.Error
	switch {
	case errors.As(err, &e):
		detail = e.Detail
		for _, f := range e.Fields {
			fields = append(fields, FieldError{Field: f.Name, Detail: f.Detail})
		}
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		// No client reads this answer: it went away.
		return New(sandbox.Timeout, "the request was cancelled").WithStatus(StatusCancelled)
	case errors.Is(err, context.DeadlineExceeded):
		kind, detail = sandbox.Timeout, "the request took too long"
	case kind != sandbox.Internal:
		detail = string(kind)
	}
	p = New(kind, detail, fields...)
	if kind == sandbox.QuotaExceeded && sandbox.HTTPStatus(err) == http.StatusTooManyRequests {
		p.Status, p.Title = http.StatusTooManyRequests, "Too many"
	}
	if e != nil && e.Limit != nil {
		p.limited(e.Limit)
	}
	p.NotStarted = errors.As(err, new(notStarted)) || e != nil && e.NotStarted
	return p
}

// NotStarted marks an error from before anything of the request was done.
func NotStarted(err error) error { return notStarted{err} }

type notStarted struct{ error }

func (e notStarted) Unwrap() error { return e.error }

// FromHuma is what huma makes its own errors with: requests that do not fit the schema.
func FromHuma(status int, msg string, errs ...error) huma.StatusError {
	kind := sandbox.Invalid
	switch {
	case status == 0: // huma asks what an error looks like
		return &Problem{}
	case status == http.StatusRequestTimeout:
		kind = sandbox.Timeout
	case status >= http.StatusInternalServerError:
		kind = sandbox.Internal
	}
	var fields []FieldError
	for _, err := range errs[:min(len(errs), maxFieldErrors)] {
		var d huma.ErrorDetailer
		switch {
		case err == nil:
		case errors.As(err, &d):
			fields = append(fields, fieldError(d.ErrorDetail()))
		default:
			fields = append(fields, FieldError{Detail: brief(err.Error())})
		}
	}
	if kind == sandbox.Internal {
		fields = nil
	}
	if kind == sandbox.Invalid && len(fields) > 0 {
		msg = "the request is not valid: " + strings.TrimPrefix(fields[0].Field+": "+fields[0].Detail, ": ")
	}
	p := New(kind, msg, fields...)
	switch status {
	case http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusRequestTimeout, http.StatusNotAcceptable:
		p.Status = status
	}
	return p
}

// fieldError drops where the field was ("body.", "query.") and the value that huma would send back.
func fieldError(d *huma.ErrorDetail) FieldError {
	field := d.Location
	for _, prefix := range []string{"body.", "query.", "path.", "header."} {
		field = strings.TrimPrefix(field, prefix)
	}
	return FieldError{Field: brief(field), Detail: brief(d.Message)}
}

// An error says what is wrong in so many words. Names of fields come from the request: a caller that
// sends 8 MiB of them is not sent them back.
const (
	maxFieldErrors = 20
	maxFieldText   = 300 // bytes
)

// brief cuts a text of an error.
func brief(text string) string {
	if len(text) <= maxFieldText {
		return text
	}
	return strings.ToValidUTF8(text[:maxFieldText], "") + "…"
}

// Write sends p where huma does not: before a route's handler, or in place of a stream.
func Write(w http.ResponseWriter, p *Problem) {
	for k, v := range p.header {
		w.Header()[k] = v
	}
	kind, doc := ContentType, any(p)
	if shape := shapeOf(w); shape != nil {
		kind, doc = "application/json", shape(p.Status, p.Detail)
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(doc) // the client is gone when this fails
}

// A Shaper is a response writer of an API whose errors are JSON of another shape.
type Shaper interface {
	// ErrorShape returns what makes that JSON; nil: errors are problem documents.
	ErrorShape() func(status int, detail string) any
}

// shapeOf finds the Shaper below w.
func shapeOf(w http.ResponseWriter) func(status int, detail string) any {
	for {
		if x, ok := w.(Shaper); ok {
			return x.ErrorShape()
		}
		inner, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return nil
		}
		w = inner.Unwrap()
	}
}
