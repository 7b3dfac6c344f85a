package exchange

import (
	"net/http"
	"strconv"
	"time"

	"github.com/skerry-sandbox/skerry/internal/observe/tracing"
)

// traceHeader tells the client in which trace its request is.
const traceHeader = "X-Trace-Id"

// Begin begins the span of a request, in the trace that its client names (W3C traceparent). It returns the
// request in its span. What needs no caller, such as a scrape, has none. route is as registered; tracer
// may be nil.
func (x *Exchange) Begin(tracer *tracing.Tracer, r *http.Request, route, thread string) *http.Request {
	x.route = route
	if tracer == nil {
		return r
	}
	ctx, span := tracer.Start(tracer.From(r.Context(), r.Header), r.Method+" "+route, tracing.Server)
	span.Set("http.request.method", r.Method)
	span.Set("http.route", route)
	span.Set("skerry.request.id", x.ID)
	span.Set("skerry.thread.id", thread)
	x.span = span
	x.Caller.TraceID = tracing.LinkOf(ctx).TraceID()
	x.Header().Set(traceHeader, x.Caller.TraceID)
	x.Request = r.WithContext(ctx)
	return x.Request
}

// observe ends the span of a request and counts it.
func (x *Exchange) observe(s Server, start time.Time) {
	if x.route == "" {
		return
	}
	status := x.status
	if status == 0 { // the connection was taken over, or the handler wrote nothing
		status = http.StatusOK
	}
	if s.Observe != nil {
		s.Observe(x.route, x.Request.Method, status, time.Since(start))
	}
	if x.span == nil {
		return
	}
	x.span.SetInt("http.response.status_code", int64(status))
	x.span.Set("skerry.tenant", x.Caller.Tenant)
	x.span.Set("skerry.key.id", x.Caller.KeyID)
	if status >= http.StatusInternalServerError {
		x.span.FailedAs(strconv.Itoa(status))
	}
	x.span.End()
}
