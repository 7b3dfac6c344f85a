package rest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/forward"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// street is a server that holds no thread: owner does, which is at another address.
type street struct {
	mu          sync.Mutex
	owner       string // "" = this one
	exec        string // the replica that knows the execs
	held        int
	deaf        bool // the owner does not answer
	dead        bool
	err         error
	addr        string // of the owner
	drainTarget string // who does what any server could: this one stops
	stops       context.Context
	moved       int // how often it says that a third one is the owner
	through     func(http.RoundTripper) http.RoundTripper
}

func (s *street) PassOn(context.Context) string { return s.drainTarget }

func (s *street) Stopping() context.Context {
	if s.stops == nil {
		return context.Background()
	}
	return s.stops
}

func (s *street) Owner(context.Context, sandbox.Caller, string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.moved > 0 {
		s.moved--
		return "third", nil
	}
	return s.owner, s.err
}

func (s *street) Hold(ctx context.Context, c sandbox.Caller, thread string) (string, func(), error) {
	owner, err := s.Owner(ctx, c, thread)
	if owner != "" || err != nil {
		return owner, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held++
	return "", func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.held--
	}, nil
}

func (s *street) ExecOwner(context.Context, sandbox.Caller, string, string) (string, error) {
	return s.exec, s.err
}

func (s *street) Alive(string) bool { return !s.dead }

func (s *street) Answers(context.Context, string) bool { return !s.deaf }

func (s *street) Transport() http.RoundTripper {
	direct := &http.Transport{DisableKeepAlives: true, ExpectContinueTimeout: 10 * time.Second, DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
		if s.addr == "" || !strings.HasPrefix(addr, "other:") {
			return nil, fmt.Errorf("dial %s", addr)
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", s.addr)
	}}
	if s.through != nil {
		return s.through(direct)
	}
	return direct
}

// neighbours are two servers: what the first is asked about a thread, the second answers.
func neighbours(t *testing.T, behind *world) (url string, s *street) {
	return neighboursWith(t, behind, &street{})
}

func neighboursWith(t *testing.T, behind *world, theirs *street) (url string, s *street) {
	t.Helper()
	owner := httptest.NewServer(exchange.FromPeer(handler(t, behind, func(o *Options) { o.Placement = theirs })))
	t.Cleanup(owner.Close)
	s = &street{owner: "other", exec: "other", addr: owner.Listener.Addr().String()}
	front := httptest.NewServer(handler(t, newWorld(t), func(o *Options) { o.Placement = s }))
	t.Cleanup(front.Close)
	return front.URL, s
}

func ask(t *testing.T, method, url, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		req.Header.Set(name, value)
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	return res, string(text)
}

// TestForward: the owner answers, with the credential, the id and the source of the request, and the answer's headers
// are there once.
func TestForward(t *testing.T) {
	t.Parallel()
	behind := newWorld(t)
	url, _ := neighbours(t, behind)
	res, text := ask(t, http.MethodPost, url+execURL, `{"command":"true"}`, "X-Request-Id: mine", "Skerry-Forwarded-Source: 9.9.9.9", "User-Agent: me")
	if res.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", res.StatusCode, text)
	}
	behind.mu.Lock()
	defer behind.mu.Unlock()
	if behind.runs != 1 || len(behind.callers) == 0 {
		t.Fatalf("the owner ran %d commands", behind.runs)
	}
	if c := behind.callers[0]; c.RequestID != "mine" || c.Source != "127.0.0.1" || c.UserAgent != "me" {
		t.Errorf("the owner saw %+v", c)
	}
	for _, name := range []string{"X-Request-Id", "X-Content-Type-Options", "Content-Type"} {
		if v := res.Header[name]; len(v) != 1 {
			t.Errorf("%s: %q", name, v)
		}
	}
	if id := res.Header.Get("X-Request-Id"); id != "mine" {
		t.Errorf("id %q", id)
	}
}

// TestForwardStream: events come through as they are.
func TestForwardStream(t *testing.T) {
	t.Parallel()
	behind := newWorld(t)
	url, _ := neighbours(t, behind)
	res, text := ask(t, http.MethodPost, url+execURL, `{"command":"true"}`, "Accept: text/event-stream")
	if res.StatusCode != http.StatusOK || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") || !strings.Contains(text, "event: exit") {
		t.Errorf("%d %v %s", res.StatusCode, res.Header, text)
	}
}

// late is a transport that reads a body a second time only when the answer is under way, and then says so.
type late struct {
	http.RoundTripper
	answered <-chan struct{}
	looked   chan struct{}
}

func (l late) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Body = &lateBody{ReadCloser: r.Body, late: l}
	return l.RoundTripper.RoundTrip(r)
}

type lateBody struct {
	io.ReadCloser
	late  late
	reads int
}

