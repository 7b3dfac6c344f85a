package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	skerry "github.com/skerry-sandbox/skerry/sdk/go"
)

// follower follows the events of a thread, as an agent's backend does.
type follower struct {
	t    *testing.T
	got  chan skerry.ThreadEvent
	end  chan error
	stop context.CancelFunc
}

func follow(t *testing.T, url, thread, after string) *follower {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	f := &follower{t: t, got: make(chan skerry.ThreadEvent, 1000), end: make(chan error, 1), stop: stop}
	t.Cleanup(stop)
	go func() {
		for e, err := range skerry.New(url, skerry.Options{Patience: 2 * time.Minute}).Thread(thread).Events.Follow(ctx, after) {
			if err != nil {
				f.end <- err
				return
			}
			f.got <- e
		}
		f.end <- nil
	}()
	return f
}

// want returns the next event of this kind. Others before it are passed over.
func (f *follower) want(kind string) skerry.ThreadEvent {
	f.t.Helper()
	late := time.After(time.Minute)
	for {
		select {
		case e := <-f.got:
			if e.Kind == kind {
				return e
			}
		case err := <-f.end:
			f.t.Fatalf("the stream ended with %v, and no %s", err, kind)
		case <-late:
			f.t.Fatalf("no event %s", kind)
		}
	}
}

// TestSandboxEvents: the stream tells of each state of the thread's sandbox, once it can be read, and why it changed.
func TestSandboxEvents(t *testing.T) {
	t.Parallel()
	s := start(t, options{})
	s.do("PUT", "/api/threads/se/files", map[string]any{"path": "/mnt/user-data/workspace/put", "content": "x"}) // the thread, and no sandbox
	f := follow(t, s.url, "se", "")
	f.want("started")
	c := skerry.New(s.url, skerry.Options{}).Thread("se")
	want := func(kind, why, state string) {
		t.Helper()
		e := f.want(kind)
		info, err := c.Info(t.Context())
		must(t, err)
		is := ""
		if info.Sandbox != nil {
			is = string(info.Sandbox.State)
		}
		if e.Sandbox == nil || e.Sandbox.Template != "base" || e.Sandbox.SandboxID == "" || e.Sandbox.Why != why || is != state {
			t.Errorf("%s: %+v, and it is %q", kind, e.Sandbox, is)
		}
	}
	s.ok("se", "true")
	want("sandbox.started", "", "running")
	for _, step := range []struct{ method, path, kind, why, state string }{
		{"POST", "/sandbox/pause", "sandbox.paused", "asked", "paused"},
		{"POST", "/sandbox/resume", "sandbox.resumed", "asked", "running"},
		{"POST", "/sandbox/hibernate", "sandbox.hibernated", "asked", "hibernated"},
		{"POST", "/sandbox/resume", "sandbox.started", "", "running"},
		{"DELETE", "/sandbox", "sandbox.ended", "released", ""},
		{"PUT", "/sandbox", "sandbox.started", "", "running"},
		{"POST", "/sandbox/hibernate", "sandbox.hibernated", "asked", "hibernated"},
		{"DELETE", "/sandbox", "sandbox.ended", "released", ""},
	} {
		if a := s.do(step.method, "/api/threads/se"+step.path, nil); a.status >= 300 {
			t.Fatalf("%s %s: %d %s", step.method, step.path, a.status, a.body)
		}
		want(step.kind, step.why, step.state)
	}
}

