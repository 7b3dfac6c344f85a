package peer

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skerry-sandbox/skerry/internal/ownership/replica"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var main = sandbox.Thread{Owner: sandbox.Owner{Tenant: "t", User: "u"}, ID: "main"}

func join(t *testing.T, dir string) *Peers {
	t.Helper()
	r, err := replica.Join(dir)
	if err != nil {
		t.Fatal(err)
	}
	p := New(r, nil)
	t.Cleanup(func() { _ = p.Close(); _ = r.Leave() })
	return p
}

// self is a server that knows exec "x" of main.
type self struct{ draining atomic.Bool }

func (*self) HasExec(t sandbox.Thread, exec string) bool { return t == main && exec == "x" }
func (s *self) Draining() bool                           { return s.draining.Load() }

// serve answers for a replica, which knows exec "x" of main, until stop.
func serve(t *testing.T, p *Peers) (stop func()) { return serveAs(t, p, &self{}) }

func serveAs(t *testing.T, p *Peers, me *self) (stop func()) {
	t.Helper()
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "api "+r.URL.Path) })
	end, err := p.Serve(t.Context(), api, me, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := end(ctx); err != nil {
			t.Error(err)
		}
	}
}

func TestPeers(t *testing.T) {
	dir := t.TempDir()
	a, b, c := join(t, dir), join(t, dir), join(t, dir)
	if a.Answers(t.Context(), b.ID()) {
		t.Error("one that does not serve answers")
	}
	if id, sure := a.FindExec(t.Context(), main, "x", ""); id != "" || sure {
		t.Errorf("found at %q, sure %v, although nobody answers", id, sure)
	}
	me := &self{}
	b.Handle(Prefix+"part", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "of another") }))
	b.Handle(Prefix+"long", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 2*maxAnswer)) }))
	stopB := serveAs(t, b, me)
	stopC := serve(t, c)
	defer stopC()
	if !a.Answers(t.Context(), b.ID()) || a.Answers(t.Context(), "r0") {
		t.Error("who answers is not known")
	}
	for _, first := range []string{"", b.ID(), c.ID(), "r0"} {
		want := first
		if first == "" || first == "r0" {
			want = b.ID()
		}
		if id, sure := a.FindExec(t.Context(), main, "x", first); id != want || !sure {
			t.Errorf("asked %q first: found at %q, sure %v", first, id, sure)
		}
	}
	if id, sure := a.FindExec(t.Context(), main, "y", b.ID()); id != "" || !sure {
		t.Errorf("an unknown exec is found at %q, sure %v", id, sure)
	}
	for path, want := range map[string]string{"/api//x": "api /api//x", Prefix + "other": "404 page not found\n"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+b.ID()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := a.Transport().RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || string(text) != want {
			t.Errorf("%s: %q, %v", path, text, err)
		}
	}
	if text, err := a.Read(t.Context(), b.ID(), "part"); string(text) != "of another" || err != nil {
		t.Errorf("read %q, %v", text, err)
	}
	if text, err := a.Read(t.Context(), c.ID(), "part"); err == nil {
		t.Errorf("one without the part says %q", text)
	}
	if text, err := a.Read(t.Context(), b.ID(), "long"); len(text) != maxAnswer || err != nil {
		t.Errorf("read %d bytes, %v", len(text), err)
	}
	if !a.TakesWork(t.Context(), b.ID()) {
		t.Error("one that serves takes no work")
	}
	me.draining.Store(true)
	if a.TakesWork(t.Context(), b.ID()) || !a.Answers(t.Context(), b.ID()) {
		t.Error("one that is stopping takes work, or does not answer")
	}
	stopB()
	if a.Answers(t.Context(), b.ID()) {
		t.Error("one that stopped answers")
	}
}
