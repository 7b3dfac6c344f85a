package tracing

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func inMemory(t *testing.T) (*Tracer, *tracetest.InMemoryExporter) {
	t.Helper()
	spans := tracetest.NewInMemoryExporter()
	tr, err := Open(t.Context(), Options{Exporter: spans, Service: "skerry", Ratio: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.Close() })
	return tr, spans
}

// TestReserved: what works below a span that is made later has it as its parent.
func TestReserved(t *testing.T) {
	tr, spans := inMemory(t)
	ctx, outer := tr.Start(context.Background(), "outer", Internal)
	later := tr.Reserve(ctx)
	_, inner := tr.Start(later.Into(context.Background()), "inner", Client)
	inner.Failed(sandbox.Errorf(sandbox.Timeout, "contents that nobody may see"))
	inner.End()
	from := time.Now().Add(-time.Minute)
	tr.Record(ctx, later, "later", from, from.Add(time.Second), func(s *Span) { s.SetInt("n", 1) })
	outer.End()
	got := map[string]tracetest.SpanStub{}
	for _, s := range spans.GetSpans() {
		got[s.Name] = s
		if s.SpanContext.TraceID().String() != LinkOf(ctx).TraceID() {
			t.Errorf("%s is of another trace", s.Name)
		}
	}
	if len(got) != 3 || got["inner"].Parent.SpanID() != got["later"].SpanContext.SpanID() || got["later"].Parent.SpanID() != got["outer"].SpanContext.SpanID() {
		t.Errorf("%+v", got)
	}
	if d := got["later"].EndTime.Sub(got["later"].StartTime); d != time.Second {
		t.Error(d)
	}
	if s := got["inner"].Status.Description; s != "timeout" {
		t.Errorf("status %q", s)
	}
}

// TestW3C: a trace that came in goes out, in headers and in _meta; a trace that its caller does not record is not recorded.
func TestW3C(t *testing.T) {
	tr, spans := inMemory(t)
	const trace = "0af7651916cd43dd8448eb211c80319c"
	in := http.Header{"Traceparent": {"00-" + trace + "-b7ad6b7169203331-01"}, "Tracestate": {"a=b"}}
	ctx, s := tr.Start(tr.From(context.Background(), in), "x", Server)
	out, meta := http.Header{}, map[string]any{}
	tr.To(ctx, out)
	tr.Meta(ctx, meta)
	s.End()
	id := spans.GetSpans()[0].SpanContext.SpanID().String()
	want := "00-" + trace + "-" + id + "-01"
	if out.Get("traceparent") != want || meta["traceparent"] != want || meta["tracestate"] != "a=b" || LinkOf(ctx).TraceID() != trace {
		t.Errorf("%v %v", out, meta)
	}
	in.Set("Traceparent", "00-"+trace+"-b7ad6b7169203331-00")
	_, s = tr.Start(tr.From(context.Background(), in), "y", Server)
	s.End()
	if n := len(spans.GetSpans()); n != 1 {
		t.Errorf("%d spans", n)
	}
}

// TestCollector: spans reach a collector by OTLP, with the headers; a collector that is away costs a line in the log.
func TestCollector(t *testing.T) {
	var mu sync.Mutex
	var body []byte
	var key, path string
	broken := false
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if broken {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		body, _ = io.ReadAll(r.Body)
		key, path = r.Header.Get("X-Key"), r.URL.Path
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	defer srv.Close()
	var log bytes.Buffer
	open := func() *Tracer {
		tr, err := Open(t.Context(), Options{Endpoint: srv.URL, Headers: map[string]string{"X-Key": "k"}, Service: "skerry", Ratio: 1, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		_, s := tr.Start(context.Background(), "a span", Internal)
		s.End()
		return tr
	}
	if err := open().Close(); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	if !bytes.Contains(body, []byte("a span")) || key != "k" || path != "/v1/traces" {
		t.Errorf("%q %q %q", body, key, path)
	}
	broken = true
	mu.Unlock()
	if err := open().Close(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "traces are not delivered") {
		t.Errorf("log: %s", &log)
	}
	srv.CloseClientConnections()
	http.DefaultClient.CloseIdleConnections()
}

func TestOff(t *testing.T) {
	tr, err := Open(t.Context(), Options{})
	if tr != nil || err != nil {
		t.Fatal(tr, err)
	}
	if _, err := Open(t.Context(), Options{Endpoint: "collector:4318"}); err == nil {
		t.Error("an endpoint without a scheme")
	}
	allocs := testing.AllocsPerRun(100, func() { work(tr, t.Context()) })
	if allocs != 0 {
		t.Errorf("%v allocations when it is off", allocs)
	}
	if tr.Close() != nil {
		t.Error("close")
	}
}

func work(tr *Tracer, ctx context.Context) {
	ctx, s := tr.Start(ctx, "x", Internal)
	s.Set("a", "b")
	l := tr.Reserve(ctx)
	tr.Record(ctx, l, "y", time.Time{}, time.Time{}, nil)
	s.End()
}

func BenchmarkOff(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		work(nil, b.Context())
	}
}