// TestThreadEvents: one stream tells of execs, files, approvals, skills, tools and the prompt; it goes on where it was after a
// cut and over a restart of the server, and ends with the thread.
func TestThreadEvents(t *testing.T) {
	t.Parallel()
	s := start(t, options{extensions: mcpServers(t, sharedFolder(t)), policy: askFirst})
	s.args[slices.Index(s.args, "--listen")+1] = strings.TrimPrefix(s.url, "http://")
	s.connect("connects")
	s.ok("ev", "true")
	f := follow(t, s.url, "ev", "")
	started := f.want("started")
	prompt := func(version string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/api/threads/ev/prompt", nil)
		must(t, err)
		req.Header.Set("If-None-Match", `"`+version+`"`)
		res, err := http.DefaultClient.Do(req)
		must(t, err)
		res.Body.Close()
		return res.StatusCode
	}
	if got := prompt(started.Versions.Prompt); got != http.StatusNotModified {
		t.Errorf("the prompt of the version that the event tells: %d", got)
	}
	r := s.run("ev", "execute_code", map[string]any{"language": "bash", "code": "echo x >made"})
	if e := f.want("exec.started"); e.Exec.ExecID != r.ExecID {
		t.Errorf("%+v", e.Exec)
	}
	ended := f.want("exec.ended")
	if ended.Exec.ExecID != r.ExecID { // that of the exec before may be told behind its answer
		ended = f.want("exec.ended")
	}
	if ended.Exec.ExecID != r.ExecID || ended.Exec.Status != "exited" {
		t.Errorf("%+v", ended.Exec)
	}
	if e := f.want("files.changed"); e.Files.ExecID != r.ExecID || !slices.Equal(e.Files.Paths, []string{"/mnt/user-data/workspace/made"}) {
		t.Errorf("%+v", e.Files)
	}
	s.do("PUT", "/api/threads/ev/files", map[string]any{"path": "/mnt/user-data/workspace/put", "content": "x"})
	if e := f.want("files.changed"); !slices.Equal(e.Files.Paths, []string{"/mnt/user-data/workspace/put"}) {
		t.Errorf("%+v", e.Files)
	}
	s.do("POST", "/api/threads/ev/skills", map[string]any{"name": "own", "description": "x", "body": "x"})
	f.want("skills.changed")
	if e := f.want("prompt.changed"); prompt(started.Versions.Prompt) != http.StatusOK || prompt(e.Versions.Prompt) != http.StatusNotModified {
		t.Error("the prompt changed, and its version did not")
	}
	go s.request("POST", "/api/threads/ev/tools/call", map[string]any{"tool": "everything__echo", "input": map[string]any{"message": "hi"}}) //nolint:errcheck // its approval is what counts
	asked := f.want("approval.requested")
	s.decide(asked.Approval.ID, "approve", "")
	if e := f.want("approval.decided"); e.Approval.ID != asked.Approval.ID || e.Approval.State != "approved" {
		t.Errorf("%+v", e.Approval)
	}
	a := s.do("PUT", "/api/mcp/servers/everything", map[string]any{"command": "true", "enabled": false})
	if a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	f.want("tools.changed")
	f.stop()

	// Cut off, it goes on behind the last event that it saw.
	again := follow(t, s.url, "ev", ended.ID)
	again.want("started")
	again.want("tools.changed") // by the versions in the id
	if e := again.want("files.changed"); e.Files.ExecID != r.ExecID {
		t.Errorf("resumed with %+v", e.Files)
	}
	s.stop()
	s.boot()
	reset := again.want("reset")
	if reset.Versions == nil || prompt(reset.Versions.Prompt) != http.StatusNotModified {
		t.Errorf("after a restart: %+v", reset.Versions)
	}
	if other := s.do("GET", "/api/threads/none/events", nil); other.code() != "not_found" {
		t.Errorf("events of no thread: %d", other.status)
	}
	s.do("DELETE", "/api/threads/ev", nil)
	select {
	case err := <-again.end:
		if err != nil {
			t.Errorf("the end of the thread: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the stream goes on without its thread")
	}
}

// TestEventsOfTwoServers: any server answers; what another one does is told; when the owner ends, the stream goes on at the
// other one with a reset.
func TestEventsOfTwoServers(t *testing.T) {
	whole(t, TestThreadEvents)
	t.Parallel()
	a, b, _ := startTwo(t, "oci")
	a.ok("two", "true")
	here, there := follow(t, a.url, "two", ""), follow(t, b.url, "two", "")
	one, two := here.want("started"), there.want("started")
	if one.Versions.Prompt == "" || one.Versions.Prompt != two.Versions.Prompt {
		t.Errorf("the versions of two servers: %+v, %+v", one.Versions, two.Versions)
	}
	b.ok("two", "true")
	if x, y := here.want("exec.ended"), there.want("exec.ended"); x.Exec.ExecID != y.Exec.ExecID {
		t.Errorf("%+v, %+v", x.Exec, y.Exec)
	}
	for i, s := range []*server{a, b} {
		path := fmt.Sprint("/mnt/user-data/workspace/", i)
		s.do("PUT", "/api/threads/two/files", map[string]any{"path": path, "content": "x"})
		for _, f := range []*follower{here, there} {
			if e := f.want("files.changed"); !slices.Equal(e.Files.Paths, []string{path}) {
				t.Errorf("%+v, want %s", e.Files, path)
			}
		}
	}
	here.stop()
	if err := <-here.end; !errors.Is(err, context.Canceled) {
		t.Errorf("a client that stopped: %v", err)
	}
	a.kill()
	there.want("reset")
	r := b.run("two", "execute_code", map[string]any{"language": "bash", "code": "true"})
	if e := there.want("exec.ended"); e.Exec.ExecID != r.ExecID {
		t.Errorf("%+v", e.Exec)
	}
}
