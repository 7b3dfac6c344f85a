package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/lifecycle"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// eventually waits for a condition, for as long as the slowest machine may need.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 30 s", what)
		}
	}
}

func (h *house) state(t *testing.T, id string) sandbox.State {
	t.Helper()
	v, err := h.Threads.Thread(t.Context(), caller, id)
	if err != nil {
		t.Fatal(err)
	}
	if v.Sandbox == nil {
		return ""
	}
	return v.Sandbox.State
}

func (h *house) mustExec(t *testing.T, id string) {
	t.Helper()
	if res, err := h.exec(t, id, time.Minute); err != nil || res.Status != sandbox.StatusExited {
		t.Fatalf("exec in %s: %+v, %v", id, res, err)
	}
}

// records counts the records of an action, by what they say.
func (h *house) records(t *testing.T, action string) map[string]int {
	t.Helper()
	got := map[string]int{}
	for _, tenant := range []string{"t", ""} {
		list, _, err := h.audit.List(t.Context(), audit.Filter{Tenant: tenant, Action: action, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list {
			if r.Phase == audit.PhaseResult {
				got[r.Outcome+": "+r.Detail]++
			}
		}
	}
	return got
}

func (h *house) metrics(t *testing.T) string {
	t.Helper()
	rec := httptest.NewRecorder()
	h.o.Metrics.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	return rec.Body.String()
}

// gate is a daemon whose execs run until they are let go or killed.
type gate struct {
	daemon
	mu     sync.Mutex
	killed map[string]chan struct{}
	open   chan struct{}
	deaf   bool // execs cannot be killed
}

func newGate() *gate { return &gate{killed: map[string]chan struct{}{}, open: make(chan struct{})} }

func (g *gate) of(id string) chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.killed[id] == nil {
		g.killed[id] = make(chan struct{})
	}
	return g.killed[id]
}

func (g *gate) Run(ctx context.Context, req *connect.Request[sandboxv1.RunRequest], out *connect.ServerStream[sandboxv1.Event]) error {
	if err := out.Send(&sandboxv1.Event{N: 1, Kind: &sandboxv1.Event_Started{Started: &sandboxv1.Started{Pid: 2}}}); err != nil {
		return err
	}
	exit := &sandboxv1.Exit{Status: sandboxv1.Exit_STATUS_EXITED, Stdout: &sandboxv1.Stream{}, Stderr: &sandboxv1.Stream{}}
	select {
	case <-g.open:
	case <-g.of(req.Msg.GetExecId()):
		exit.Status = sandboxv1.Exit_STATUS_KILLED
	case <-ctx.Done():
		return ctx.Err()
	}
	return out.Send(&sandboxv1.Event{N: 2, Kind: &sandboxv1.Event_Exit{Exit: exit}})
}

func (g *gate) Kill(_ context.Context, req *connect.Request[sandboxv1.KillRequest]) (*connect.Response[sandboxv1.KillResponse], error) {
	if g.deaf {
		return nil, connect.NewError(connect.CodeInternal, errors.New("no"))
	}
	close(g.of(req.Msg.GetExecId()))
	return connect.NewResponse(&sandboxv1.KillResponse{}), nil
}

func newHouseOf(t *testing.T, g *gate, change ...func(*Options)) *house {
	t.Helper()
	return newHouseWith(t, g, noTools{}, change...)
}

func (h *house) background(t *testing.T, id string) string {
	t.Helper()
	e, err := h.Runs.RunCommand(t.Context(), caller, id, sandbox.Command{Shell: "serve", Background: true, Timeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// age makes an instance look as if it was made, and used, so long ago.
func (h *house) age(t *testing.T, id string, d time.Duration) {
	t.Helper()
	inst := h.live.Find(sandbox.Thread{Owner: caller.Owner, ID: id})
	if inst == nil {
		t.Fatalf("%s has no sandbox", id)
	}
	inst.Backdate(d)
}

// Template changes the default template, and adds one named "data".
func withTemplates(change func(*instance.Template)) func(*Options) {
	return func(o *Options) {
		base := o.Templates["base"]
		change(&base)
		data := base
		data.Name = "data"
		o.Templates = map[string]instance.Template{"base": base, "data": data}
	}
}

func TestIdleSandboxIsHibernatedAndComesBack(t *testing.T) {
	t.Parallel()
	var env []string
	var mu sync.Mutex
	h := newHouseWith(t, daemon{run: exits, asked: func(r *sandboxv1.RunRequest) {
		mu.Lock()
		defer mu.Unlock()
		env = r.GetEnv()
	}}, noTools{}, withTemplates(func(b *instance.Template) { b.IdleSeconds, b.Env = 100, map[string]string{"LANG": "C.UTF-8"} }))
	ctx := t.Context()
	first, err := h.Starts.Acquire(ctx, caller, "idle", sandbox.AcquireOptions{
		Template: "data", Env: map[string]string{"TOKEN": "blue"}, Labels: map[string]string{"a": "b"}, Mode: "code",
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Skills.Threads.AddVirtualSkill(ctx, caller, "idle", sandbox.VirtualSkill{Name: "mine", Description: "does it", Body: "# Mine"}); err != nil {
		t.Fatal(err)
	}
	h.mustExec(t, "idle")
	h.age(t, "idle", 90*time.Second)
	time.Sleep(2 * lifecycle.SweepEvery)
	if s := h.state(t, "idle"); s != sandbox.Running {
		t.Fatalf("after 90 of 100 seconds it is %q", s)
	}
	h.age(t, "idle", 20*time.Second)
	eventually(t, "it is hibernated", func() bool { return h.state(t, "idle") == sandbox.Hibernated })
	if left, err := h.driver.List(ctx, nil); err != nil || len(left) != 0 {
		t.Errorf("containers: %v, %v", left, err)
	}
	v, err := h.Threads.Thread(ctx, caller, "idle")
	if err != nil || v.Sandbox.ID != first.ID || v.Sandbox.Template != "data" {
		t.Errorf("it is shown as %+v, %v", v.Sandbox, err)
	}
	if !slices.Equal(v.Sandbox.EnvNames, []string{"TOKEN"}) {
		t.Errorf("hibernated, it has the variables %q", v.Sandbox.EnvNames)
	}
	if list, err := h.Threads.Threads(ctx, caller, sandbox.ThreadFilter{State: sandbox.Hibernated}); err != nil || len(list.Items) != 1 || list.Items[0].Sandbox.EnvNames != nil {
		t.Errorf("list by state: %+v, %v", list.Items, err)
	}
	if info, err := h.Lifecycle.Hibernate(ctx, caller, "idle", false); err != nil || info.State != sandbox.Hibernated {
		t.Errorf("hibernate again: %+v, %v", info, err)
	}
	h.mustExec(t, "idle")
	again, err := h.Starts.Acquire(ctx, caller, "idle", sandbox.AcquireOptions{})
	if err != nil || again.ID == first.ID || again.Template != "data" || again.State != sandbox.Running {
		t.Errorf("it came back as %+v, %v", again, err)
	}
	mu.Lock()
	if !strings.Contains(strings.Join(env, " "), "TOKEN=blue") {
		t.Errorf("the environment is lost: %q", env)
	}
	mu.Unlock()
	if v, err = h.Threads.Thread(ctx, caller, "idle"); err != nil || v.Labels["a"] != "b" || v.Mode != "code" || !slices.Equal(v.Sandbox.EnvNames, []string{"LANG", "TOKEN"}) {
		t.Errorf("labels, mode and variables: %+v %q, %v", v, v.Sandbox.EnvNames, err)
	}
	if view, err := h.Skills.Of(ctx, sandbox.Thread{Owner: caller.Owner, ID: "idle"}); err != nil || len(view.List()) != 1 {
		t.Errorf("the virtual skill: %v, %v", view.List(), err)
	}
	if got := h.records(t, audit.ActionSandboxHibernate); got["ok: idle"] != 1 || len(got) != 1 {
		t.Errorf("records %v", got)
	}
	if text := h.metrics(t); !strings.Contains(text, `skerry_sandbox_changes_total{change="sandbox_hibernate",reason="idle"} 1`) {
		t.Error("not counted")
	}
}

// TestEnvironmentIsNotReadable: what is kept may be secret.
func TestEnvironmentIsNotReadable(t *testing.T) {
	t.Parallel()
	h := newHouse(t, daemon{run: exits})
	th := sandbox.Thread{Owner: caller.Owner, ID: "secret"}
	if _, err := h.Starts.Acquire(t.Context(), caller, "secret", sandbox.AcquireOptions{Env: map[string]string{"K": "hunter2"}}); err != nil {
		t.Fatal(err)
	}
	var info os.FileInfo
	eventually(t, "it is kept", func() (there bool) {
		var err error
		info, err = os.Stat(h.Specs.File(th))
		return err == nil
	})
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	for dir := h.Specs.File(th); dir != h.o.Storage.DataDir; {
		dir = dir[:strings.LastIndexByte(dir, '/')]
		if st, err := os.Stat(dir); err != nil || dir != h.o.Storage.DataDir && st.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", dir, st.Mode(), err)
		}
	}
	if err := h.Threads.ReleaseSandbox(t.Context(), caller, "secret"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(h.Specs.File(th)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after the release: %v", err)
	}
	if s := h.state(t, "secret"); s != "" {
		t.Errorf("released, and %q", s)
	}
}

// TestActivity: what counts keeps a sandbox, and looking at it does not.
func TestActivity(t *testing.T) {
	t.Parallel()
	all := []string{lifecycle.ActivityAcquire, lifecycle.ActivityFileWrite, lifecycle.ActivityFileRead, lifecycle.ActivityToolCall}
	ctx := context.Background()
	uses := map[string]func(h *house) error{
		lifecycle.ActivityAcquire: func(h *house) error {
			_, err := h.Starts.Acquire(ctx, caller, "x", sandbox.AcquireOptions{})
			return err
		},
		lifecycle.ActivityFileWrite: func(h *house) error {
			return h.Files.ChangeFiles(ctx, caller, "x", audit.ActionFileMkdir, "/mnt/user-data/workspace/d", func(*paths.FS) (int64, error) { return 0, nil })
		},
		lifecycle.ActivityFileRead: func(h *house) error { return h.Files.ReadFiles(ctx, caller, "x", func(*paths.FS) error { return nil }) },
		lifecycle.ActivityToolCall: func(h *house) error {
			if _, err := h.Calls.CallTool(ctx, caller, "x", sandbox.ToolRef{}, nil); !errors.Is(err, sandbox.NotFound) {
				return err
			}
			return nil
		},
		"": func(h *house) error { // never
			_, threadErr := h.Threads.Thread(ctx, caller, "x")
			_, listErr := h.Threads.Threads(ctx, caller, sandbox.ThreadFilter{})
			execs, execsErr := h.Execs.Execs(ctx, caller, "x")
			eventsErr := h.Execs.Events(ctx, caller, "x", execs[0].ExecID, 0, func(sandbox.Event) error { return nil })
			_, _ = h.Calls.ToolServers(ctx, caller, "x")
			return errors.Join(threadErr, listErr, execsErr, eventsErr)
		},
	}
	for _, counted := range []bool{true, false} {
		h := newHouseWith(t, daemon{run: exits}, noTools{}, withTemplates(func(b *instance.Template) { b.IdleSeconds = 0 }), func(o *Options) {
			if counted {
				o.Lifecycle.Activity = all
			}
		})
		h.mustExec(t, "x")
		inst := h.live.Find(sandbox.Thread{Owner: caller.Owner, ID: "x"})
		for kind, use := range uses {
			h.age(t, "x", time.Hour)
			before := inst.LastUse()
			if err := use(h); err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			if got, want := inst.LastUse() != before, counted && kind != ""; got != want {
				t.Errorf("%q counted: %t, want %t", kind, got, want)
			}
		}
	}
}

// TestBusySandboxIsNotIdle: a background exec keeps its sandbox, however long ago it began.
func TestBusySandboxIsNotIdle(t *testing.T) {
	t.Parallel()
	g := newGate()
	h := newHouseOf(t, g, withTemplates(func(b *instance.Template) { b.IdleSeconds = 60 }))
	e := h.background(t, "busy")
	h.age(t, "busy", time.Hour)
	time.Sleep(2 * lifecycle.SweepEvery)
	if s := h.state(t, "busy"); s != sandbox.Running {
		t.Fatalf("it is %q", s)
	}
	if _, err := h.Lifecycle.Hibernate(t.Context(), caller, "busy", false); !errors.Is(err, sandbox.Conflict) || !strings.Contains(err.Error(), "1 execs run") {
		t.Errorf("hibernate: %v", err)
	}
	if _, err := h.Lifecycle.Pause(t.Context(), caller, "busy"); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("pause: %v", err)
	}
	if info, err := h.Lifecycle.Hibernate(t.Context(), caller, "busy", true); err != nil || info.State != sandbox.Hibernated {
		t.Fatalf("by force: %+v, %v", info, err)
	}
	if res, err := h.Execs.Wait(t.Context(), caller, "busy", e); err != nil || res.Status != sandbox.StatusKilled {
		t.Errorf("its exec: %+v, %v", res, err)
	}
}

func TestMaximumAge(t *testing.T) {
	t.Parallel()
	g := newGate()
	h := newHouseOf(t, g, withTemplates(func(b *instance.Template) { b.MaxAgeSeconds = 1000 }), func(o *Options) { o.Lifecycle.AgeGrace = 1000 * time.Second })
	waiting, over := h.background(t, "waits"), h.background(t, "over")
	h.age(t, "waits", 1500*time.Second)
	h.age(t, "over", 2500*time.Second)
	eventually(t, "the one beyond its grace is gone", func() bool { return h.state(t, "over") == sandbox.Hibernated })
	if res, err := h.Execs.Wait(t.Context(), caller, "over", over); err != nil || res.Status != sandbox.StatusKilled {
		t.Errorf("its exec: %+v, %v", res, err)
	}
	if s := h.state(t, "waits"); s != sandbox.Running {
		t.Fatalf("the busy one within its grace is %q", s)
	}
	close(g.open)
	if res, err := h.Execs.Wait(t.Context(), caller, "waits", waiting); err != nil || res.Status != sandbox.StatusExited {
		t.Errorf("its exec: %+v, %v", res, err)
	}
	eventually(t, "it is gone when its exec has ended", func() bool { return h.state(t, "waits") == sandbox.Hibernated })
	if got := h.records(t, audit.ActionSandboxExpire); got["ok: age"] != 1 || len(got) != 1 {
		t.Errorf("expired: %v", got)
	}
	if got := h.records(t, audit.ActionSandboxHibernate); got["ok: age"] != 1 || len(got) != 1 {
		t.Errorf("hibernated: %v", got)
	}
	h.mustExec(t, "over")
}

func TestPause(t *testing.T) {
	t.Parallel()
	h := newHouse(t, daemon{run: exits})
	ctx := t.Context()
	if _, err := h.Lifecycle.Pause(ctx, caller, "none"); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("of no thread: %v", err)
	}
	h.mustExec(t, "p")
	for range 2 {
		if info, err := h.Lifecycle.Pause(ctx, caller, "p"); err != nil || info.State != sandbox.Paused {
			t.Fatalf("%+v, %v", info, err)
		}
	}
	id := h.live.Find(sandbox.Thread{Owner: caller.Owner, ID: "p"}).ID
	if entry, err := h.driver.Inspect(ctx, id); err != nil || entry.State != sandbox.Paused {
		t.Errorf("the driver: %+v, %v", entry, err)
	}
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() { h.mustExec(t, "p") })
	}
	wg.Wait()
	if s := h.state(t, "p"); s != sandbox.Running {
		t.Errorf("after an exec it is %q", s)
	}
	if _, err := h.Lifecycle.Pause(ctx, caller, "p"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if info, err := h.Starts.Resume(ctx, caller, "p"); err != nil || info.State != sandbox.Running {
			t.Fatalf("%+v, %v", info, err)
		}
	}
	if got := h.records(t, audit.ActionSandboxPause); got["ok: asked"] != 2 {
		t.Errorf("paused: %v", got)
	}
	if got := h.records(t, audit.ActionSandboxResume); got["ok: asked"] != 1 || got["ok: an exec"] != 1 || len(got) != 2 {
		t.Errorf("resumed: %v", got)
	}
	if _, err := h.Lifecycle.Hibernate(ctx, caller, "p", false); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Lifecycle.Pause(ctx, caller, "p"); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("pause of a hibernated one: %v", err)
	}
	if info, err := h.Starts.Resume(ctx, caller, "p"); err != nil || info.State != sandbox.Running || info.ID == id {
		t.Errorf("resume of a hibernated one: %+v, %v", info, err)
	}
}

// TestPausesAndExecsRace: whatever comes between, every exec runs.
func TestPausesAndExecsRace(t *testing.T) {
	t.Parallel()
	h := newHouse(t, daemon{run: exits})
	h.mustExec(t, "race")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			var err error
			if n%3 == 2 {
				_, err = h.Lifecycle.Hibernate(t.Context(), caller, "race", false)
			} else {
				_, err = h.Lifecycle.Pause(t.Context(), caller, "race")
			}
			if err != nil && !errors.Is(err, sandbox.Conflict) && !errors.Is(err, sandbox.SandboxLost) && !errors.Is(err, sandbox.NotFound) {
				t.Error(err)
			}
			time.Sleep(time.Millisecond)
		}
	})
	for range 40 {
		h.mustExec(t, "race")
	}
	close(stop)
	wg.Wait()
}

