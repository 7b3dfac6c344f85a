package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/excerpt"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/transport"
)

var bob = sandbox.Thread{Owner: sandbox.Owner{Tenant: "t", User: "bob"}, ID: "one"}

// userServerLists holds the own servers of users.
type userServerLists struct {
	mu  sync.Mutex
	of  map[sandbox.Owner]*sandbox.UserServers
	err error
}

func (b *userServerLists) get(o sandbox.Owner) (*sandbox.UserServers, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.of[o], b.err
}

func (b *userServerLists) set(o sandbox.Owner, servers ...sandbox.UserServer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of == nil {
		b.of = map[sandbox.Owner]*sandbox.UserServers{}
	}
	b.of[o] = &sandbox.UserServers{List: servers}
}

func (b *userServerLists) use(o *Options) {
	o.UserServers = UserServers{Of: b.get, Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, Egress: []string{"registry.example"}}
}

func webServer(name, url string) sandbox.UserServer {
	return sandbox.UserServer{
		Name: name, Config: fmt.Appendf(nil, `{"type":"http","url":%q,"headers":{"Authorization":"Bearer ${user_config.KEY}"}}`, url),
		Values: map[string]string{"user_config.KEY": "open-sesame-42"},
	}
}

func (r *rig) serverNames(t sandbox.Thread) (names []string) {
	r.t.Helper()
	list, err := r.Catalog.Servers(context.Background(), t)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, s := range list {
		names = append(names, s.Name)
	}
	return names
}

// TestServersOfOneUser: a server of alice's own is there for her, and on no surface for bob.
func TestServersOfOneUser(t *testing.T) {
	t.Parallel()
	web := serveHTTP(t, newHandler(t, &mcp.StreamableHTTPOptions{Stateless: true}))
	b := &userServerLists{}
	const name = "plugin:sales:my web"
	b.set(alice.Owner, webServer(name, web.URL))
	r := open(t, withServers(`"own":`+testServer), b.use)
	ctx := context.Background()

	if got := r.serverNames(alice); !slices.Equal(got, []string{"own", name}) {
		t.Errorf("alice sees %v", got)
	}
	if got := r.ok("plugin_sales_my_web__echo", `{"message":"hi"}`); !strings.Contains(got, "hi") {
		t.Error(got)
	}
	if got := r.serverNames(bob); !slices.Equal(got, []string{"own"}) {
		t.Errorf("bob sees %v", got)
	}
	set, err := r.Catalog.Tools(ctx, bob)
	if err != nil || slices.ContainsFunc(set.Tools, func(t sandbox.Tool) bool { return t.Server != "own" }) {
		t.Errorf("bob has %v, %v", set.Tools, err)
	}
	caller := sandbox.Caller{Owner: bob.Owner, Role: sandbox.RoleAdmin, Operator: true}
	for what, try := range map[string]func() error{
		"call by printed name": func() error {
			_, err := r.callAs(bob, "plugin_sales_my_web__echo", `{"message":"x"}`)
			return err
		},
		"resolve": func() error {
			_, err := r.Catalog.Resolve(ctx, bob, sandbox.ToolRef{Server: name, Name: "echo"})
			return err
		},
		"search": func() error { _, err := r.Catalog.Search(ctx, bob, sandbox.ToolQuery{Server: name}); return err },
		"search by printed name": func() error {
			_, err := r.Catalog.Search(ctx, bob, sandbox.ToolQuery{Server: "plugin_sales_my_web"})
			return err
		},
		"resources": func() error { _, err := r.Upstream.Upstream(ctx, bob, sandbox.UpstreamResources, name); return err },
		"ask": func() error {
			_, err := r.Upstream.Ask(ctx, bob, sandbox.UpstreamRequest{Server: name, Method: "resources/read", Params: json.RawMessage(`{"uri":"x"}`)})
			return err
		},
		"tools of the server": func() error { _, err := r.Servers.ServerTools(ctx, caller, name); return err },
		"login":               func() error { _, err := r.Logins.BeginLogin(ctx, caller, name, "http://127.0.0.1:1/"); return err },
		"reconnect":           func() error { return r.Servers.ReconnectServer(ctx, name) },
		"delete":              func() error { return r.Servers.DeleteServer(ctx, name) },
	} {
		err := try()
		if sandbox.KindOf(err) != sandbox.NotFound {
			t.Errorf("%s: %v", what, err)
		}
		if _, hint, ok := strings.Cut(excerpt.Detail(err), "did you mean"); ok && strings.Contains(hint, "sales") {
			t.Errorf("%s: the name is given away: %s", what, excerpt.Detail(err))
		}
	}
	found, err := r.Catalog.Search(ctx, bob, sandbox.ToolQuery{Query: "echo a message"})
	if err != nil || slices.ContainsFunc(found.Tools, func(f sandbox.ToolFound) bool { return f.Server != "own" }) {
		t.Errorf("bob finds %v, %v", found.Tools, err)
	}
	configs, err := r.Servers.ServerConfigs(ctx)
	if _, ok := configs[name]; ok || err != nil {
		t.Errorf("administration shows %v, %v", configs, err)
	}
}

