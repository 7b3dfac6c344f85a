package packs_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/packs"
	provider "github.com/skerry-sandbox/skerry/sdk/go/packs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	admin  = sandbox.Caller{Owner: sandbox.Owner{Tenant: "t", User: "ann"}, Role: sandbox.RoleAdmin, Operator: true, KeyID: "k"}
	packer = sandbox.Caller{Owner: sandbox.Owner{Tenant: "t", User: "ann"}, Role: sandbox.RolePack, KeyID: "k"}
)

// rig is a registry behind a listener, as the API serves it.
type rig struct {
	*packs.Registry
	t      *testing.T
	url    string
	caller sandbox.Caller // of all streams
	key    string         // of a skill, that the packs which begin now send

	mu     sync.Mutex
	events []packs.Event
}

func newRig(t *testing.T, change func(*packs.Options)) *rig {
	t.Helper()
	r := &rig{t: t, caller: packer}
	o := packs.Options{Log: slog.New(slog.DiscardHandler), ServerID: "here", Version: "test", Record: func(_ context.Context, e packs.Event) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.events = append(r.events, e)
	}}
	if change != nil {
		change(&o)
	}
	r.Registry = packs.New(o)
	h := r.Handler()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		p := packs.Peer{Source: "192.0.2.1", Host: q.Host, Unblock: packs.Unblock(http.NewResponseController(w))}
		if source := q.Header.Get("X-Source"); source != "" {
			p.Source = source
		}
		p.ChannelKey = strings.TrimPrefix(q.Header.Get("Authorization"), "Bearer ")
		if caller := r.caller; caller.Role != "" {
			p.Caller = &caller
		}
		h.ServeHTTP(w, q.WithContext(packs.WithPeer(q.Context(), p)))
	}))
	srv.Config.Protocols = &http.Protocols{}
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	t.Cleanup(func() { _ = r.Close(); srv.Close() })
	r.url = srv.URL
	return r
}

// what returns what happened to a pack, with the details that have a text.
func (r *rig) happened(what packs.Happening, detail string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.What == what && strings.Contains(e.Detail, detail) {
			return true
		}
	}
	return false
}

type lead struct {
	Name string `json:"name"`
}

// newPack has the tools of the tests.
func newPack(t *testing.T, id string) *provider.Pack {
	t.Helper()
	p := provider.New(id, "1.0.0")
	must(t, provider.Tool(p, "find", "finds a lead", func(ctx context.Context, in lead) (lead, error) {
		provider.Progress(ctx, 1, 2, "looking")
		return lead{in.Name + " for " + provider.CallerOf(ctx).User}, nil
	}))
	must(t, provider.Tool(p, "fail", "fails", func(context.Context, struct{}) (string, error) { return "", errors.New("no such lead") }))
	must(t, provider.Tool(p, "wait", "waits for its end", func(ctx context.Context, _ struct{}) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	}))
	return p
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// serve runs a pack until the test ends, or stop is called. It returns once the server has taken the pack.
func (r *rig) serve(p *provider.Pack) (stop func() error) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	connected, ended := make(chan struct{}, 100), make(chan error, 1)
	var key provider.Credential
	if r.key != "" {
		key = provider.BearerKey(r.key)
	}
	go func() {
		ended <- p.Serve(ctx, provider.Server{URL: r.url, Credential: key, Drain: 5 * time.Second, Log: slog.New(slog.DiscardHandler), Connected: func() { connected <- struct{}{} }})
	}()
	var once sync.Once
	var err error
	stop = func() error {
		once.Do(func() { cancel(); err = <-ended })
		return err
	}
	r.t.Cleanup(func() { _ = stop() })
	select {
	case <-connected:
	case err = <-ended:
		r.t.Fatal(err)
	}
	return stop
}

// pack returns what the hub sees.
func (r *rig) pack(id string) sandbox.ToolPack {
	r.t.Helper()
	for _, s := range r.Servers("t").List {
		if s.Name == id {
			return s.Pack
		}
	}
	r.t.Fatalf("there is no pack %s", id)
	return nil
}