// TestRestart: a server that comes back has hibernated sandboxes, paused ones, and what all were asked to be.
func TestRestart(t *testing.T) {
	t.Parallel()
	var env []string
	var mu sync.Mutex
	h := newHouseWith(t, daemon{run: exits, asked: func(r *sandboxv1.RunRequest) {
		mu.Lock()
		defer mu.Unlock()
		env = r.GetEnv()
	}}, noTools{}, withTemplates(func(*instance.Template) {}))
	ctx := t.Context()
	for _, id := range []string{"asleep", "paused", "lost"} {
		if _, err := h.Starts.Acquire(ctx, caller, id, sandbox.AcquireOptions{Template: "data", Env: map[string]string{"WHO": id}}); err != nil {
			t.Fatal(err)
		}
		th := sandbox.Thread{Owner: caller.Owner, ID: id}
		eventually(t, "it is kept", func() bool { return h.Specs.Read(th) != nil })
	}
	if _, err := h.Lifecycle.Hibernate(ctx, caller, "asleep", false); err != nil {
		t.Fatal(err)
	}
	before, err := h.Lifecycle.Pause(ctx, caller, "paused")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Close(ctx); err != nil {
		t.Fatal(err)
	}
	h.driver.Kill(h.live.Find(sandbox.Thread{Owner: caller.Owner, ID: "lost"}).ID)
	if h.Orchestrator, err = New(ctx, h.options); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]sandbox.State{"asleep": sandbox.Hibernated, "paused": sandbox.Paused, "lost": ""} {
		if s := h.state(t, id); s != want {
			t.Errorf("%s is %q, want %q", id, s, want)
		}
	}
	if entry, err := h.driver.Inspect(ctx, before.ID); err != nil || entry.State != sandbox.Paused {
		t.Errorf("the paused one: %+v, %v", entry, err)
	}
	for _, id := range []string{"asleep", "paused", "lost"} {
		h.mustExec(t, id)
		mu.Lock()
		if !strings.Contains(strings.Join(env, " "), "WHO="+id) {
			t.Errorf("%s: the environment is lost: %q", id, env)
		}
		mu.Unlock()
		if info, err := h.Starts.Acquire(ctx, caller, id, sandbox.AcquireOptions{}); err != nil || info.Template != "data" {
			t.Errorf("%s: %+v, %v", id, info, err)
		}
	}
}

