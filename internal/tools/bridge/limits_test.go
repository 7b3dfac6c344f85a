package bridge

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/policy"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/call"
)

// block makes calls wait for their context or for release; started gets one value per call.
func (g *rig) block() (started chan string, release func()) {
	started = make(chan string, MaxParallel+10)
	gate := make(chan struct{})
	g.hub.call = func(ctx context.Context, tool sandbox.Tool, input []byte) (sandbox.ToolResult, error) {
		started <- tool.Name
		select {
		case <-gate:
			return sandbox.ToolResult{Result: input}, nil
		case <-ctx.Done():
			return sandbox.ToolResult{}, ctx.Err()
		}
	}
	return started, sync.OnceFunc(func() { close(gate) })
}

func TestFinishCancels(t *testing.T) {
	g := newRig(t)
	started, _ := g.block()
	token := g.register("e")
	answers := make(chan answer, 3)
	for i := range 3 {
		go func() { answers <- g.post("/call", token, fmt.Sprintf(`{"tool":"s__%d"}`, i)) }()
		if got := <-started; got != fmt.Sprint(i) {
			t.Fatal(got)
		}
	}
	begun := time.Now()
	calls := g.bridge.Finish("e")
	if took := time.Since(begun); took > finishWait/2 {
		t.Errorf("took %v", took)
	}
	if len(calls) != 3 {
		t.Fatalf("%+v", calls)
	}
	for i, c := range calls {
		if c.Tool != fmt.Sprintf("s__%d", i) || c.Status != "error" || c.Error != "the exec has ended" {
			t.Errorf("%+v", c)
		}
	}
	for range 3 {
		if a := <-answers; a.status != 401 {
			t.Errorf("%+v", a)
		}
	}
	if a := g.post("/call", token, `{"tool":"s__x"}`); a.status != 401 {
		t.Errorf("after the end: %+v", a)
	}
}

// TestFinishDoesNotWaitLong: a hub that ignores its context delays no other call.
func TestFinishDoesNotWaitLong(t *testing.T) {
	g := newRig(t)
	started, gate := make(chan struct{}), make(chan struct{})
	g.hub.call = func(context.Context, sandbox.Tool, []byte) (sandbox.ToolResult, error) {
		close(started)
		<-gate
		return sandbox.ToolResult{}, nil
	}
	token := g.register("e")
	done := make(chan answer, 1)
	go func() { done <- g.post("/call", token, `{"tool":"s__x"}`) }()
	<-started
	begun := time.Now()
	calls := g.bridge.Finish("e")
	if took := time.Since(begun); took > 2*finishWait {
		t.Errorf("took %v", took)
	}
	if len(calls) != 1 || calls[0].Status != "error" {
		t.Errorf("%+v", calls)
	}
	close(gate)
	<-done
}

func TestParallelLimit(t *testing.T) {
	g := newRig(t)
	started, release := g.block()
	defer release()
	token := g.register("e")
	var wg sync.WaitGroup
	for range MaxParallel {
		wg.Go(func() {
			if a := g.post("/call", token, `{"tool":"s__x"}`); a.status != 200 {
				t.Errorf("%+v", a)
			}
		})
	}
	for range MaxParallel {
		<-started
	}
	if a := g.post("/call", token, `{"tool":"s__x"}`); a.status != 429 || a.Error.Code != "quota_exceeded" || !strings.Contains(a.Error.Message, fmt.Sprint(MaxParallel)) {
		t.Errorf("%+v", a)
	}
	// Another exec of the thread is not affected.
	other := g.register("other")
	release()
	if a := g.post("/call", other, `{"tool":"s__x"}`); a.status != 200 {
		t.Errorf("%+v", a)
	}
	wg.Wait()
	if a := g.post("/call", token, `{"tool":"s__x"}`); a.status != 200 {
		t.Errorf("afterwards: %+v", a)
	}
}

