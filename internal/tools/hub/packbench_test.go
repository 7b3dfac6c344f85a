package hub

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/packs"
	provider "github.com/skerry-sandbox/skerry/sdk/go/packs"
)

type benchText struct {
	Text string `json:"text"`
}

// BenchmarkPack calls one tool through the hub: of a pack, and of a streamable-HTTP MCP server. Both are Go programs at
// the other end of a TCP connection of this machine. It reports the quantiles of the latency in microseconds.
func BenchmarkPack(b *testing.B) {
	r := packs.New(packs.Options{Log: slog.New(slog.DiscardHandler)})
	h := r.Handler()
	caller := sandbox.Caller{Owner: sandbox.Owner{Tenant: alice.Tenant}, Role: sandbox.RolePack}
	host := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		h.ServeHTTP(w, q.WithContext(packs.WithPeer(q.Context(), packs.Peer{Host: q.Host, Caller: &caller, Unblock: packs.Unblock(http.NewResponseController(w))})))
	}))
	host.Config.Protocols = &http.Protocols{}
	host.Config.Protocols.SetUnencryptedHTTP2(true)
	host.Start()
	b.Cleanup(host.Close)
	b.Cleanup(func() { _ = r.Close() })
	p := provider.New("pack", "1")
	if err := provider.Tool(p, "echo", "", func(_ context.Context, in benchText) (benchText, error) { return in, nil }); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	connected, ended := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		ended <- p.Serve(ctx, provider.Server{URL: host.URL, Log: slog.New(slog.DiscardHandler), Connected: func() { connected <- struct{}{} }})
	}()
	b.Cleanup(func() { cancel(); <-ended })
	<-connected
	s := mcp.NewServer(&mcp.Implementation{Name: "web", Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "echo"}, func(_ context.Context, _ *mcp.CallToolRequest, in benchText) (*mcp.CallToolResult, benchText, error) {
		return nil, in, nil
	})
	web := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true}))
	b.Cleanup(web.Close)
	hub := openBench(b, r, `{"mcpServers":{"web":{"type":"http","url":"`+web.URL+`"}}}`)
	for _, server := range []string{"pack", "web"} {
		for _, callers := range []int{1, 8} {
			b.Run(fmt.Sprintf("%s/%d", server, callers), func(b *testing.B) { benchCalls(b, hub, server, callers) })
		}
	}
}

// openBench opens a hub with packs and a configuration.
func openBench(b *testing.B, r *packs.Registry, config string) *Hub {
	b.Helper()
	path := filepath.Join(b.TempDir(), "extensions_config.json")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		b.Fatal(err)
	}
	h, err := Open(Options{ConfigPath: path, Log: slog.New(slog.DiscardHandler), LookupEnv: os.LookupEnv, UserServers: UserServers{
		Of: func(o sandbox.Owner) (*sandbox.UserServers, error) { return r.Servers(o.Tenant), nil },
	}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = h.Close() })
	return h
}

func benchCalls(b *testing.B, h *Hub, server string, callers int) {
	tool, err := h.Catalog.Resolve(b.Context(), alice, sandbox.ToolRef{Server: server, Name: "echo"})
	if err != nil {
		b.Fatal(err)
	}
	each := make([][]time.Duration, callers)
	var left atomic.Int64
	left.Store(int64(b.N))
	var calling sync.WaitGroup
	b.ResetTimer()
	for i := range callers {
		calling.Go(func() {
			for left.Add(-1) >= 0 {
				began := time.Now()
				res, err := h.Catalog.Call(b.Context(), alice, tool, []byte(`{"text":"hello"}`))
				if err != nil || string(res.Result) != `{"text":"hello"}` {
					b.Error(err, string(res.Result))
					return
				}
				each[i] = append(each[i], time.Since(began))
			}
		})
	}
	calling.Wait()
	took := slices.Concat(each...)
	if len(took) == 0 {
		return
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}
