package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
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

// rawServers returns a raw server on each transport, as configurations, and the servers that run in this
// process.
func rawServers(t *testing.T) (configs map[string]string, servers map[string]*rawServer) {
	t.Helper()
	done := make(chan struct{})
	configs = map[string]string{"stdio": `{"command":"%BIN%","args":["test-server","raw"],"timeout":2000%s}`}
	servers = map[string]*rawServer{}
	for name, path := range map[string]string{"json": "/", "events": "/events", "sse": "/sse"} {
		s := &rawServer{crash: func() { panic(http.ErrAbortHandler) }, done: done}
		servers[name] = s
		var h http.Handler = s
		kind := "http"
		if name == "sse" {
			h, kind = &oldSSE{rawServer: s}, "sse"
			s.crash = func() {}
		}
		srv := httptest.NewServer(h)
		t.Cleanup(func() {
			srv.CloseClientConnections()
			srv.Close()
		})
		configs[name] = fmt.Sprintf(`{"type":%q,"url":"%s%s","timeout":2000%%s}`, kind, srv.URL, path)
	}
	t.Cleanup(func() { close(done) })
	return configs, servers
}

func configOf(text string) string { return strings.ReplaceAll(text, "%s", "") }

// TestHostileServers: whatever a server does, it fails its own call, with a name for it; calls beside it
// on the same server, and other servers, go on.
func TestHostileServers(t *testing.T) {
	t.Parallel()
	configs, _ := rawServers(t)
	for name, config := range configs {
		t.Run(name, func(t *testing.T) {
			r := open(t, withServers(`"bad":`+strings.ReplaceAll(config, "%s", `,"tools":{"flood":{"timeout":60000}}`)+`,"good":`+testServer))
			r.ok("good__echo", `{"message":"a"}`)
			// A call beside the flood.
			slow := make(chan error, 1)
			go func() {
				_, err := r.call("bad__hang", "")
				slow <- err
			}()
			r.fails("bad__flood", "", sandbox.ToolFailed, "bad__flood: the result is larger than 16777216 bytes")
			r.ok("bad__echo", "")
			if err := <-slow; sandbox.KindOf(err) != sandbox.Timeout || !strings.Contains(excerpt.Detail(err), "bad__hang: no answer within 2s") {
				t.Errorf("hang: %v", err)
			}
			r.fails("bad__lie", "", sandbox.ToolFailed, "bad__lie: the result breaks the tool's own output schema: result.n")
			r.fails("bad__omit", "", sandbox.ToolFailed, "bad__omit: the result has no structured content")
			if got := r.ok("bad__truth", ""); got != `{"n":1}` {
				t.Error(got)
			}
			if name != "sse" { // where a crash is the end of the stream, as in TestOldSSEThatEnds
				r.fails("bad__crash", "", sandbox.Unavailable, `"bad"`)
				eventually(t, "the server is there again", func() bool {
					_, err := r.call("bad__echo", "")
					return err == nil
				})
			}
			r.fails("bad__ask", "", sandbox.ToolFailed, "does not support elicitation")
			r.fails("bad__drip", "", sandbox.Timeout, "bad__drip: no answer within 2s")
			if name != "sse" { // where the raw server keeps what drips to itself
				eventually(t, "the next call", func() bool {
					_, err := r.call("bad__echo", "")
					return err == nil
				})
			}
			r.ok("good__echo", `{"message":"still"}`)
		})
	}
}

