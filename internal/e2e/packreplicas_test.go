package e2e

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	skerry "github.com/skerry-sandbox/skerry/sdk/go"
	"github.com/skerry-sandbox/skerry/sdk/go/packs"
)

// provideAt is provide with the addresses of several servers.
func provideAt(t *testing.T, p *packs.Pack, key packs.Credential, at ...*server) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	connected, ended := make(chan struct{}, 100), make(chan error, 1)
	s := packs.Server{URL: at[0].url, Credential: key, Log: slog.New(slog.DiscardHandler), Connected: func() { connected <- struct{}{} }}
	for _, o := range at[1:] {
		s.Others = append(s.Others, o.url)
	}
	go func() { ended <- p.Serve(ctx, s) }()
	t.Cleanup(func() { cancel(); <-ended })
	select {
	case <-connected:
	case err := <-ended:
		ended <- err
		t.Fatal(err)
	case <-time.After(time.Minute):
		t.Fatal("the pack is not connected within a minute")
	}
}

// callLead calls the tool that finds a lead. It may be called from any goroutine.
func (s *server) callLead(thread, name string) (answer, error) {
	return s.request("POST", "/api/threads/"+thread+"/tools/call", map[string]any{"tool": "crm__find_lead", "input": map[string]any{"name": name}})
}

// knowsLead waits until a server has the pack.
func (s *server) knowsLead(thread string) {
	s.t.Helper()
	eventually(s.t, "the pack of the other server can be called", func() bool {
		a, err := s.callLead(thread, "Ada")
		return err == nil && a.status == 200
	})
}

// waiting gives the pack a tool that waits until release is closed, and tells of its begin and end.
func waiting(t *testing.T, p *packs.Pack) (begun, ended chan error, release chan struct{}) {
	t.Helper()
	begun, ended, release = make(chan error, 100), make(chan error, 100), make(chan struct{})
	must(t, packs.Tool(p, "wait", "Waits", func(ctx context.Context, _ struct{}) (string, error) {
		begun <- nil
		select {
		case <-release:
			ended <- nil
			return "whole", nil
		case <-ctx.Done():
			ended <- ctx.Err()
			return "", ctx.Err()
		}
	}, packs.Timeout(time.Minute)))
	return begun, ended, release
}

// wait calls the tool of waiting.
func (s *server) wait(thread string) <-chan answer {
	got := make(chan answer, 1)
	go func() {
		a, err := s.request("POST", "/api/threads/"+thread+"/tools/call", map[string]any{"tool": "crm__wait", "input": map[string]any{}})
		if err != nil {
			s.t.Error(err)
		}
		got <- a
	}()
	return got
}