func (l *lateBody) Read(p []byte) (int, error) {
	if l.reads++; l.reads != 2 {
		return l.ReadCloser.Read(p)
	}
	<-l.late.answered
	time.AfterFunc(10*time.Millisecond, func() { close(l.late.looked) }) // it may wait until the answer ends
	return l.ReadCloser.Read(p)
}

// TestForwardLateRead: an answer is whole when its owner is faster than whoever reads the request's body. The owner has
// read it, and only its end is looked for, or the owner wants no more of it.
func TestForwardLateRead(t *testing.T) {
	t.Parallel()
	const pieces = 50
	for name, size := range map[string]int{"end": 10, "rest": 200 << 10} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answered, looked := make(chan struct{}), make(chan struct{})
			owner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				control := http.NewResponseController(w)
				_ = control.EnableFullDuplex() // it answers without the rest of the body, which the first server throws away then
				_, _ = io.ReadFull(r.Body, make([]byte, min(size, 100)))
				_ = control.Flush()
				<-looked
				for range pieces {
					_, _ = io.WriteString(w, ": \n\n")
					_ = control.Flush()
					time.Sleep(time.Millisecond)
				}
			}))
			t.Cleanup(owner.Close)
			s := &street{owner: "other", exec: "other", addr: owner.Listener.Addr().String()}
			s.through = func(inner http.RoundTripper) http.RoundTripper {
				return late{RoundTripper: inner, answered: answered, looked: looked}
			}
			front := httptest.NewServer(handler(t, newWorld(t), func(o *Options) { o.Placement = s }))
			t.Cleanup(front.Close)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, front.URL+execURL, strings.NewReader(strings.Repeat("x", size)))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			res, err := http.DefaultTransport.RoundTrip(req)
			close(answered)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if text, err := io.ReadAll(res.Body); err != nil || len(text) != 4*pieces {
				t.Errorf("%d bytes of the answer, then %v", len(text), err)
			}
		})
	}
}

// TestNotForwarded: files are answered by any server, and so is what names no thread.
func TestNotForwarded(t *testing.T) {
	t.Parallel()
	url, s := neighbours(t, newWorld(t))
	s.err = errors.New("was asked")
	for _, path := range []string{"/api/threads/t/files/list?path=/mnt/user-data", "/api/threads", "/api/templates", "/healthz"} {
		if res, text := ask(t, http.MethodGet, url+path, ""); res.StatusCode != http.StatusOK {
			t.Errorf("%s: %d %s", path, res.StatusCode, text)
		}
	}
	if res, _ := ask(t, http.MethodGet, url+"/api/threads/t", ""); res.StatusCode != http.StatusInternalServerError {
		t.Errorf("a thread: %d", res.StatusCode)
	}
}

// TestForwardedOnce: what was passed on once goes no further.
func TestForwardedOnce(t *testing.T) {
	t.Parallel()
	front := httptest.NewServer(exchange.FromPeer(handler(t, newWorld(t), func(o *Options) { o.Placement = &street{owner: "other", exec: "other"} })))
	defer front.Close()
	res, text := ask(t, http.MethodPost, front.URL+execURL, `{"command":"true"}`)
	if res.StatusCode != http.StatusServiceUnavailable || !strings.Contains(text, `"unavailable"`) || !strings.Contains(text, `"not_started":true`) {
		t.Errorf("%d %s", res.StatusCode, text)
	}
}

// TestHeldWhileAnswering: a thread without an owner is this server's as long as the request lasts.
func TestHeldWhileAnswering(t *testing.T) {
	t.Parallel()
	w, s := newWorld(t), &street{}
	during := -1
	w.wait = func(context.Context) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		during = s.held
		return nil
	}
	front := httptest.NewServer(handler(t, w, func(o *Options) { o.Placement = s }))
	defer front.Close()
	if res, text := ask(t, http.MethodPost, front.URL+execURL, `{"command":"true"}`); res.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", res.StatusCode, text)
	}
	if during != 1 || s.held != 0 {
		t.Errorf("held %d times during the request, %d after it", during, s.held)
	}
}

// TestOwnerIsSilent: a request whose server does not answer is given up in time, and so is one whose server is gone:
// nothing of it was done.
func TestOwnerIsSilent(t *testing.T) {
	t.Parallel()
	url, s := neighbours(t, newWorld(t))
	s.deaf = true
	began := time.Now()
	res, text := ask(t, http.MethodGet, url+"/api/threads/t", "")
	if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" || time.Since(began) > 3*forward.PlaceTime {
		t.Errorf("%d %s after %s", res.StatusCode, text, time.Since(began))
	}
	s.deaf, s.addr = false, ""
	if res, text := ask(t, http.MethodPost, url+execURL, `{"command":"true"}`); res.StatusCode != http.StatusServiceUnavailable || strings.Contains(text, "dial") || !strings.Contains(text, "not_started") {
		t.Errorf("%d %s", res.StatusCode, text)
	}
}

