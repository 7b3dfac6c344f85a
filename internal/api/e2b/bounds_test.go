package e2b

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/skerry-sandbox/skerry/internal/api/e2b/envd/filesystem"
	"github.com/skerry-sandbox/skerry/internal/api/e2b/envd/process"
	"github.com/skerry-sandbox/skerry/internal/api/e2b/envd/process/processconnect"
	"github.com/skerry-sandbox/skerry/internal/api/held"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestEveryRequestHasLimits: a request without a row would be refused.
func TestEveryRequestHasLimits(t *testing.T) {
	t.Parallel()
	for _, file := range []protoreflect.FileDescriptor{process.File_internal_api_e2b_envd_process_process_proto, filesystem.File_internal_api_e2b_envd_filesystem_filesystem_proto} {
		for i := range file.Services().Len() {
			for methods, j := file.Services().Get(i).Methods(), 0; j < methods.Len(); j++ {
				m := methods.Get(j)
				if limits := requests.Of(m.Input()); limits.Bytes == 0 && m.Name() != "StreamInput" {
					t.Errorf("%s has none", m.Input().FullName())
				}
			}
		}
	}
}

// TestManyWords: a word has two bytes and takes sixteen of memory and more, so that values are counted first,
// in each form of a message, compressed or not.
func TestManyWords(t *testing.T) {
	t.Parallel()
	h, srv := start(t)
	id := create(t, srv.URL, `{"timeout":60}`)
	h.events = []sandbox.Event{exited(0)}
	ask := func(words int, options ...connect.ClientOption) error {
		c := processconnect.NewProcessClient(http.DefaultClient, srv.URL, options...)
		r := connect.NewRequest(&process.StartRequest{Process: &process.ProcessConfig{Cmd: "x", Args: make([]string, words)}})
		about(r, id)
		s, err := c.Start(t.Context(), r)
		if err != nil {
			return err
		}
		for s.Receive() { //nolint:revive // to its end
		}
		_ = s.Close()
		return s.Err()
	}
	for name, options := range map[string][]connect.ClientOption{
		"protobuf": nil, "JSON": {connect.WithProtoJSON()}, "gzip": {connect.WithSendGzip()}, "JSON, gzip": {connect.WithProtoJSON(), connect.WithSendGzip()}, "gRPC-Web": {connect.WithGRPCWeb()},
	} {
		if err := ask(sandbox.MaxArgs-1, options...); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := ask(100_000, options...); connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), "values") {
			t.Errorf("%s: %v", name, err)
		}
	}
	body := `{"code":"1","env_vars":{"a":[` + strings.Repeat("[],", 300_000) + `0]}}`
	if status, answer := call(t, "POST", srv.URL+"/execute", id, body); status != 400 || !strings.Contains(answer, "values") {
		t.Errorf("%d %.200s", status, answer)
	}
}

// TestHeld: the bodies of one caller take a bounded part of the server's memory, each as long as it may become. A command
// that runs holds none.
func TestHeld(t *testing.T) {
	t.Parallel()
	h, a := adapter(t)
	a.o.Held.Wait = time.Millisecond
	srv := serve(t, a)
	id := create(t, srv.URL, `{"timeout":60}`)
	others := a.o.Held.Of(held.CallerOf(me))
	if err := others.Take(t.Context(), held.OfCaller-held.Copies*1000); err != nil {
		t.Fatal(err)
	}
	post := func(path, kind, body string, headers ...string) (int, string, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", kind)
		r.Header.Set(sandboxHeader, id)
		for _, name := range headers {
			r.Header.Set(name, "gzip")
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close() //nolint:errcheck // test
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, res.Header.Get("Retry-After"), string(text)
	}
	long := `{"code":"` + strings.Repeat("1", 1000) + `"}`
	for _, c := range []struct {
		name, path, kind, body, says string
		status                       int
		headers                      []string
	}{
		{"code", "/execute", "application/json", long, `"code":429`, 429, nil},
		{"a call", processconnect.ProcessListProcedure, "application/json", long, "resource_exhausted", 429, nil},
		{"a packed call", processconnect.ProcessListProcedure, "application/json", "{}", "resource_exhausted", 429, []string{"Content-Encoding"}},
		// A stream of Connect is always 200, and its last message has the error.
		{"a packed stream", processconnect.ProcessStartProcedure, "application/connect+json", "\x00\x00\x00\x00\x02{}", "resource_exhausted", 200, []string{"Connect-Content-Encoding"}},
	} {
		if status, retry, answer := post(c.path, c.kind, c.body, c.headers...); status != c.status || retry == "" || !strings.Contains(answer, c.says) {
			t.Errorf("%s: %d, Retry-After %q, %.300s", c.name, status, retry, answer)
		}
	}
	if status, _, answer := post(processconnect.ProcessListProcedure, "application/json", "{}"); status != http.StatusOK {
		t.Errorf("a short call: %d %s", status, answer)
	}
	others.End()

	h.events = nil // the command goes on
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := processconnect.NewProcessClient(http.DefaultClient, srv.URL, connect.WithSendGzip())
	for range 6 { // each may have been 128 MiB
		r := connect.NewRequest(&process.StartRequest{Process: &process.ProcessConfig{Cmd: "x"}})
		about(r, id)
		s, err := c.Start(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close() //nolint:errcheck // test
		if !s.Receive() {
			t.Fatalf("a command beside others: %v", s.Err())
		}
	}
}
