// Package tracing makes OpenTelemetry spans of what the server does and sends them to a collector, by OTLP over HTTP.
// No other package knows the SDK. A span has names, ids, sizes and outcomes; never commands, code, paths, arguments or results.
//
// A nil *Tracer is off: Start returns the context that it got, and a nil *Span, whose methods do nothing. That
// costs a few nanoseconds and no memory.
package tracing

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// scopeName names the instrumentation.
const scopeName = "github.com/skerry-sandbox/skerry"

const (
	// exportTime bounds one delivery to the collector, closeTime the last one.
	exportTime = 10 * time.Second
	closeTime  = 5 * time.Second
	// maxQueued bounds the spans that wait for a collector that does not answer; what is more is dropped.
	maxQueued = 8192
)

// Options of Open.
type Options struct {
	// Endpoint is the collector's address, http(s)://host:port[/path]; without a path /v1/traces. "" = off.
	Endpoint string
	// Headers go with each delivery, such as a credential.
	Headers map[string]string
	// Ratio is how many of the traces that begin here are recorded, 0 to 1. A trace that a caller began is recorded when
	// the caller says so.
	Ratio float64
	// Service, Version and Instance name this process.
	Service, Version, Instance string
	Log                        *slog.Logger

	// Exporter replaces the collector in tests.
	Exporter sdktrace.SpanExporter
}

// Tracer makes spans. Its methods may be called concurrently, and on nil.
type Tracer struct {
	tracer   trace.Tracer
	provider *sdktrace.TracerProvider
}

// Open makes a Tracer, nil when there is no endpoint. It does not wait for the collector, and logs when that is away.
func Open(ctx context.Context, o Options) (*Tracer, error) {
	exporter := o.Exporter
	if exporter == nil {
		if o.Endpoint == "" {
			return nil, nil
		}
		var err error
		if exporter, err = collector(ctx, o); err != nil {
			return nil, fmt.Errorf("tracing: %w", err)
		}
	}
	about := resource.NewSchemaless(
		attribute.String("service.name", o.Service), attribute.String("service.version", o.Version), attribute.String("service.instance.id", o.Instance))
	if o.Log != nil {
		exporter = &noted{SpanExporter: exporter, log: o.Log}
	}
	deliver := sdktrace.WithSyncer(exporter)
	if o.Exporter == nil {
		deliver = sdktrace.WithBatcher(exporter, sdktrace.WithMaxQueueSize(maxQueued), sdktrace.WithExportTimeout(exportTime))
	}
	p := sdktrace.NewTracerProvider(deliver, sdktrace.WithResource(about), sdktrace.WithIDGenerator(ids{}),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(o.Ratio))))
	return &Tracer{tracer: p.Tracer(scopeName, trace.WithInstrumentationVersion(o.Version)), provider: p}, nil
}

func collector(ctx context.Context, o Options) (sdktrace.SpanExporter, error) {
	u, err := url.Parse(o.Endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("the endpoint is not http(s)://host:port")
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces"
	}
	options := []otlptracehttp.Option{otlptracehttp.WithEndpointURL(u.String()), otlptracehttp.WithTimeout(exportTime)}
	if len(o.Headers) > 0 { // else the SDK's own variables count
		options = append(options, otlptracehttp.WithHeaders(o.Headers))
	}
	return otlptracehttp.New(ctx, options...)
}

// noted logs when deliveries begin to fail, and when they work again.
type noted struct {
	sdktrace.SpanExporter
	log     *slog.Logger
	failing bool // deliveries follow one another
}

// ExportSpans implements sdktrace.SpanExporter.
func (n *noted) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := n.SpanExporter.ExportSpans(ctx, spans)
	if bad := err != nil; bad != n.failing {
		if n.failing = bad; bad {
			n.log.Warn("traces are not delivered; spans are dropped until they are", "error", err)
		} else {
			n.log.Info("traces are delivered again")
		}
	}
	return nil // the SDK would write it to standard error
}

// Close delivers what is left, and ends the Tracer.
func (t *Tracer) Close() error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	return t.provider.Shutdown(ctx)
}

// Kind says on which side of a call a span is.
type Kind = trace.SpanKind

// The kinds there are here.
const (
	Internal = trace.SpanKindInternal
	Server   = trace.SpanKindServer
	Client   = trace.SpanKindClient
)

// Span is one thing that takes time. Its methods do nothing on nil.
type Span struct{ span trace.Span }

