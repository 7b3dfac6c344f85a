package elsewhere_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
	"github.com/skerry-sandbox/skerry/internal/store/redistest"
	"github.com/skerry-sandbox/skerry/internal/tools/packs"
	"github.com/skerry-sandbox/skerry/internal/tools/packs/elsewhere"
	provider "github.com/skerry-sandbox/skerry/sdk/go/packs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// site is some servers of one installation.
type site struct {
	t     *testing.T
	redis *redistest.Server

	mu      sync.Mutex
	servers map[string]*server
}

// server is one of them: its registry, and its listener for packs and for the other servers.
type server struct {
	*packs.Registry
	site   *site
	id     string
	others *elsewhere.Packs
	store  *store.Store
	http   *httptest.Server
	dead   atomic.Bool
	lists  atomic.Int32 // changes of what packs offer
	stop   func()
}

func newSite(t *testing.T) *site {
	return &site{t: t, redis: redistest.Start(t), servers: map[string]*server{}}
}

// peers is how one server reaches the others.
type peers struct {
	me        *server
	transport *http.Transport
}

func (p peers) ID() string { return p.me.id }

func (p peers) Alive(id string) bool {
	p.me.site.mu.Lock()
	defer p.me.site.mu.Unlock()
	s := p.me.site.servers[id]
	return s != nil && !s.dead.Load()
}

func (p peers) Transport() http.RoundTripper { return p.transport }

type keyRing struct{ home string }

// Channel takes "SKILL in THREAD".
func (k keyRing) Channel(_ context.Context, key string) (packs.Grant, error) {
	skill, thread, ok := strings.Cut(key, " in ")
	if !ok {
		return packs.Grant{}, sandbox.Errorf(sandbox.Unauthorized, "no key")
	}
	return packs.Grant{
		Identity: "the key of a skill", Tenant: "t", Packs: []string{skill}, Channel: "ch", Server: k.home,
		Thread: sandbox.Thread{Owner: sandbox.Owner{Tenant: "t", User: "ann"}, ID: thread},
	}, nil
}

func (s *site) start(id string, change func(*packs.Options)) *server {
	s.t.Helper()
	v := &server{site: s, id: id}
	var err error
	v.store, err = store.Open(s.t.Context(), store.Options{URL: s.redis.URL(), Replica: id})
	must(s.t, err)
	transport := &http.Transport{DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
		host, _, _ := net.SplitHostPort(addr)
		s.mu.Lock()
		to := s.servers[host]
		s.mu.Unlock()
		var d net.Dialer
		return d.DialContext(ctx, "tcp", to.http.Listener.Addr().String())
	}}
	log := slog.New(slog.DiscardHandler)
	v.others = elsewhere.New(v.store, peers{v, transport}, log)
	o := packs.Options{Log: log, ServerID: "here", Version: "test", Others: v.others, Channels: keyRing{"b"}}
	if change != nil {
		change(&o)
	}
	v.Registry = packs.New(o)
	v.Attach(func() { v.lists.Add(1) }, func(string) string { return "" })
	streams, between := v.Handler(), v.others.Handler()
	v.http = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if strings.HasPrefix(q.URL.Path, elsewhere.Path) {
			between.ServeHTTP(w, q)
			return
		}
		p := packs.Peer{Source: "192.0.2.1", Host: q.Host, Unblock: packs.Unblock(http.NewResponseController(w))}
		p.ChannelKey = strings.TrimPrefix(q.Header.Get("Authorization"), "Bearer ")
		p.Caller = &sandbox.Caller{Owner: sandbox.Owner{Tenant: "t", User: "ann"}, Role: sandbox.RolePack, KeyID: "k"}
		streams.ServeHTTP(w, q.WithContext(packs.WithPeer(q.Context(), p)))
	}))
	v.http.Config.Protocols = &http.Protocols{}
	v.http.Config.Protocols.SetUnencryptedHTTP2(true)
	v.http.Config.Protocols.SetHTTP1(true)
	v.http.Start()
	s.mu.Lock()
	s.servers[id] = v
	s.mu.Unlock()
	v.others.Start(v.Registry)
	v.stop = sync.OnceFunc(func() {
		v.dead.Store(true)
		_ = v.others.Close()
		_ = v.Registry.Close()
		v.http.CloseClientConnections()
		v.http.Close()
		transport.CloseIdleConnections()
		_ = v.store.Close()
	})
	s.t.Cleanup(v.stop)
	return v
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