// TestMovedMeanwhile: a request whose thread moves while it is passed on is passed on anew, with its whole body.
func TestMovedMeanwhile(t *testing.T) {
	t.Parallel()
	behind, theirs := newWorld(t), &street{moved: 3}
	url, s := neighboursWith(t, behind, theirs)
	body := fmt.Sprintf(`{"command":"true","stdin":%q}`, strings.Repeat("x", 1<<20))
	for what, again := range map[string]int{"moves": 3, "is there": 0} {
		theirs.moved = again
		if res, text := ask(t, http.MethodPost, url+execURL, body); res.StatusCode != http.StatusOK || res.Header.Get(forward.MovedHeader) != "" {
			t.Errorf("%s: %d %s", what, res.StatusCode, text)
		}
	}
	if behind.runs != 2 {
		t.Errorf("%d commands ran", behind.runs)
	}
	theirs.moved = 1 << 20
	if res, text := ask(t, http.MethodPost, url+execURL, body); res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("moves for ever: %d %s", res.StatusCode, text)
	}
	theirs.moved, s.moved = 0, 0
}

// TestStopping: a server that stops has files changed by another one, and ends streams of threads that it holds.
func TestStopping(t *testing.T) {
	t.Parallel()
	behind := newWorld(t)
	url, s := neighbours(t, behind)
	const path, folder = "/api/threads/t/files/mkdir", `{"path":"/mnt/user-data/workspace"}`
	s.owner = ""
	if res, text := ask(t, http.MethodPost, url+path, folder); res.StatusCode >= 300 {
		t.Fatalf("%d %s", res.StatusCode, text)
	}
	s.drainTarget, s.owner = "other", "other"
	if res, text := ask(t, http.MethodPost, url+path, folder); res.StatusCode >= 300 {
		t.Errorf("while it stops: %d %s", res.StatusCode, text)
	}
	behind.mu.Lock()
	defer behind.mu.Unlock()
	if n := len(behind.callers); n != 1 {
		t.Errorf("the other one changed %d files", n)
	}
}

// TestServerOfRoutes: which server answers a route, without copies of files in sandboxes and with them.
func TestServerOfRoutes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o, _ := w.options(t)
	s, err := newServer(o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.handler(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][2]route.Server{
		"POST /api/threads/:thread/exec":              {route.Holder, route.Holder},
		"PUT /api/threads/:thread/sandbox":            {route.Holder, route.Holder},
		"DELETE /api/threads/:thread/sandbox":         {route.Owner, route.Owner},
		"DELETE /api/threads/:thread":                 {route.Holder, route.Holder},
		"GET /api/threads/:thread":                    {route.Owner, route.Owner},
		"GET /api/threads":                            {route.AnyServer, route.AnyServer},
		"GET /api/threads/:thread/execs":              {route.Owner, route.Owner},
		"GET /api/threads/:thread/execs/:exec/events": {route.ExecOwner, route.ExecOwner},
		"DELETE /api/threads/:thread/execs/:exec":     {route.ExecOwner, route.ExecOwner},
		"GET /api/threads/:thread/pty":                {route.ExecOwner, route.ExecOwner},
		"GET /api/threads/:thread/files/watch":        {route.Owner, route.Owner},
		"GET /api/threads/:thread/events":             {route.Holder, route.Holder},
		"GET /api/threads/:thread/files/content":      {route.AnyServer, route.Owner},
		"HEAD /api/threads/:thread/files/content":     {route.AnyServer, route.Owner},
		"PUT /api/threads/:thread/files/content":      {route.AnyServer, route.Holder},
		"DELETE /api/threads/:thread/files":           {route.AnyServer, route.Holder},
		"POST /api/threads/:thread/files/download":    {route.AnyServer, route.Holder},
		"POST /mcp/:thread":                           {route.Holder, route.Holder},
		"POST /api/skills/install":                    {route.AnyServer, route.AnyServer},
	} {
		r, ok := s.table.Rules()[name]
		if got := [2]route.Server{r.Server.Of(false), r.Server.Of(true)}; !ok || got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	for name, r := range s.table.Rules() {
		method, path, _ := strings.Cut(name, " ")
		if path == "/api/threads/:thread/events" { // its server has to be the one where all of the thread happens
			continue
		}
		if thread := strings.Contains(path, ":thread"); thread && r.Server == route.AnyServer {
			t.Errorf("%s names no server", name)
		} else if writes := r.Server == route.FileWriter || r.Server == route.Holder; thread && route.IsRead(method) && writes && !strings.HasPrefix(path, route.MCP) {
			t.Errorf("%s reads, and its server may start a sandbox", name)
		}
	}
}