// TestPackElsewhere: a thread of one server calls a pack that is connected to the other one, over HTTP, by /mcp and from code.
// Each call has one attempt and one result on the record. A call that is given up ends in the pack. What a revoked key
// provides ends within 5 s for all servers.
func TestPackElsewhere(t *testing.T) {
	whole(t, TestPackServerKilled)
	t.Parallel()
	a, b, _ := startTwo(t, "docker")
	var admin, made struct{ ID, Secret string }
	a.do("POST", "/api/keys", map[string]any{"name": "a", "user": "ann", "role": "admin"}).into(t, &admin)
	a.key, b.key = admin.Secret, admin.Secret
	a.do("POST", "/api/keys", map[string]any{"name": "p", "user": "ann", "role": "pack"}).into(t, &made)
	p := leads(t)
	begun, ended, _ := waiting(t, p)
	provideAt(t, p, packs.BearerKey(made.Secret), a)
	b.acquire("t", "direct")
	b.knowsLead("t")
	if a, err := b.callLead("t", "Ada"); err != nil || !strings.Contains(string(a.body), `"email":"Ada@example.com","for":"default/ann/t"`) {
		t.Errorf("HTTP: %v %d %s", err, a.status, a.body)
	}
	if a, err := b.callLead("t", ""); err != nil || a.status != 200 || !strings.Contains(string(a.body), `"is_error":true`) {
		t.Errorf("a failure of the tool: %v %d %s", err, a.status, a.body)
	}
	if r := b.run("t", "execute_code", map[string]any{"language": "python", "code": "from servers.crm import find_lead\nprint(find_lead(name='Bo')['email'])"}); r.Stdout != "Bo@example.com\n" {
		t.Errorf("code: %+v", r)
	}
	progress := make(chan string, 100)
	session := b.mcpClient("/mcp/t", &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { progress <- r.Params.Message },
	})
	res, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "crm__find_lead", Arguments: map[string]any{"name": "Cy"}, Meta: mcp.Meta{"progressToken": "p"}})
	if raw, _ := json.Marshal(res); err != nil || !strings.Contains(string(raw), `"email":"Cy@example.com"`) {
		t.Errorf("/mcp: %v %s", err, raw)
	}
	if got := <-progress; got != "found Cy" {
		t.Errorf("progress %q", got)
	}
	givenUp, cancel := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() {
		defer close(left)
		_, _ = session.CallTool(givenUp, &mcp.CallToolParams{Name: "crm__wait", Arguments: map[string]any{}})
	}()
	<-begun
	cancel()
	<-left
	if err := <-ended; err == nil {
		t.Error("a call that was given up ran to its end")
	}
	eventually(t, "each call has one attempt and one result on the record", func() bool {
		n, m := len(b.records("action=tool_call&thread=t", "attempt")), len(b.records("action=tool_call&thread=t", "result"))
		return n == m && n >= 6
	})

	running := b.wait("t")
	<-begun
	began := time.Now()
	if a := a.do("DELETE", "/api/keys/"+made.ID, nil); a.status != 204 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a := <-running; a.code() != "unavailable" || !strings.Contains(string(a.body), "revoked") {
		t.Errorf("a call whose pack lost its key: %d %s", a.status, a.body)
	}
	t.Logf("the call ended %s after its key was revoked", time.Since(began))
}