// Start begins a span, below the one in ctx. End ends it.
func (t *Tracer) Start(ctx context.Context, name string, kind Kind) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	ctx, s := t.tracer.Start(ctx, name, trace.WithSpanKind(kind))
	return ctx, &Span{s}
}

// Set adds an attribute, unless its value is "".
func (s *Span) Set(key, value string) {
	if s != nil && value != "" {
		s.span.SetAttributes(attribute.String(key, value))
	}
}

// SetInt adds an attribute.
func (s *Span) SetInt(key string, value int64) {
	if s != nil {
		s.span.SetAttributes(attribute.Int64(key, value))
	}
}

// Name renames the span, when it is known only later.
func (s *Span) Name(name string) {
	if s != nil {
		s.span.SetName(name)
	}
}

// Failed marks the span as failed, by the kind of an error: its text may hold contents.
func (s *Span) Failed(err error) {
	if s == nil || err == nil {
		return
	}
	s.FailedAs(string(sandbox.KindOf(err)))
}

// FailedAs marks the span as failed, for a reason of a small set.
func (s *Span) FailedAs(why string) {
	if s != nil {
		s.span.SetAttributes(attribute.String("error.type", why))
		s.span.SetStatus(codes.Error, why)
	}
}

// End ends the span.
func (s *Span) End() {
	if s != nil {
		s.span.End()
	}
}

// Link is a span for those who work below it elsewhere: in another context, or before it is made. The zero Link is none.
type Link struct{ sc trace.SpanContext }

// LinkOf returns the span of a context.
func LinkOf(ctx context.Context) Link { return Link{trace.SpanContextFromContext(ctx)} }

// Into returns a context whose spans are below the link's.
func (l Link) Into(ctx context.Context) context.Context {
	if !l.sc.IsValid() {
		return ctx
	}
	return trace.ContextWithSpanContext(ctx, l.sc)
}

// TraceID is the W3C trace id, 32 hex digits, or "".
func (l Link) TraceID() string {
	if !l.sc.HasTraceID() {
		return ""
	}
	return l.sc.TraceID().String()
}

// reserved is the id that a span gets, in a context.
type reserved struct{}

// Reserve returns the link of a span that Record makes later, below the span of ctx, when it is known how long it took.
func (t *Tracer) Reserve(ctx context.Context) Link {
	parent := trace.SpanContextFromContext(ctx)
	if t == nil || !parent.IsValid() {
		return Link{}
	}
	var id trace.SpanID
	_, _ = rand.Read(id[:]) // never fails
	return Link{parent.WithSpanID(id)}
}

// Record makes the span of a link that Reserve returned for ctx. set may add to it.
func (t *Tracer) Record(ctx context.Context, l Link, name string, from, to time.Time, set func(*Span)) {
	if t == nil || !l.sc.IsValid() {
		return
	}
	if to.Before(from) {
		to = from
	}
	_, s := t.tracer.Start(context.WithValue(ctx, reserved{}, l.sc.SpanID()), name, trace.WithTimestamp(from))
	set(&Span{s})
	s.End(trace.WithTimestamp(to))
}

// ids makes random ids, except when one was reserved.
type ids struct{}

// NewIDs implements sdktrace.IDGenerator.
func (g ids) NewIDs(ctx context.Context) (t trace.TraceID, s trace.SpanID) {
	_, _ = rand.Read(t[:]) // never fails
	return t, g.NewSpanID(ctx, t)
}

// NewSpanID implements sdktrace.IDGenerator.
func (ids) NewSpanID(ctx context.Context, _ trace.TraceID) (s trace.SpanID) {
	if id, ok := ctx.Value(reserved{}).(trace.SpanID); ok {
		return id
	}
	_, _ = rand.Read(s[:]) // never fails
	return s
}

var w3c propagation.TraceContext

// From takes the trace of a request (W3C traceparent, tracestate) into a context.
func (t *Tracer) From(ctx context.Context, h http.Header) context.Context {
	if t == nil {
		return ctx
	}
	return w3c.Extract(ctx, propagation.HeaderCarrier(h))
}

// To puts the trace of a context into headers.
func (t *Tracer) To(ctx context.Context, h http.Header) {
	if t != nil {
		w3c.Inject(ctx, propagation.HeaderCarrier(h))
	}
}

// Meta puts the trace of a context into the _meta of an MCP request: traceparent and tracestate, as the protocol names them.
func (t *Tracer) Meta(ctx context.Context, meta map[string]any) {
	if t == nil {
		return
	}
	c := propagation.MapCarrier{}
	w3c.Inject(ctx, c)
	for k, v := range c {
		meta[k] = v
	}
}
