package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// library serves resources, a template and a prompt over HTTP.
func library(t *testing.T) string {
	t.Helper()
	srv := mcp.NewServer(&mcp.Implementation{Name: "library", Version: "1"}, &mcp.ServerOptions{PageSize: 2, CompletionHandler: func(_ context.Context, r *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
		return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{r.Params.Argument.Value + "!"}}}, nil
	}})
	read := func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		if strings.HasSuffix(r.Params.URI, "gone") {
			return nil, &jsonrpc.Error{Code: -32002, Message: "gone, says open-sesame-42", Data: json.RawMessage(`{"uri":"x","key":"open-sesame-42"}`)}
		}
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: r.Params.URI, Blob: []byte{1, 2}, MIMEType: "x/y"}}}, nil
	}
	for i := range 5 {
		srv.AddResource(&mcp.Resource{Name: fmt.Sprint(i), URI: fmt.Sprintf("lib:///%d", i)}, read)
	}
	srv.AddResource(&mcp.Resource{Name: "gone", URI: "lib:///gone"}, read)
	srv.AddResourceTemplate(&mcp.ResourceTemplate{Name: "any", URITemplate: "lib:///any/{x}"}, read)
	srv.AddPrompt(&mcp.Prompt{Name: "greet", Arguments: []*mcp.PromptArgument{{Name: "who", Required: true}}}, func(_ context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: "hello " + r.Params.Arguments["who"]}}}}, nil
	})
	ts := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return srv }, &mcp.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(ts.Close)
	return ts.URL
}