type lead struct {
	Name string `json:"name"`
}

// crm is a pack with the tools of the tests. begun is told of each call that waits, and ended of its end.
func crm(t *testing.T) (p *provider.Pack, begun, ended chan error, release chan struct{}) {
	t.Helper()
	p, begun, ended, release = provider.New("crm", "1"), make(chan error, 100), make(chan error, 100), make(chan struct{})
	must(t, provider.Tool(p, "find", "finds", func(ctx context.Context, in lead) (lead, error) {
		provider.Progress(ctx, 1, 2, "looking")
		return lead{in.Name + " for " + provider.CallerOf(ctx).Thread}, nil
	}))
	must(t, provider.Tool(p, "fail", "", func(context.Context, struct{}) (string, error) { return "", errors.New("no such lead") }))
	must(t, provider.Tool(p, "big", "", func(_ context.Context, in lead) (string, error) { return strings.Repeat("é", len(in.Name)), nil }))
	must(t, provider.Tool(p, "wait", "", func(ctx context.Context, _ struct{}) (string, error) {
		begun <- nil
		select {
		case <-release:
			ended <- nil
			return "whole", nil
		case <-ctx.Done():
			ended <- context.Cause(ctx)
			return "", ctx.Err()
		}
	}))
	p.MaxParallel = 2
	return p, begun, ended, release
}

// serve runs a pack on some servers until stop is called.
func serve(t *testing.T, p *provider.Pack, key provider.Credential, at ...*server) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	connected, done := make(chan struct{}, 100), make(chan error, 1)
	s := provider.Server{URL: at[0].http.URL, Credential: key, Log: slog.New(slog.DiscardHandler), Connected: func() { connected <- struct{}{} }}
	for _, o := range at[1:] {
		s.Others = append(s.Others, o.http.URL)
	}
	go func() { done <- p.Serve(ctx, s) }()
	stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() { _ = stop() })
	select {
	case <-connected:
	case err := <-done:
		t.Fatal(err)
	}
	return stop
}

// pack returns what the hub of a server sees; nil: nothing.
func (s *server) pack(id string) sandbox.ToolPack {
	for _, l := range s.Servers("t").List {
		if l.Name == id {
			return l.Pack
		}
	}
	return nil
}

// await returns it once it can be called.
func (s *server) await(id string) sandbox.ToolPack {
	s.site.t.Helper()
	eventually(s.site.t, s.id+" knows "+id, func() bool { p := s.pack(id); return p != nil && p.Away() == nil })
	return s.pack(id)
}

var thread = sandbox.Thread{Owner: sandbox.Owner{Tenant: "t", User: "ann"}, ID: "x"}

func call(ctx context.Context, p sandbox.ToolPack, tool, input string, progress func(sandbox.ToolProgress)) (string, error) {
	if progress == nil {
		progress = func(sandbox.ToolProgress) {}
	}
	raw, err := p.Call(ctx, sandbox.PackCall{Tool: tool, Input: json.RawMessage(input), Thread: thread, Progress: progress})
	return string(raw), err
}

func async(ctx context.Context, p sandbox.ToolPack, tool string) <-chan error {
	ended := make(chan error, 1)
	go func() {
		_, err := call(ctx, p, tool, `{}`, nil)
		ended <- err
	}()
	return ended
}

