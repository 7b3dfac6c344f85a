package rest

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
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
	Limit  *limitShown  `json:"limit,omitempty" doc:"With quota_exceeded: the limit of a tenant, user or key that was met"`
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
func (p *Problem) ContentType(string) string { return problemType }

// TransformSchema lists the codes in the document, from the one table there is.
func (p *Problem) TransformSchema(_ huma.Registry, schema *huma.Schema) *huma.Schema {
	codes := slices.Sorted(maps.Keys(answers))
	for _, k := range codes {
		schema.Properties["code"].Enum = append(schema.Properties["code"].Enum, string(k))
	}
	return schema
}

const problemType = "application/problem+json"

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

// internalDetail is all that a client learns of an internal error.
const internalDetail = "an internal error occurred; the server's log has it under this request id"

func newProblem(k sandbox.Kind, detail string, fields ...FieldError) *Problem {
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

// withStatus sends p with a status that says more than its kind's.
func (p *Problem) withStatus(status int) *Problem {
	p.Status = status
	return p
}

// problem turns the error of a use case into what the client sees, and logs here, once, what it
// does not see.
func (s *server) problem(ctx context.Context, err error) *Problem {
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
		return newProblem(sandbox.Timeout, "the request was cancelled").withStatus(499)
	case errors.Is(err, context.DeadlineExceeded):
		kind, detail = sandbox.Timeout, "the request took too long"
	case kind != sandbox.Internal:
		detail = string(kind)
	}
	p = newProblem(kind, detail, fields...)
	if kind == sandbox.QuotaExceeded && sandbox.HTTPStatus(err) == http.StatusTooManyRequests {
		p.Status, p.Title = http.StatusTooManyRequests, "Too many"
	}
	if e != nil && e.Limit != nil {
		p.limited(e.Limit)
	}
	p.NotStarted = errors.As(err, new(notStarted)) || e != nil && e.NotStarted
	s.logProblem(ctx, p, err)
	return p
}

// notStarted is an error from before anything of the request was done.
type notStarted struct{ error }

func (e notStarted) Unwrap() error { return e.error }

// logProblem logs what is our fault, and the hidden causes of what is the fault of something that
// we depend on.
func (s *server) logProblem(ctx context.Context, p *Problem, err error) {
	level := slog.LevelDebug
	switch sandbox.Kind(p.Code) {
	case sandbox.Internal:
		level = slog.LevelError
	case sandbox.Unavailable, sandbox.SandboxLost, sandbox.CapacityExceeded:
		level = slog.LevelWarn
	default:
		err = nil // it was told to the caller, and may quote what the caller sent
	}
	if !s.o.Log.Enabled(ctx, level) {
		return
	}
	x := exchangeOf(ctx)
	attrs := []slog.Attr{
		slog.String("request_id", x.id), slog.String("trace_id", x.caller.TraceID), slog.String("code", p.Code),
		slog.String("method", x.req.Method), slog.String("path", x.req.URL.Path),
	}
	if err != nil {
		attrs = append(attrs, slog.Any("error", err))
	}
	s.o.Log.LogAttrs(ctx, level, "request failed", attrs...)
}

// newHumaError is what huma makes its own errors with: requests that do not fit the schema.
func newHumaError(status int, msg string, errs ...error) huma.StatusError {
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
	p := newProblem(kind, msg, fields...)
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

// writeProblem sends p where huma does not: before a route's handler, or in place of a stream.
func writeProblem(w http.ResponseWriter, p *Problem) {
	for k, v := range p.header {
		w.Header()[k] = v
	}
	kind, doc := problemType, any(p)
	if shape := refusedBy(w); shape != nil {
		kind, doc = "application/json", shape(p.Status, p.Detail)
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(doc) // the client is gone when this fails
}

// refusedBy is how the adapter whose request w answers says that something is refused; nil when it is none.
func refusedBy(w http.ResponseWriter) func(status int, detail string) any {
	for {
		if x, ok := w.(*exchange); ok {
			return x.refused
		}
		inner, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return nil
		}
		w = inner.Unwrap()
	}
}