// TestAnotherTemplate: a request for another template than that of a hibernated sandbox starts a new one.
func TestAnotherTemplate(t *testing.T) {
	t.Parallel()
	h := newHouseWith(t, daemon{run: exits}, noTools{}, withTemplates(func(*instance.Template) {}))
	ctx := t.Context()
	if _, err := h.Starts.Acquire(ctx, caller, "x", sandbox.AcquireOptions{Template: "data", Env: map[string]string{"A": "b"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Starts.Acquire(ctx, caller, "x", sandbox.AcquireOptions{Template: "base"}); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("while one of another runs: %v", err)
	}
	if _, err := h.Lifecycle.Hibernate(ctx, caller, "x", false); err != nil {
		t.Fatal(err)
	}
	if info, err := h.Starts.Acquire(ctx, caller, "x", sandbox.AcquireOptions{Template: "base"}); err != nil || info.Template != "base" {
		t.Errorf("%+v, %v", info, err)
	}
	th := sandbox.Thread{Owner: caller.Owner, ID: "x"}
	eventually(t, "the former one is forgotten", func() bool { return h.Specs.Read(th) == nil })
	if inst := h.live.Find(th); len(inst.Saved.Env()) != 0 {
		t.Errorf("it has the former one's environment: %v", inst.Saved.Env())
	}
}

func TestFirstExecIsTimed(t *testing.T) {
	t.Parallel()
	h := newHouse(t, daemon{run: exits})
	for range 3 {
		h.mustExec(t, "x")
	}
	eventually(t, "no exec is counted", func() bool { return h.execs.Running() == 0 }) // it is a moment after its end is told
	text := h.metrics(t)
	for _, phase := range []string{"queue", "create", "ready", "first_exec"} {
		want := fmt.Sprintf(`skerry_sandbox_start_seconds_count{driver=%q,phase=%q,runtime="runc",start="cold",template="base"} 1`, h.driverName(t), phase)
		if !strings.Contains(text, want) {
			t.Errorf("%s is missing", want)
		}
	}
	for _, want := range []string{`skerry_sandboxes{state="running"} 1`, "skerry_execs_running 0", "skerry_sandboxes_max 3"} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("%s is missing", want)
		}
	}
}

// TestEnvironmentsAreBounded: what an environment would add to what is kept is refused before anything is
// started.
func TestEnvironmentsAreBounded(t *testing.T) {
	t.Parallel()
	h := newHouseWith(t, daemon{run: exits}, noTools{}, func(o *Options) { o.Storage.UserEnvBytes = 290 << 10 })
	of := func(kib int) sandbox.AcquireOptions {
		env := map[string]string{}
		for i := range kib / 100 {
			env[fmt.Sprint("K", i)] = strings.Repeat("x", 100<<10)
		}
		return sandbox.AcquireOptions{Env: env}
	}
	for _, c := range []struct {
		thread string
		kib    int
		kind   sandbox.Kind
	}{{"a", 300, sandbox.Invalid}, {"a", 200, ""}, {"b", 200, sandbox.QuotaExceeded}, {"b", 100, sandbox.QuotaExceeded}, {"b", 0, ""}, {"a", 100, ""}, {"b", 100, ""}} {
		if _, err := h.Starts.Acquire(t.Context(), caller, c.thread, of(c.kib)); sandbox.KindOf(err) != c.kind {
			t.Errorf("%d KiB for %s: %v, want kind %q", c.kib, c.thread, err, c.kind)
		}
	}
}