func TestUpstream(t *testing.T) {
	t.Parallel()
	r := open(t, withServers(fmt.Sprintf(`"lib-rary":{"url":%q,"headers":{"X-Key":"${SECRET}"}},"dead":{"command":"/nowhere"}`, library(t))))
	list := func(kind sandbox.UpstreamKind) string {
		items, err := r.Upstream.Upstream(t.Context(), alice, kind, "")
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, it := range items {
			out = append(out, it.Server+" "+it.Name+" "+it.Printed)
		}
		return strings.Join(out, ",")
	}
	if got := list(sandbox.UpstreamResources); strings.Count(got, "lib-rary lib:///") != 6 || strings.Contains(got, "__") {
		t.Errorf("resources, three pages of them: %s", got)
	}
	if got := list(sandbox.UpstreamTemplates); got != "lib-rary lib:///any/{x} " {
		t.Errorf("templates: %s", got)
	}
	if got := list(sandbox.UpstreamPrompts); got != "lib-rary greet lib_rary__greet" {
		t.Errorf("prompts: %s", got)
	}
	if _, err := r.Upstream.Upstream(t.Context(), alice, sandbox.UpstreamPrompts, "dead"); sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("a server that is dead: %v", err)
	}
	ask := func(server, method, params string) (string, error) {
		raw, err := r.Upstream.Ask(t.Context(), alice, sandbox.UpstreamRequest{Server: server, Method: method, Params: json.RawMessage(params)})
		return string(raw), err
	}
	for _, c := range []struct{ method, params, want string }{
		{"resources/read", `{"uri":"lib:///any/7"}`, `"blob":"AQI="`},
		{"prompts/get", `{"name":"greet","arguments":{"who":"you"}}`, "hello you"},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"greet"},"argument":{"name":"who","value":"yo"}}`, "yo!"},
	} {
		if got, err := ask("lib-rary", c.method, c.params); err != nil || !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, %v", c.method, got, err)
		}
	}
	_, err := ask("lib-rary", "resources/read", `{"uri":"lib:///gone"}`)
	var own *sandbox.UpstreamError
	if !errors.As(err, &own) || own.Code == 0 || !strings.HasPrefix(own.Message, "gone") || strings.Contains(own.Message+string(own.Data), "sesame") {
		t.Errorf("the server's own error: %+v, %v", own, err)
	}
	for _, c := range []struct {
		server, method, params string
		kind                   sandbox.Kind
	}{
		{"nobody", "prompts/get", `{}`, sandbox.NotFound},
		{"lib-rary", "tools/call", `{}`, sandbox.NotSupported},
		{"lib-rary", "prompts/get", `[]`, sandbox.Invalid},
		{"dead", "prompts/get", `{}`, sandbox.Unavailable},
	} {
		if _, err := ask(c.server, c.method, c.params); sandbox.KindOf(err) != c.kind {
			t.Errorf("%v: %v", c, err)
		}
	}
}

// TestUpstreamOfARealServer: the npm server "everything", which speaks the protocol before 2026-07-28.
func TestUpstreamOfARealServer(t *testing.T) {
	t.Parallel()
	r := open(t, withServers(fmt.Sprintf(`"everything":{"command":"node","args":[%q]}`, realServer(t, "server-everything"))))
	for kind, least := range map[sandbox.UpstreamKind]int{sandbox.UpstreamResources: 3, sandbox.UpstreamTemplates: 2, sandbox.UpstreamPrompts: 3} {
		items, err := r.Upstream.Upstream(t.Context(), alice, kind, "everything")
		if err != nil || len(items) < least {
			t.Errorf("%s: %d, %v", kind, len(items), err)
		}
	}
	raw, err := r.Upstream.Ask(t.Context(), alice, sandbox.UpstreamRequest{Server: "everything", Method: "resources/read", Params: json.RawMessage(`{"uri":"demo://resource/dynamic/text/1"}`)})
	if err != nil || !strings.Contains(string(raw), "demo://resource/dynamic/text/1") {
		t.Errorf("%s, %v", raw, err)
	}
}

// TestSubscribe: who watches a resource hears of its changes, on a server of either era, until the watch
// ends; the last of several watchers ends the subscription at the server.
func TestSubscribe(t *testing.T) {
	t.Parallel()
	for era, stateless := range map[string]bool{"2025-11-25": false, "2026-07-28": true} {
		t.Run(era, func(t *testing.T) {
			ended := make(chan string, 1)
			srv := mcp.NewServer(&mcp.Implementation{Name: "news", Version: "1"}, &mcp.ServerOptions{
				SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
				UnsubscribeHandler: func(_ context.Context, r *mcp.UnsubscribeRequest) error { ended <- r.Params.URI; return nil },
			})
			srv.AddResource(&mcp.Resource{Name: "n", URI: "news:///1"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
				return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{}}, nil
			})
			ts := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return srv }, &mcp.StreamableHTTPOptions{Stateless: stateless}))
			defer ts.Close()
			r := open(t, withServers(fmt.Sprintf(`"news":{"url":%q}`, ts.URL)))
			defer func() { _ = r.Close() }() // before the server: it waits for its streams
			one, stopOne := context.WithCancel(t.Context())
			defer stopOne()
			two, stopTwo := context.WithCancel(t.Context())
			defer stopTwo()
			heard := make(chan int, 100)
			for i, ctx := range []context.Context{one, two} {
				if err := r.Upstream.Subscribe(ctx, alice, "news", "news:///1", func() { heard <- i }); err != nil {
					t.Fatal(err)
				}
			}
			got := map[int]bool{}
			eventually(t, "both hear of a change", func() bool {
				if err := srv.ResourceUpdated(t.Context(), &mcp.ResourceUpdatedNotificationParams{URI: "news:///1"}); err != nil {
					t.Fatal(err)
				}
				for len(heard) > 0 {
					got[<-heard] = true
				}
				return len(got) == 2
			})
			stopOne()
			stopTwo()
			select {
			case uri := <-ended:
				if uri != "news:///1" {
					t.Errorf("ended: %s", uri)
				}
			case <-time.After(10 * time.Second):
				t.Error("the subscription goes on")
			}
			if err := r.Upstream.Subscribe(t.Context(), alice, "nobody", "x", func() {}); sandbox.KindOf(err) != sandbox.NotFound {
				t.Errorf("a server that is not there: %v", err)
			}
		})
	}
}

func TestSubscribeWhereThereIsNone(t *testing.T) {
	t.Parallel()
	r := open(t, withServers(fmt.Sprintf(`"lib":{"url":%q}`, library(t))))
	if err := r.Upstream.Subscribe(t.Context(), alice, "lib", "lib:///1", func() {}); sandbox.KindOf(err) != sandbox.NotSupported {
		t.Errorf("%v", err)
	}
}

// TestUpstreamChanges: the hub notices, in both eras, when a server says that its prompts or resources
// changed. A server that reports changes all the time is not listed all the time.
func TestUpstreamChanges(t *testing.T) {
	t.Parallel()
	for era, o := range map[string]*mcp.StreamableHTTPOptions{"sessions": {}, "stateless": {Stateless: true}} {
		t.Run(era, func(t *testing.T) {
			srv := newTestServer()
			srv.AddPrompt(&mcp.Prompt{Name: "first"}, nil)
			srv.AddResource(&mcp.Resource{Name: "first", URI: "test://first"}, nil)
			s := serveHTTP(t, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return srv }, o))
			t.Cleanup(func() {
				for session := range srv.Sessions() {
					_ = session.Close()
				}
			})
			r := open(t, remoteConfig("http", s.URL))
			r.ok("r__echo", `{"message":"a"}`)
			prompts, resources := r.Upstream.UpstreamChanged(sandbox.UpstreamPrompts), r.Upstream.UpstreamChanged(sandbox.UpstreamResources)
			heard := func(c <-chan struct{}) bool {
				select {
				case <-c:
					return true
				case <-time.After(10 * time.Millisecond):
					return false
				}
			}
			// The stream on which the server says so may be opened after the first call.
			for i, deadline := 0, time.Now().Add(20*time.Second); !heard(prompts); i++ {
				if time.Now().After(deadline) {
					t.Fatal("nothing heard of prompts")
				}
				srv.AddPrompt(&mcp.Prompt{Name: fmt.Sprint("p", i)}, nil)
			}
			if heard(resources) {
				t.Error("resources are others, which nobody said")
			}
			srv.AddResource(&mcp.Resource{Name: "second", URI: "test://second"}, nil)
			select {
			case <-resources:
			case <-time.After(20 * time.Second):
				t.Error("nothing heard of resources")
			}
		})
	}
}