// TestSkillElsewhere: the program of a skill may be connected to another server than that of the thread.
func TestSkillElsewhere(t *testing.T) {
	whole(t, TestTwoServers)
	t.Parallel()
	a, b, _ := startTwo(t, "docker")
	b.acquire("t", "direct")
	p, ended := counter(t, "code-review")
	attached, err := packs.AttachSkill(context.Background(), skerry.New(b.url, skerry.Options{}).Thread("t"), review("code-review"), p, quiet(a))
	must(t, err)
	t.Cleanup(func() { _ = attached.Close() })
	if a := b.activate("t", "code-review"); !strings.Contains(string(a.body), "count-lines") {
		t.Errorf("activation: %s", a.body)
	}
	for _, s := range []*server{b, a} { // the thread's server, and one that passes the call on to it
		if a := s.skillTool("t", "code-review", "count-lines", lineText{"a\nb"}); a.status != 200 || !strings.Contains(string(a.body), `"lines":2`) {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	running := make(chan answer, 1)
	go func() {
		got, _ := b.request("POST", "/api/threads/t/skills/code-review/tools/wait", map[string]any{})
		running <- got
	}()
	<-ended // it has begun
	must(t, attached.Close())
	if got := <-running; got.code() != "unavailable" {
		t.Errorf("a call of a program that stops: %d %s", got.status, got.body)
	}
	if a := b.skillTool("t", "code-review", "count-lines", lineText{"a"}); a.code() != "not_found" {
		t.Errorf("a skill that is gone: %d %s", a.status, a.body)
	}
}

// TestPackServerKilled: the server that has a pack is killed. A call under way ends once, with an error that says so. The pack
// connects to the other server, and a thread's call works.
func TestPackServerKilled(t *testing.T) {
	t.Parallel()
	a, b, _ := startTwo(t, "docker")
	p := leads(t)
	begun, _, _ := waiting(t, p)
	provideAt(t, p, nil, a, b)
	b.knowsLead("t")
	running := b.wait("t")
	<-begun
	began := time.Now()
	a.kill()
	if got := <-running; got.code() != "unavailable" || !strings.Contains(string(got.body), "went while the call ran") {
		t.Errorf("the call under way: %d %s", got.status, got.body)
	}
	b.knowsLead("t")
	t.Logf("a call worked %s after its server was killed", time.Since(began))
	if n, m := len(b.records("action=tool_call&thread=t&tool=crm__wait", "attempt")), len(b.records("action=tool_call&thread=t&tool=crm__wait", "result")); n != 1 || m != 1 {
		t.Errorf("%d attempts and %d results of the call are recorded", n, m)
	}
}

// TestPackServerStops: the server that has a pack drains. The call under way ends normally, and no other one fails.
func TestPackServerStops(t *testing.T) {
	whole(t, TestPackServerKilled)
	t.Parallel()
	a, b, _ := startTwo(t, "docker")
	p := leads(t)
	begun, _, release := waiting(t, p)
	provideAt(t, p, nil, a, b)
	b.knowsLead("t")
	running := b.wait("t")
	<-begun
	end := make(chan struct{})
	var calls atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-end:
				return
			default:
			}
			if got, err := b.callLead("t", "Ada"); err != nil || got.status != 200 {
				t.Errorf("a call while the other server stops: %v %d %s", err, got.status, got.body)
				return
			}
			calls.Add(1)
		}
	})
	must(t, a.cmd.Process.Signal(syscall.SIGTERM))
	moved := func() bool {
		got, err := b.request("GET", "/api/packs", nil)
		return err == nil && strings.Contains(string(got.body), `"state":"connected"`) && strings.Contains(string(got.body), `"calls":`) && !strings.Contains(string(got.body), `"calls":0`)
	}
	eventually(t, "the pack is at the other server, and called there", moved)
	close(release)
	if got := <-running; got.status != 200 || !strings.Contains(string(got.body), "whole") {
		t.Errorf("the call under way: %d %s", got.status, got.body)
	}
	<-a.done
	before := calls.Load()
	eventually(t, "calls go on", func() bool { return calls.Load() > before+10 || t.Failed() })
	close(end)
	wg.Wait()
	t.Logf("%d calls", calls.Load())
}

// TestPackRedisAway: while Redis is away, threads that run use the packs of their own server and of the other one.
func TestPackRedisAway(t *testing.T) {
	whole(t, TestPackAway)
	t.Parallel()
	a, b, redis := startTwo(t, "docker")
	provideAt(t, leads(t), nil, a)
	works := func(what string, s *server, thread string) {
		t.Helper()
		r := s.run(thread, "execute_code", map[string]any{"language": "python", "code": "from servers.crm import find_lead\nprint(find_lead(name='Bo')['email'])"})
		if r.Stdout != "Bo@example.com\n" {
			t.Errorf("%s: %+v", what, r)
		}
	}
	a.knowsLead("near")
	b.knowsLead("far")
	works("before, of the own server", a, "near")
	works("before, of the other server", b, "far")
	redis.Kill()
	redis.Wipe()
	for range 4 { // longer than a lease
		works("Redis is away, of the own server", a, "near")
		works("Redis is away, of the other server", b, "far")
		time.Sleep(1500 * time.Millisecond)
	}
	redis.Restart()
	eventually(t, "Redis is back for both", func() bool {
		for _, s := range []*server{a, b} {
			if got, err := s.request("GET", "/readyz", nil); err != nil || got.status != http.StatusOK {
				return false
			}
		}
		return true
	})
	for range 4 {
		works("Redis is back, of the own server", a, "near")
		works("Redis is back, of the other server", b, "far")
		time.Sleep(time.Second)
	}
}