func call(p sandbox.ToolPack, tool, input string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	raw, err := p.Call(ctx, sandbox.PackCall{Tool: tool, Input: json.RawMessage(input), Thread: sandbox.Thread{Owner: sandbox.Owner{Tenant: "t", User: "bob"}, ID: "x"}, Progress: func(sandbox.ToolProgress) {}})
	return string(raw), err
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

// TestCalls: results, failures and progress of a tool pass as they are, and a call that its caller gives up ends in the
// pack.
func TestCalls(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	gone := make(chan struct{})
	p := newPack(t, "crm")
	must(t, provider.Tool(p, "endless", "", func(ctx context.Context, _ struct{}) (string, error) {
		<-ctx.Done()
		close(gone)
		return "", nil
	}))
	must(t, provider.Tool(p, "panic", "", func(context.Context, struct{}) (string, error) { panic("x") }))
	must(t, provider.Tool(p, "big", "", func(context.Context, struct{}) (string, error) { return strings.Repeat("é", 5<<20), nil }))
	r.serve(p)
	crm := r.pack("crm")
	got, err := call(crm, "find", `{"name":"Ada"}`)
	if want := `{"content":[{"text":"{\"name\":\"Ada for bob\"}","type":"text"}],"structuredContent":{"name":"Ada for bob"}}`; err != nil || got != want {
		t.Errorf("%v %s", err, got)
	}
	if got, err = call(crm, "fail", `{}`); err != nil || !strings.Contains(got, "no such lead") || !strings.Contains(got, `"isError":true`) {
		t.Errorf("a failure: %v %s", err, got)
	}
	if got, err = call(crm, "panic", `{}`); err != nil || !strings.Contains(got, `"isError":true`) {
		t.Errorf("a panic: %v %s", err, got)
	}
	if got, err = call(crm, "big", `{}`); err != nil || strings.Count(got, "é") != 5<<20 {
		t.Errorf("a result of 10 MiB: %v, %d bytes", err, len(got))
	}
	if _, err = call(crm, "none", `{}`); sandbox.KindOf(err) != sandbox.ToolFailed || !strings.Contains(err.Error(), "does not know this tool") {
		t.Errorf("an unknown tool: %v", err)
	}
	var heard []string
	_, err = crm.Call(t.Context(), sandbox.PackCall{Tool: "find", Input: json.RawMessage(`{"name":"a"}`), Progress: func(p sandbox.ToolProgress) { heard = append(heard, p.Message) }})
	if err != nil || strings.Join(heard, ",") != "looking" {
		t.Errorf("progress: %v %q", err, heard)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := crm.Call(ctx, sandbox.PackCall{Tool: "endless", Input: json.RawMessage(`{}`), Progress: func(sandbox.ToolProgress) {}})
		ended <- err
	}()
	eventually(t, "the call runs", func() bool { return r.List(admin)[0].Running == 1 })
	time.AfterFunc(50*time.Millisecond, cancel)
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	<-gone
}

// TestGoneAndBack: calls of a pack that goes end at once, its tools stay listed, and after its return they can be called
// without a change of any list. A pack that does not come back is forgotten.
func TestGoneAndBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *packs.Options) { o.Grace = 2 * time.Second })
	changes := make(chan struct{}, 100)
	r.Attach(func() { changes <- struct{}{} }, func(string) string { return "" })
	stop := r.serve(newPack(t, "crm"))
	<-changes
	crm, list := r.pack("crm"), r.Servers("t")
	if list != r.Servers("t") {
		t.Error("the list is made anew")
	}
	_, changed := crm.List()
	ended := make(chan error, 1)
	go func() { _, err := call(crm, "wait", `{}`); ended <- err }()
	eventually(t, "the call runs", func() bool { return r.List(admin)[0].Running == 1 })
	r.Cut("crm")
	if err := <-ended; sandbox.KindOf(err) != sandbox.Unavailable || sandbox.IsNotStarted(err) || !strings.Contains(err.Error(), "went while the call ran") {
		t.Errorf("a call under way: %v", err)
	}
	// The provider comes back by itself.
	eventually(t, "it is back", func() bool { got, _ := call(crm, "find", `{"name":"a"}`); return strings.Contains(got, "a for bob") })
	select {
	case <-changed:
		t.Error("the same tools are told as new ones")
	default:
	}
	if len(changes) != 0 || r.Servers("t") != list {
		t.Error("the list has changed")
	}
	must(t, stop())
	if got := r.List(admin); len(got) != 1 || got[0].State != sandbox.PackUnavailable {
		t.Errorf("%+v", got)
	}
	if _, err := call(crm, "find", `{}`); sandbox.KindOf(err) != sandbox.Unavailable || !sandbox.IsNotStarted(err) {
		t.Errorf("a call while it is away: %v", err)
	}
	<-changes
	if n := len(r.Servers("t").List); n != 0 {
		t.Errorf("%d packs after the grace time", n)
	}
}

// TestReload: another manifest is told once, and a broken one changes nothing.
func TestReload(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	p := newPack(t, "crm")
	r.serve(p)
	crm, before := r.pack("crm"), r.Servers("t")
	list, changed := crm.List()
	must(t, p.Reload(t.Context()))
	if r.Servers("t") != before {
		t.Error("the same manifest made another list")
	}
	must(t, provider.Tool(p, "more", "", func(context.Context, struct{}) (string, error) { return "more", nil }))
	must(t, p.Reload(t.Context()))
	<-changed
	if got, err := call(crm, "more", `{}`); err != nil || !strings.Contains(got, "more") {
		t.Errorf("%v %s", err, got)
	}
	now, _ := crm.List()
	if string(now) == string(list) || r.Servers("t") == before || r.pack("crm") != crm {
		t.Error("the new tools are not listed")
	}
	must(t, provider.Tool(p, "a b", "", func(context.Context, struct{}) (string, error) { return "", nil }))
	if err := p.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), `"a b": name`) {
		t.Errorf("a broken manifest: %v", err)
	}
	if again, _ := crm.List(); string(again) != string(now) {
		t.Error("a broken manifest is in force")
	}
	if !r.happened(packs.Reloaded, "") || !r.happened(packs.Refused, "a b") {
		t.Errorf("recorded: %+v", r.events)
	}
}