// TestDripEndsEarly: an answer that drips in does not hold up the other calls of its process for as long as
// its own call may take.
func TestDripEndsEarly(t *testing.T) {
	t.Parallel()
	r := open(t, withServers(`"bad":{"command":"%BIN%","args":["test-server","raw"],"timeout":120000}`), func(o *Options) { o.DripTime = time.Second })
	r.ok("bad__echo", "")
	began := time.Now()
	dripped := make(chan error, 1)
	go func() {
		_, err := r.call("bad__drip", "")
		dripped <- err
	}()
	if err := <-dripped; sandbox.KindOf(err) != sandbox.Unavailable || !strings.Contains(excerpt.Detail(err), "so slowly") || time.Since(began) < time.Second {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
	r.ok("bad__echo", "")
	if took := time.Since(began); took > 60*time.Second {
		t.Errorf("took %s", took)
	}
}

// TestOldSSEThatEnds: the stream breaks under a call, and the next call makes a new one.
func TestOldSSEThatEnds(t *testing.T) {
	t.Parallel()
	done := make(chan struct{})
	defer close(done)
	s := &rawServer{done: done}
	srv := httptest.NewServer(&oldSSE{rawServer: s})
	defer srv.Close()
	s.crash = srv.CloseClientConnections
	r := open(t, remoteConfig("sse", srv.URL))
	r.fails("r__crash", "", sandbox.Unavailable, `"r"`)
	eventually(t, "a new stream", func() bool {
		_, err := r.call("r__echo", "")
		return err == nil
	})
	srv.CloseClientConnections()
}

// TestWatchedCall: a caller hears of the progress of its own call, in order and before the result, and
// of the server's log messages, within limits.
func TestWatchedCall(t *testing.T) {
	t.Parallel()
	configs, _ := rawServers(t)
	delete(configs, "json") // one message has no room for others
	for name, config := range configs {
		t.Run(name, func(t *testing.T) {
			r := open(t, withServers(`"x":`+configOf(config)))
			var progress []sandbox.ToolProgress
			var logs []sandbox.ToolLog
			res, err := r.Catalog.CallWatched(context.Background(), alice, sandbox.Tool{Server: "x", Name: "chatty"}, nil, sandbox.ToolWatch{
				Progress: func(p sandbox.ToolProgress) { progress = append(progress, p) },
				Log:      func(l sandbox.ToolLog) { logs = append(logs, l) },
			})
			if err != nil || string(res.Result) != `"said"` {
				t.Fatalf("%v %s", err, res.Result)
			}
			if len(progress) != 3 || progress[0] != (sandbox.ToolProgress{Progress: 1, Total: 3, Message: "step 1"}) || progress[2].Progress != 3 {
				t.Errorf("%+v", progress)
			}
			if len(logs) != 2 || logs[0].Level != "warning" || logs[0].Logger != "chat" || string(logs[0].Data) != `{"words":2}` {
				t.Fatalf("%+v", logs)
			}
			if n := len(logs[1].Data); n > transport.MaxLogData+10 || !json.Valid(logs[1].Data) {
				t.Errorf("%d bytes of a log message", n)
			}
		})
	}
}

// spoken is the version of the protocol that was agreed on with a server.
func (r *rig) spoken(server string) string {
	r.t.Helper()
	c, err := r.pool.get(r.configs.current().ByName[server], alice)
	if err != nil {
		r.t.Fatal(err)
	}
	l, err := c.ensure(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	return l.session.InitializeResult().ProtocolVersion
}

// TestWatchedStateless: the same with a server of the official SDK, in the protocol without sessions.
func TestWatchedStateless(t *testing.T) {
	t.Parallel()
	srv := newTestServer()
	srv.AddTool(&mcp.Tool{Name: "talk", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for i := range 3 {
			err := req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: req.Params.GetProgressToken(), Progress: float64(i + 1)})
			if err != nil {
				return nil, err
			}
		}
		if err := req.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "warning", Data: "hm"}); err != nil { //nolint:staticcheck // deprecated, and still spoken
			return nil, err
		}
		return textResult("talked"), nil
	})
	s := serveHTTP(t, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return srv }, &mcp.StreamableHTTPOptions{Stateless: true}))
	r := open(t, remoteConfig("http", s.URL))
	var progress, logs int
	res, err := r.Catalog.CallWatched(context.Background(), alice, sandbox.Tool{Server: "r", Name: "talk"}, nil, sandbox.ToolWatch{
		Progress: func(sandbox.ToolProgress) { progress++ }, Log: func(sandbox.ToolLog) { logs++ },
	})
	if err != nil || string(res.Result) != `"talked"` || progress != 3 || logs != 1 || r.spoken("r") != protocolStateless {
		t.Errorf("%v %s: %d of progress, %d logs, %s", err, res.Result, progress, logs, r.spoken("r"))
	}
}

// TestCancellationReachesTheServer: when the caller goes away or the time is up, the server is told.
func TestCancellationReachesTheServer(t *testing.T) {
	configs, servers := rawServers(t)
	for name, s := range servers {
		t.Run(name, func(t *testing.T) {
			r := open(t, withServers(`"x":`+configOf(configs[name])))
			r.ok("x__echo", "")
			ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
			defer cancel()
			if _, err := r.Catalog.Call(ctx, alice, sandbox.Tool{Server: "x", Name: "hang"}, nil); sandbox.KindOf(err) != sandbox.Timeout {
				t.Errorf("%v", err)
			}
			r.fails("x__hang", "", sandbox.Timeout, "within 2s")
			eventually(t, "both calls are cancelled", func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				return len(s.cancelled) == 2 && s.cancelled[0] != s.cancelled[1]
			})
		})
	}
	t.Run("stateless", func(t *testing.T) {
		t.Setenv("SLEEP_CANCELLED", "")
		s := serveHTTP(t, newHandler(t, &mcp.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true}))
		r := open(t, remoteConfig("http", s.URL))
		r.ok("r__echo", `{"message":"a"}`)
		if v := r.spoken("r"); v != protocolStateless {
			t.Errorf("the server speaks %s", v)
		}
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(200*time.Millisecond, cancel)
		if _, err := r.Catalog.Call(ctx, alice, sandbox.Tool{Server: "r", Name: "sleep"}, []byte(`{"ms":20000}`)); sandbox.KindOf(err) != sandbox.Unavailable || !strings.Contains(excerpt.Detail(err), "the caller went away") {
			t.Errorf("%v", err)
		}
		eventually(t, "the tool was told", func() bool { return os.Getenv("SLEEP_CANCELLED") == "1" })
	})
	t.Run("stdio", func(t *testing.T) {
		r := open(t, withServers(`"x":{"command":"%BIN%","args":["test-server"]}`))
		r.ok("x__echo", `{"message":"a"}`)
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		defer cancel()
		began := time.Now()
		if _, err := r.Catalog.Call(ctx, alice, sandbox.Tool{Server: "x", Name: "sleep"}, []byte(`{"ms":20000}`)); err == nil || time.Since(began) > 15*time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		eventually(t, "the tool was told", func() bool { return r.ok("x__env", `{"name":"SLEEP_CANCELLED"}`) == `1` })
	})
}