// TestServersComeAndGo: a change is told, and what is gone cannot be called.
func TestServersComeAndGo(t *testing.T) {
	t.Parallel()
	web := serveHTTP(t, newHandler(t, &mcp.StreamableHTTPOptions{Stateless: true}))
	b := &userServerLists{}
	r := open(t, "", b.use)
	if got := r.serverNames(alice); len(got) != 0 {
		t.Errorf("alice sees %v", got)
	}
	before, changed := r.Version(), r.Changed()
	b.set(alice.Owner, webServer("plugin:p:w", web.URL))
	r.LookAgain()
	select {
	case <-changed:
	default:
		t.Error("the change was not told")
	}
	if r.Version() == before {
		t.Error("the version stayed")
	}
	r.ok("plugin_p_w__echo", `{"message":"hi"}`)

	other := webServer("plugin:p:w", web.URL)
	other.Values = map[string]string{"user_config.KEY": "another-key"}
	b.set(alice.Owner, other)
	r.fails("plugin_p_w__echo", `{"message":"hi"}`, sandbox.Unavailable)

	b.set(alice.Owner)
	r.fails("plugin_p_w__echo", `{"message":"hi"}`, sandbox.NotFound)
	r.pool.mu.Lock()
	if len(r.pool.conns) != 0 {
		t.Errorf("%d connections stay", len(r.pool.conns))
	}
	r.pool.mu.Unlock()

	// Another process may change the plugins: that is seen without anybody asking.
	changed = r.Changed()
	b.set(alice.Owner, webServer("plugin:p:w", web.URL))
	select {
	case <-changed:
	case <-time.After(30 * time.Second):
		t.Error("the change was not seen")
	}
	b.mu.Lock()
	b.err = errors.New("disk")
	b.mu.Unlock()
	if got := r.serverNames(alice); len(got) != 0 {
		t.Errorf("alice sees %v of what is not known", got)
	}
}

// TestTheFileGoesFirst: a server of the file keeps its name and its tools, whatever servers users have.
func TestTheFileGoesFirst(t *testing.T) {
	t.Parallel()
	web := serveHTTP(t, newHandler(t, &mcp.StreamableHTTPOptions{Stateless: true}))
	b := &userServerLists{}
	b.set(alice.Owner, webServer("plugin:p:w", web.URL), webServer("plugin:q:w", web.URL), webServer("plugin:q-w", web.URL))
	r := open(t, withServers(`"plugin:p:w":`+testServer+`,"plugin_q_w":`+testServer), b.use)
	list, err := r.Catalog.Servers(context.Background(), alice)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, s := range list {
		got[s.Name] = s.Transport + " " + s.State
	}
	want := map[string]string{"plugin:p:w": "stdio ready", "plugin_q_w": "stdio ready", "plugin:q:w": "http failed", "plugin:q-w": "http failed"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestNoPrivateAddresses: without leave a user's server is not reached where only this machine gets.
func TestNoPrivateAddresses(t *testing.T) {
	t.Parallel()
	var hits atomic.Int32
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		hits.Add(1)
		w.WriteHeader(http.StatusNotFound)
	}))
	defer web.Close()
	b := &userServerLists{}
	b.set(alice.Owner, webServer("plugin:p:w", web.URL), webServer("plugin:p:m", "http://169.254.169.254/mcp"), webServer("plugin:p:l", strings.Replace(web.URL, "127.0.0.1", "localhost", 1)))
	r := open(t, "", b.use, func(o *Options) { o.UserServers.Addresses = nil })
	for _, s := range []string{"plugin:p:w", "plugin:p:m", "plugin:p:l"} {
		if st := r.state(s); st.State != "failed" || strings.Contains(st.Error, "open-sesame") {
			t.Errorf("%+v", st)
		}
		_, err := r.Logins.BeginLogin(context.Background(), sandbox.Caller{Owner: alice.Owner}, s, "http://127.0.0.1:1/cb")
		if err == nil {
			t.Errorf("%s: a login was begun", s)
		}
	}
	if n := hits.Load(); n > 0 {
		t.Errorf("%d requests came", n)
	}
	leave := open(t, "", b.use) // with leave they do come: the check above can fail
	leave.state("plugin:p:w")
	if hits.Load() == 0 {
		t.Error("no request came with leave")
	}
}