func TestCallLimit(t *testing.T) {
	g := newRig(t)
	token := g.register("e")
	e, _ := g.bridge.lookup(token, thread)
	e.requests = e.limits.Calls - 1
	if a := g.post("/call", token, `{"tool":"s__x"}`); a.status != 200 {
		t.Errorf("%+v", a)
	}
	if a := g.post("/call", token, `{"tool":"s__x"}`); a.status != 429 || !strings.Contains(a.Error.Message, "10000") {
		t.Errorf("%+v", a)
	}
}

// TestLargeResult: a large result is kept as a file, and all results together have a bound.
func TestLargeResult(t *testing.T) {
	g := newRig(t)
	g.hub.call = func(context.Context, sandbox.Tool, []byte) (sandbox.ToolResult, error) {
		return sandbox.ToolResult{Result: []byte(`"` + strings.Repeat("x", 2998) + `"`)}, nil
	}
	token := g.register("e")
	for i := 1; i <= 3; i++ {
		want := fmt.Sprintf(`{"file":{"path":"/mnt/user-data/x/e-%d","bytes":3000,"format":"json"}}`, i)
		if a := g.post("/call", token, `{"tool":"s__x"}`); a.status != 200 || string(a.body) != want {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	for range 2 {
		if a := g.post("/call", token, `{"tool":"s__x"}`); a.status != 413 || !strings.Contains(a.Error.Message, "10000 bytes") {
			t.Errorf("%+v", a)
		}
	}
	calls := g.bridge.Finish("e")
	if len(calls) != 4 || calls[3].Status != "denied" {
		t.Errorf("%+v", calls)
	}
}

func TestCloseCancels(t *testing.T) {
	g := newRig(t)
	started, _ := g.block()
	token := g.register("e")
	done := make(chan struct{})
	go func() {
		defer close(done)
		req, _ := http.NewRequest("POST", "http://bridge/call", strings.NewReader(`{"tool":"s__x"}`))
		req.Header.Set("Authorization", "Bearer "+token)
		if resp, err := g.client.Do(req); err == nil {
			resp.Body.Close()
		}
	}()
	<-started
	begun := time.Now()
	if err := g.endpoint.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > 2*closeWait {
		t.Errorf("took %v", took)
	}
	<-done
	if c := g.bridge.Finish("e"); len(c) != 1 || c[0].Status != "error" {
		t.Errorf("%+v", c)
	}
	if err := g.endpoint.Close(); err != nil {
		t.Error(err)
	}
}

// TestCallerGone: a program that ends does not leave its call behind.
func TestCallerGone(t *testing.T) {
	g := newRig(t)
	started, _ := g.block()
	token := g.register("e")
	conn, err := net.Dial("unix", g.socket)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST /call HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 15\r\n\r\n{\"tool\":\"s__x\"}", token)
	<-started
	conn.Close()
	for range 100 {
		if l := g.recorder.list(); len(l) == 2 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if c := g.bridge.Finish("e"); len(c) != 1 || c[0].Status != "error" || c[0].Error != "the caller went away" {
		t.Errorf("%+v", c)
	}
}

// TestSlowConnections: connections that send nothing, or very slowly, delay neither calls nor Close.
func TestSlowConnections(t *testing.T) {
	g := newRig(t)
	token := g.register("e")
	for i := range 50 {
		conn, err := net.Dial("unix", g.socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		switch i % 3 {
		case 1:
			fmt.Fprint(conn, "POST /call HTTP/1.1\r\nHost: x\r\nX-")
		case 2:
			fmt.Fprintf(conn, "POST /call HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 100\r\n\r\n{\"tool\":", token)
		}
	}
	if a := g.post("/call", token, `{"tool":"s__x"}`); a.status != 200 {
		t.Errorf("%+v", a)
	}
	begun := time.Now()
	g.bridge.Finish("e")
	if err := g.endpoint.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > 2*closeWait {
		t.Errorf("took %v", took)
	}
}

// TestSlowHeaderIsCut: a connection whose request does not come ends.
func TestSlowHeaderIsCut(t *testing.T) {
	g := newRig(t)
	ln, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: g.endpoint.routes(), ReadHeaderTimeout: 50 * time.Millisecond, ReadTimeout: 100 * time.Millisecond}
	go server.Serve(ln)
	defer server.Close()
	token := g.register("e")
	for _, start := range []string{"POST /call HTTP/1.1\r\nHost:", "POST /call HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + token + "\r\nContent-Length: 100\r\n\r\n{"} {
		conn, err := net.Dial("unix", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(5 * time.Second))
		fmt.Fprint(conn, start)
		r := bufio.NewReader(conn)
		for {
			if _, err = r.ReadString('\n'); err != nil {
				break
			}
		}
		if os.IsTimeout(err) {
			t.Errorf("%.30q: still open", start)
		}
		conn.Close()
	}
	// A call may take longer than its request.
	g.hub.call = func(ctx context.Context, _ sandbox.Tool, in []byte) (sandbox.ToolResult, error) {
		select {
		case <-time.After(300 * time.Millisecond):
			return sandbox.ToolResult{Result: in}, nil
		case <-ctx.Done():
			return sandbox.ToolResult{}, ctx.Err()
		}
	}
	g.socket = ln.Addr().String()
	if a := g.post("/call", token, `{"tool":"s__x"}`); a.status != 200 {
		t.Errorf("%+v", a)
	}
	g.client.CloseIdleConnections()
}

func TestSocket(t *testing.T) {
	g := newRig(t)
	dir := t.TempDir() + "/" + strings.Repeat("d", 120) // longer than a socket address
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/"+socketName, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	uid := os.Getuid()
	if uid == 0 {
		uid = 1_234_567
	}
	for range 2 { // the second time over the first one's socket
		ep, err := g.bridge.Serve(dir, uid, thread)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(dir + "/" + socketName)
		if err != nil || info.Mode() != os.ModeSocket|0o600 {
			t.Errorf("%v %v", info.Mode(), err)
		}
		if err := ep.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := g.bridge.Serve(dir+"/none", uid, thread); err == nil {
		t.Error("a folder that is not there")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v %v", entries, err)
	}
}

func FuzzParseCall(f *testing.F) {
	for _, s := range []string{`{"tool":"s__x","input":{}}`, `{"server":"s","tool":"x","arguments":{"a":1}}`, `{`, `[]`, `{"tool":null,"input":null}`, `{"tool":"x","input": {}} `} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		ref, input, err := parseCall(body)
		if err != nil {
			if sandbox.KindOf(err) != sandbox.Invalid {
				t.Errorf("kind %s", sandbox.KindOf(err))
			}
			return
		}
		if call.NameOf(ref) == "" || len(input) < 2 || input[0] != '{' || input[len(input)-1] != '}' {
			t.Errorf("%+v %q", ref, input)
		}
	})
}

// BenchmarkCall compares one call by the socket with one at the hub.
func BenchmarkCall(b *testing.B) {
	b.Run("hub", func(b *testing.B) {
		h := &fakeHub{}
		for b.Loop() {
			tool, _ := h.ResolveAmong(context.Background(), thread, sandbox.ToolRef{Printed: "s__x"}, nil)
			if _, err := h.CallChecked(context.Background(), thread, tool, []byte(`{"a":1}`), sandbox.ToolWatch{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("socket", func(b *testing.B) {
		g := newRig(b)
		g.bridge.calls = call.NewMaker(call.MakerOptions{Guard: policy.New(policy.Options{Hub: g.hub}), Records: nothing{}})
		token := g.register("e")
		e, _ := g.bridge.lookup(token, thread)
		b.ReportAllocs()
		for b.Loop() {
			e.mu.Lock()
			e.requests = 0
			e.mu.Unlock()
			if a := g.post("/call", token, `{"tool":"s__x","input":{"a":1}}`); a.status != 200 {
				b.Fatalf("%+v", a)
			}
		}
	})
}

type nothing struct{}

func (nothing) Attempt(context.Context, call.Attempt) (string, error) { return "id", nil }
func (nothing) Result(context.Context, string, call.Outcome) error    { return nil }