// TestPackElsewhere: a pack of one server is one of the others. Results, failures, progress and the end of a call pass as
// they are, limits count for all servers together, and so does a name that is taken.
func TestPackElsewhere(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a, b := s.start("a", nil), s.start("b", nil)
	p, begun, ended, _ := crm(t)
	stop := serve(t, p, nil, a)
	far := b.await("crm")
	ctx := t.Context()
	for at, server := range map[*server]string{a: "", b: "a"} {
		if i, err := at.Get(sandbox.Caller{Owner: sandbox.Owner{Tenant: "t"}}, "crm"); err != nil || i.Server != server || i.State != sandbox.PackConnected {
			t.Errorf("at %s: %v %+v", at.id, err, i)
		}
	}
	var heard []string
	got, err := call(ctx, far, "find", `{"name":"Ada <3"}`, func(p sandbox.ToolProgress) { heard = append(heard, p.Message) })
	if err != nil || !strings.Contains(got, "for x") || strings.Join(heard, ",") != "looking" {
		t.Errorf("%v %s %q", err, got, heard)
	}
	near, err := call(ctx, a.pack("crm"), "find", `{"name":"Ada <3"}`, nil)
	if err != nil || near != got {
		t.Errorf("%v: the server with the pack has %s, the other one %s", err, near, got)
	}
	if got, err = call(ctx, far, "fail", `{}`, nil); err != nil || !strings.Contains(got, "no such lead") {
		t.Errorf("a failure: %v %s", err, got)
	}
	if got, err = call(ctx, far, "big", `{"name":"`+strings.Repeat("n", 3<<20)+`"}`, nil); err != nil || strings.Count(got, "é") != 3<<20 {
		t.Errorf("a large call: %v, %d bytes", err, len(got))
	}
	if _, err = call(ctx, far, "find", strings.Repeat(" ", 5<<20), nil); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("arguments of 5 MiB: %v", err)
	}
	if _, err = call(ctx, far, "none", `{}`, nil); sandbox.KindOf(err) != sandbox.ToolFailed || !strings.Contains(err.Error(), "does not know this tool") {
		t.Errorf("an unknown tool: %v", err)
	}
	givenUp, cancel := context.WithCancel(ctx)
	one, two := async(givenUp, far, "wait"), async(givenUp, a.pack("crm"), "wait")
	<-begun
	<-begun
	short, done := context.WithTimeout(ctx, 100*time.Millisecond)
	defer done()
	if _, err := call(short, far, "find", `{"name":"a"}`, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a third call at once: %v", err)
	}
	cancel()
	for _, c := range []<-chan error{one, two} {
		if err := <-c; !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		<-ended // in the pack
	}
	limited, done := context.WithTimeout(ctx, 200*time.Millisecond)
	defer done()
	if _, err := call(limited, far, "wait", `{}`, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after the deadline: %v", err)
	}
	<-begun
	<-ended

	other := provider.New("crm", "2")
	refused := make(chan string, 1)
	again, giveUp := context.WithCancel(ctx)
	go func() {
		_ = other.Serve(again, provider.Server{URL: b.http.URL, Log: slog.New(slog.NewTextHandler(until{refused}, nil))})
	}()
	if got := <-refused; !strings.Contains(got, "connected already") || !strings.Contains(got, "key k") {
		t.Errorf("a second pack of the name: %s", got)
	}
	giveUp()

	list, changed := far.List()
	must(t, provider.Tool(p, "more", "", func(context.Context, struct{}) (string, error) { return "more", nil }))
	must(t, p.Reload(ctx))
	<-changed
	if now, _ := far.List(); string(now) == string(list) {
		t.Error("the new tool is not listed")
	}
	must(t, stop())
	eventually(t, "it is away", func() bool { return far.Away() != nil })
	if b.pack("crm") == nil {
		t.Error("a pack that went is not listed any more")
	}
	lists := b.lists.Load()
	serve(t, p, nil, b) // at the other server
	if got, err := call(ctx, far, "more", `{}`, nil); err != nil || !strings.Contains(got, "more") {
		t.Errorf("%v %s", err, got)
	}
	if _, err := call(ctx, a.await("crm"), "more", `{}`, nil); err != nil || b.lists.Load() != lists {
		t.Errorf("%v, the list has changed %d times", err, b.lists.Load()-lists)
	}
}

// until is a log that passes its first line on.
type until struct{ first chan string }

func (u until) Write(p []byte) (int, error) {
	select {
	case u.first <- string(p):
	default:
	}
	return len(p), nil
}