// TestCollisions: a name that is taken is refused, and the error names the owner.
func TestCollisions(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *packs.Options) { o.MaxPacks = 1 })
	r.Attach(func() {}, func(id string) string {
		if id == "files" {
			return `the MCP server "files"`
		}
		return ""
	})
	stop := r.serve(newPack(t, "crm"))
	for id, want := range map[string]string{"crm": "connected already: key k provides it", "files": `taken by the MCP server "files"`, "other": "has 1 packs", "plugin-x": "belong to plugins"} {
		ctx, cancel := context.WithCancel(t.Context())
		log := &lines{}
		ended := make(chan error, 1)
		go func() {
			ended <- newPack(t, id).Serve(ctx, provider.Server{URL: r.url, Log: slog.New(slog.NewTextHandler(log, nil))})
		}()
		eventually(t, id+" is refused", func() bool { return r.happened(packs.Refused, want) })
		cancel()
		<-ended
	}
	// One that stops makes room for the next run of the same program.
	running := make(chan error, 1)
	crm := r.pack("crm")
	go func() { _, err := call(crm, "wait", `{}`); running <- err }()
	eventually(t, "the call runs", func() bool { return r.List(admin)[0].Running == 1 })
	go func() { _ = stop() }()
	eventually(t, "it stops", func() bool { return r.List(admin)[0].State != sandbox.PackConnected })
	if _, err := call(crm, "find", `{}`); sandbox.KindOf(err) != sandbox.Unavailable || !sandbox.IsNotStarted(err) || !strings.Contains(err.Error(), "unavailable") {
		t.Errorf("a call of a pack that stops: %v", err)
	}
	r.serve(newPack(t, "crm"))
	if _, err := call(crm, "find", `{"name":"a"}`); err != nil {
		t.Error(err)
	}
}

type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// TestRoles: only a key for packs, or an administrator's, provides packs, and for its own tenant.
func TestRoles(t *testing.T) {
	t.Parallel()
	for role, ok := range map[sandbox.Role]bool{sandbox.RolePack: true, sandbox.RoleAdmin: true, sandbox.RoleAgent: false, sandbox.RoleDeveloper: false, sandbox.RoleAuditor: false, "": false} {
		r := newRig(t, nil)
		r.caller.Role = role
		ctx, cancel := context.WithCancel(t.Context())
		err := newPack(t, "crm").Serve(ctx, provider.Server{URL: r.url, Log: slog.New(slog.DiscardHandler), Connected: cancel})
		cancel()
		if code := connect.CodeOf(err); ok != (err == nil) || !ok && code != connect.CodePermissionDenied && code != connect.CodeUnauthenticated {
			t.Errorf("%q: %v", role, err)
		}
	}
	r := newRig(t, nil)
	r.serve(newPack(t, "crm"))
	if n := len(r.Servers("other").List); n != 0 {
		t.Errorf("another tenant has %d packs", n)
	}
	if list := r.List(sandbox.Caller{Owner: sandbox.Owner{Tenant: "other"}, Role: sandbox.RoleAdmin}); len(list) != 0 {
		t.Errorf("another tenant's administrator sees %+v", list)
	}
	// Capabilities of the key are the only ones that its tools may require.
	r = newRig(t, nil)
	r.caller.Capabilities = []string{"crm"}
	p := newPack(t, "crm")
	must(t, provider.Tool(p, "drop", "", func(context.Context, struct{}) (string, error) { return "", nil }, provider.Requires("root")))
	if err := p.Serve(t.Context(), provider.Server{URL: r.url, Log: slog.New(slog.DiscardHandler)}); err == nil || !strings.Contains(err.Error(), `require "root"`) {
		t.Error(err)
	}
	if err := provider.New("x", "1").Serve(t.Context(), provider.Server{URL: "127.0.0.1"}); err == nil {
		t.Error("an address that is no URL is taken")
	}
}

// TestProtocols: each of the three protocols of Connect carries the stream.
func TestProtocols(t *testing.T) {
	t.Parallel()
	for name, protocol := range map[string]connect.ClientOption{"grpc": connect.WithGRPC(), "grpc-web": connect.WithGRPCWeb(), "connect": connect.WithSendGzip()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			p := r.raw("crm", "one", protocol)
			ended := make(chan string, 1)
			go func() {
				got, err := call(r.pack("crm"), "do", `{}`)
				if err != nil {
					got = err.Error()
				}
				ended <- got
			}()
			p.result(p.next(), fine, true)
			if got := <-ended; got != fine {
				t.Error(got)
			}
		})
	}
}