// TestTTL: a list of tools is asked for again when it is as old as its server allows.
func TestTTL(t *testing.T) {
	t.Parallel()
	configs, servers := rawServers(t)
	s := servers["events"]
	s.ttl = 1
	r := open(t, withServers(`"x":`+configOf(configs["events"])))
	r.ok("x__echo", "")
	tool, err := r.Catalog.Resolve(context.Background(), alice, sandbox.ToolRef{Printed: "x__truth"})
	if err != nil || tool.Title != "The truth" || string(tool.Annotations) != `{"readOnlyHint":true}` {
		t.Errorf("%v %+v", err, tool)
	}
	began, changed := time.Now(), r.Changed()
	s.mu.Lock()
	s.tools = `,{"name":"later","inputSchema":{"type":"object"}}`
	s.mu.Unlock()
	select {
	case <-changed:
	case <-time.After(10 * time.Second):
		t.Fatal("the list is as it was")
	}
	if took := time.Since(began); took < minTTL/2 {
		t.Errorf("asked again after %s: a server may not make us ask all the time", took)
	}
	if _, err := r.Catalog.Resolve(context.Background(), alice, sandbox.ToolRef{Printed: "x__later"}); err != nil {
		t.Error(err)
	}
	version := r.Version()
	time.Sleep(2500 * time.Millisecond)
	s.mu.Lock()
	lists := s.lists
	s.mu.Unlock()
	if lists < 3 || lists > 8 {
		t.Errorf("asked %d times", lists)
	}
	if r.Version() != version {
		t.Error("the same tools, another version")
	}
}

// TestPages: a list of many pages is read to its end, and an endless one is not.
func TestPages(t *testing.T) {
	t.Parallel()
	configs, servers := rawServers(t)
	for pages, want := range map[int]int{3: 3, 1 << 30: maxPages} {
		servers["json"].pages = pages
		r := open(t, withServers(`"x":`+configOf(configs["json"])))
		if set, err := r.Catalog.Tools(context.Background(), alice); err != nil || len(set.Tools) != want {
			t.Errorf("%d pages: %v, %d tools", pages, err, len(set.Tools))
		}
	}
}

// TestUselessTools: a list of tools that are no use does not fill the log.
func TestUselessTools(t *testing.T) {
	t.Parallel()
	configs, servers := rawServers(t)
	servers["json"].tools = strings.Repeat(`,{"name":"two\u0007","inputSchema":{"type":"object"}}`, 500)
	var log logBuffer
	r := open(t, withServers(`"x":`+configOf(configs["json"])), func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	if _, err := r.Catalog.Tools(context.Background(), alice); err != nil {
		t.Fatal(err)
	}
	text := log.String()
	if n := strings.Count(text, "tool left out"); n != maxLogged || !strings.Contains(text, "more tools left out") || !strings.Contains(text, "tools=480") {
		t.Errorf("%d lines: %.2000s", n, text)
	}
}

// logBuffer is a log in memory.
type logBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// TestBackOff: a server that is down is not asked with every call, and is found again when it is up.
func TestBackOff(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	var up atomic.Bool
	s := &rawServer{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !up.Load() {
			asked.Add(1)
			http.Error(w, "down for a while", http.StatusServiceUnavailable)
			return
		}
		s.ServeHTTP(w, r)
	}))
	defer srv.Close()
	defer srv.CloseClientConnections()
	r := open(t, withServers(fmt.Sprintf(`"x":{"type":"http","url":%q}`, srv.URL)))
	for range 100 {
		r.fails("x__echo", "", sandbox.Unavailable, `"x" refuses: MCP Error (503): down for a while`)
	}
	// One attempt asks twice: in the newest version of the protocol, and in the one before.
	if n := asked.Load(); n == 0 || n > 4 {
		t.Errorf("100 calls asked %d times", n)
	}
	up.Store(true)
	eventually(t, "the server is found again", func() bool {
		_, err := r.call("x__echo", "")
		return err == nil
	})
}