// TestPackOfDeadServer: calls end once, with an error that says that the server went. The pack comes back at the other
// server, where its tools never left the list.
func TestPackOfDeadServer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a, b := s.start("a", nil), s.start("b", nil)
	p, begun, _, _ := crm(t)
	serve(t, p, nil, a, b)
	far := b.await("crm")
	lists := b.lists.Load()
	running := async(t.Context(), far, "wait")
	<-begun
	began := time.Now()
	a.dead.Store(true)
	a.http.CloseClientConnections()
	go a.stop()
	if err := <-running; sandbox.KindOf(err) != sandbox.Unavailable || !strings.Contains(err.Error(), "went while the call ran") {
		t.Errorf("%v", err)
	}
	eventually(t, "a call works", func() bool {
		got, err := call(t.Context(), far, "find", `{"name":"a"}`, nil)
		return err == nil && strings.Contains(got, "a for x")
	})
	t.Logf("a call worked %s after the end of the server", time.Since(began))
	if n := b.lists.Load(); n != lists {
		t.Errorf("the list has changed %d times", n-lists)
	}
}

// TestPackLeaves: a server that stops sends its packs to the others. No call is refused meanwhile, and one under way ends
// normally.
func TestPackLeaves(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a, b := s.start("a", nil), s.start("b", nil)
	p, begun, _, release := crm(t)
	serve(t, p, nil, a, b)
	far := b.await("crm")
	running := async(t.Context(), far, "wait")
	<-begun
	var calls, failed atomic.Int32
	end := make(chan struct{})
	var wg sync.WaitGroup
	for _, at := range []*server{a, b} {
		wg.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
				}
				if _, err := call(t.Context(), at.pack("crm"), "find", `{"name":"a"}`, nil); err != nil {
					failed.Add(1)
					t.Errorf("a call at %s: %v", at.id, err)
					return
				}
				calls.Add(1)
			}
		})
	}
	side := packs.NewElsewhere(a.Registry)
	side.Leave()
	eventually(t, "the other server has it", func() bool { return len(packs.NewElsewhere(b.Registry).Own()) == 1 })
	before := calls.Load()
	eventually(t, "calls go on", func() bool { return calls.Load() > before+100 || failed.Load() > 0 })
	close(end)
	wg.Wait()
	close(release)
	if err := <-running; err != nil {
		t.Errorf("the call that ran: %v", err)
	}
	side.Quiet(t.Context())
	eventually(t, "its stream has ended", func() bool { return len(side.Own()) == 0 })
	t.Logf("%d calls", calls.Load())
}

// TestWithoutRedis: while the state does not answer, packs of this and of other servers can be called. A server that loses
// what it has written writes it down again.
func TestWithoutRedis(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a, b := s.start("a", nil), s.start("b", nil)
	p, _, _, _ := crm(t)
	serve(t, p, nil, a)
	far := b.await("crm")
	works := func(what string) {
		t.Helper()
		for _, p := range []sandbox.ToolPack{far, a.pack("crm")} {
			if _, err := call(t.Context(), p, "find", `{"name":"a"}`, nil); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	s.redis.Kill()
	s.redis.Wipe()
	for range 20 { // longer than a lease
		works("Redis is away")
		time.Sleep(300 * time.Millisecond)
	}
	s.redis.Restart()
	for range 20 {
		works("Redis is back, and empty")
		time.Sleep(300 * time.Millisecond)
	}
	c := s.start("c", nil)
	if _, err := call(t.Context(), c.await("crm"), "find", `{"name":"a"}`, nil); err != nil {
		t.Errorf("a new server: %v", err)
	}
}

// TestSkillElsewhere: the tools of a thread's skill are found on the server that has the thread, wherever the program is
// connected, and on no other server.
func TestSkillElsewhere(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a, b, c := s.start("a", nil), s.start("b", nil), s.start("c", nil)
	p, _, _, _ := crm(t)
	stop := serve(t, p, provider.BearerKey("crm in x"), a)
	far := b.Channel(thread, "crm", "ch")
	if far == nil {
		t.Fatal("the server of the thread does not know it once it is welcome")
	}
	if got, err := call(t.Context(), far, "find", `{"name":"a"}`, nil); err != nil || !strings.Contains(got, "a for x") {
		t.Errorf("%v %s", err, got)
	}
	if b.pack("crm") != nil || c.Channel(thread, "crm", "ch") != nil || b.Channel(thread, "crm", "other") != nil {
		t.Error("it is known where it is not wanted")
	}
	must(t, stop())
	eventually(t, "it is away", func() bool { return far.Away() != nil })
}
