package rest

import (
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/skerry-sandbox/skerry/internal/observe/tracing"
)

// traceHeader tells the client in which trace its request is.
const traceHeader = "X-Trace-Id"

// begin begins the span of a request, in the trace that its client names (W3C traceparent). What needs no caller, such as
// a scrape, has none.
func (x *exchange) begin(s *server, c *gin.Context) {
	x.route = c.FullPath()
	if s.o.Tracer == nil {
		return
	}
	ctx, span := s.o.Tracer.Start(s.o.Tracer.From(c.Request.Context(), c.Request.Header), c.Request.Method+" "+x.route, tracing.Server)
	span.Set("http.request.method", c.Request.Method)
	span.Set("http.route", x.route)
	span.Set("skerry.request.id", x.id)
	span.Set("skerry.thread.id", c.Param("thread"))
	x.span = span
	x.caller.TraceID = tracing.LinkOf(ctx).TraceID()
	x.Header().Set(traceHeader, x.caller.TraceID)
	c.Request = c.Request.WithContext(ctx)
	x.req = c.Request
}

// observe ends the span of a request and counts it.
func (x *exchange) observe(s *server, start time.Time) {
	if x.route == "" {
		return
	}
	status := x.status
	if status == 0 { // the connection was taken over, or the handler wrote nothing
		status = http.StatusOK
	}
	if s.o.Observe != nil {
		s.o.Observe(x.route, x.req.Method, status, time.Since(start))
	}
	if x.span == nil {
		return
	}
	x.span.SetInt("http.response.status_code", int64(status))
	x.span.Set("skerry.tenant", x.caller.Tenant)
	x.span.Set("skerry.key.id", x.caller.KeyID)
	if status >= http.StatusInternalServerError {
		x.span.FailedAs(strconv.Itoa(status))
	}
	x.span.End()
}