// noIsolation refuses, and remembers.
type noIsolation struct {
	mu  sync.Mutex
	got []transport.IsolatedServer
}

func (n *noIsolation) Start(_ context.Context, s transport.IsolatedServer) (transport.IsolatedProcess, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.got = append(n.got, s)
	return nil, sandbox.Errorf(sandbox.Unavailable, "not today")
}

// TestProgramsOfUsers: they run in sandboxes of their own with their user's values, whatever they ask for.
func TestProgramsOfUsers(t *testing.T) {
	t.Parallel()
	b := &userServerLists{}
	u := sandbox.UserServer{
		Name: "plugin:p:s", Root: "/data/plugins/store/x", Key: "sha256:1",
		Config: []byte(`{"command":"${CLAUDE_PLUGIN_ROOT}/run","args":["${A}","${B:-b}"],"env":{"T":"${TOKEN}"},"run_as":0,"scope":"shared","sandbox":{"mounts":{"/srv/etc":"/etc"},"egress":["*.example.com"]}}`),
		Values: map[string]string{"CLAUDE_PLUGIN_ROOT": sandbox.PluginRoot, "A": "a", "TOKEN": "secret-of-alice"},
	}
	leaky := u
	leaky.Name, leaky.Config = "plugin:p:leaky", []byte(`{"command":"x","env":{"S":"${SECRET}"}}`)
	b.set(alice.Owner, u, leaky)
	iso := &noIsolation{}
	r := open(t, "", b.use, func(o *Options) { o.Isolation = iso })
	if st := r.state("plugin:p:s"); st.State != "failed" || strings.Contains(st.Error, "secret-of-alice") {
		t.Errorf("%+v", st)
	}
	if st := r.state("plugin:p:leaky"); st.State != "failed" || !strings.Contains(st.Error, "SECRET") {
		t.Errorf("%+v", st)
	}
	iso.mu.Lock()
	defer iso.mu.Unlock()
	if len(iso.got) != 1 {
		t.Fatalf("%+v", iso.got)
	}
	s := iso.got[0]
	if !slices.Equal(s.Argv, []string{"/srv/home/plugin/run", "a", "b"}) || !slices.Equal(s.Env, append(pluginFolders(), "T=secret-of-alice")) || s.Owner != alice.Owner || !slices.Equal(s.Egress, []string{"registry.example"}) {
		t.Errorf("%+v", s)
	}
	if len(s.Mounts) != 1 || s.Mounts[0].Source != u.Root || s.Mounts[0].Target != sandbox.PluginFiles || !s.Mounts[0].ReadOnly || s.Copy == nil || *s.Copy != (sandbox.FolderCopy{From: sandbox.PluginFiles, To: sandbox.PluginRoot, Key: u.Key}) {
		t.Errorf("%+v", s.Mounts)
	}
	r2 := open(t, "", b.use) // a server that has no sandboxes for them
	if st := r2.state("plugin:p:s"); st.State != "failed" {
		t.Errorf("%+v", st)
	}
}
