package orchestrator

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/config/extensions"
	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/memory"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/start"
	telemetry "github.com/skerry-sandbox/skerry/internal/observe/metrics"
	"github.com/skerry-sandbox/skerry/internal/policy"
	"github.com/skerry-sandbox/skerry/internal/prompt"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
	"github.com/skerry-sandbox/skerry/internal/sandboxapi/v1/sandboxv1connect"
	skill "github.com/skerry-sandbox/skerry/internal/skills"
	"github.com/skerry-sandbox/skerry/internal/store"
	"github.com/skerry-sandbox/skerry/internal/tools/bridge"
	"github.com/skerry-sandbox/skerry/internal/tools/call"
	"github.com/skerry-sandbox/skerry/internal/tools/codeapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// mcpServers are all that a guard knows of a hub.
type mcpServers interface {
	policy.Hub
	policy.Upstream
	policy.Changes
}

// noTools is a hub without servers.
type noTools struct{}

func (noTools) Servers(context.Context, sandbox.Thread) ([]sandbox.ToolServer, error) {
	return nil, nil
}
func (noTools) Tools(context.Context, sandbox.Thread) (sandbox.ToolSet, error) {
	return sandbox.ToolSet{}, nil
}
func (noTools) Search(context.Context, sandbox.Thread, sandbox.ToolQuery) (sandbox.ToolSearch, error) {
	return sandbox.ToolSearch{}, nil
}
func (noTools) ServerRequires(sandbox.Thread, string) []string { return nil }
func (noTools) Announce()                                      {}
func (noTools) ResolveAmong(context.Context, sandbox.Thread, sandbox.ToolRef, func(sandbox.Tool) bool) (sandbox.Tool, error) {
	return sandbox.Tool{}, sandbox.Errorf(sandbox.NotFound, "no tool")
}
func (noTools) Arguments(_ context.Context, _ sandbox.Thread, _ sandbox.Tool, input []byte) ([]byte, error) {
	return input, nil
}
func (noTools) CallChecked(context.Context, sandbox.Thread, sandbox.Tool, []byte, sandbox.ToolWatch) (sandbox.ToolResult, error) {
	return sandbox.ToolResult{}, sandbox.NotFound
}
func (noTools) Upstream(context.Context, sandbox.Thread, sandbox.UpstreamKind, string) ([]sandbox.UpstreamItem, error) {
	return nil, nil
}
func (noTools) Ask(context.Context, sandbox.Thread, sandbox.UpstreamRequest) (json.RawMessage, error) {
	return json.RawMessage(`{"contents":[]}`), nil
}
func (noTools) Subscribe(context.Context, sandbox.Thread, string, string, func()) error { return nil }
func (noTools) Changed() <-chan struct{}                                                { return nil }
func (noTools) UpstreamChanged(sandbox.UpstreamKind) <-chan struct{}                    { return nil }
func (noTools) Version() uint64                                                         { return 1 }
func (noTools) ForgetThread(sandbox.Thread)                                             {}

// daemon plays sandboxd. run answers each exec; nil never answers.
type daemon struct {
	sandboxv1connect.UnimplementedSandboxServiceHandler
	run func(*connect.ServerStream[sandboxv1.Event]) error
	// asked is told of each exec before run answers it. May be nil.
	asked func(*sandboxv1.RunRequest)
	// resized is told of each new size of a terminal.
	resized func(*sandboxv1.TerminalSize)
}

func (d daemon) Resize(_ context.Context, req *connect.Request[sandboxv1.ResizeRequest]) (*connect.Response[sandboxv1.ResizeResponse], error) {
	d.resized(req.Msg.GetSize())
	return connect.NewResponse(&sandboxv1.ResizeResponse{}), nil
}

func (d daemon) Status(context.Context, *connect.Request[sandboxv1.StatusRequest]) (*connect.Response[sandboxv1.StatusResponse], error) {
	return connect.NewResponse(&sandboxv1.StatusResponse{Protocol: 1, Languages: []string{"python"}}), nil
}

func (d daemon) Run(ctx context.Context, req *connect.Request[sandboxv1.RunRequest], out *connect.ServerStream[sandboxv1.Event]) error {
	if d.asked != nil {
		d.asked(req.Msg)
	}
	if d.run != nil {
		return d.run(out)
	}
	<-ctx.Done()
	return ctx.Err()
}

func exits(out *connect.ServerStream[sandboxv1.Event]) error {
	return errors.Join(
		out.Send(&sandboxv1.Event{N: 1, Kind: &sandboxv1.Event_Started{Started: &sandboxv1.Started{Pid: 2}}}),
		out.Send(&sandboxv1.Event{N: 2, Kind: &sandboxv1.Event_Exit{Exit: &sandboxv1.Exit{Status: sandboxv1.Exit_STATUS_EXITED, Stdout: &sandboxv1.Stream{}, Stderr: &sandboxv1.Stream{}}}}),
	)
}

// person approves what house.approve says; without it nothing.
type person struct{ h *house }

func (p person) Approve(ctx context.Context, r policy.ApprovalRequest) error {
	if p.h.approve == nil {
		return sandbox.Errorf(sandbox.Forbidden, "denied by nobody")
	}
	return p.h.approve(ctx, r)
}

// remoteSandbox says whether the sandboxes of all tests have disks of their own: scripts/test.sh runs them both ways.
var remoteSandbox = os.Getenv("SKERRY_TEST_REMOTE") == "1"

// machine is what the tests need of the memory driver, or of that with disks of its own.
type machine interface {
	driver.Driver
	driver.Pauser
	driver.Weigher
	driver.Meter
	Host() *memory.Host
	Kill(id sandbox.ID) bool
	KillOOM(id sandbox.ID) bool
}

func newMachine(o memory.Options, far bool) machine {
	if far {
		return memory.NewRemote(o)
	}
	return memory.New(o)
}

// remotePart is what makes a driver of a test a driver.Remote.
type remotePart interface {
	Attach(ctx context.Context, a driver.Attachment) error
	Detach(ctx context.Context, id sandbox.ID) error
	Push(ctx context.Context, id sandbox.ID, paths ...string) error
	Pull(ctx context.Context, id sandbox.ID) (bool, error)
}

// seen returns where code in an instance's sandbox finds what the server has in a folder that it mounts.
func (h *house) seen(inst *instance.Instance, target, folder string) string {
	if !remoteSandbox {
		return folder
	}
	return h.driver.Host().Inside(inst.ID, target)
}

// within returns where a path of the thread's sandbox is on this machine.
func (h *house) within(t testing.TB, id, path string) string {
	t.Helper()
	thread := sandbox.Thread{Owner: caller.Owner, ID: id}
	if !remoteSandbox {
		return strings.Replace(path, sandbox.UserDataDir, h.folders.Dir(thread), 1)
	}
	return h.driver.Host().Inside(h.live.Find(thread).ID, path)
}

// house is an orchestrator over the memory driver.
type house struct {
	*Orchestrator
	driver machine
	audit  *audit.Log
	boxes  atomic.Int64 // started

	approve func(context.Context, policy.ApprovalRequest) error

	options Options

	public     string // folder of public skills
	extensions *extensions.Files
}

var caller = sandbox.Caller{Owner: sandbox.Owner{Tenant: "t", User: "u"}}

func newHouse(t testing.TB, d daemon) *house {
	t.Helper()
	return newHouseWith(t, d, noTools{})
}

// newHouseWith is a house with another hub.
func newHouseWith(t testing.TB, d sandboxv1connect.SandboxServiceHandler, hub mcpServers, change ...func(*Options)) *house {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("workspaces get uids of their own: needs root")
	}
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	h := &house{}
	data, log := t.TempDir(), slog.New(slog.DiscardHandler)
	metrics := telemetry.New("test")
	st, err := store.Open(t.Context(), store.Options{Journal: filepath.Join(data, "state.jsonl"), Log: log})
	ok(err)
	h.audit, err = audit.Open(audit.Options{Dir: filepath.Join(data, "audit"), Redis: st.Redis(), Log: log})
	ok(err)
	h.public = filepath.Join(data, "public")
	h.extensions, err = extensions.New(filepath.Join(data, "extensions_config.json"))
	ok(err)
	skills, err := skill.Open(skill.Options{
		Dir: filepath.Join(data, "skills"), Users: filepath.Join(data, "tenants"), Public: []skill.Source{{Dir: h.public}}, Log: log,
		State: func(o sandbox.Owner) (skill.State, error) { return h.extensions.State(o) },
	})
	ok(err)
	views, err := skill.NewViews(filepath.Join(data, "skills"))
	ok(err)
	wrappers, err := codeapi.NewStore(filepath.Join(data, "code-api"))
	ok(err)
	h.driver = newMachine(memory.Options{Log: log, Handler: func(sandbox.Spec) http.Handler {
		h.boxes.Add(1)
		mux := http.NewServeMux()
		mux.Handle(sandboxv1connect.NewSandboxServiceHandler(d))
		return mux
	}}, remoteSandbox)
	limits := sandbox.Limits{MemoryBytes: 1 << 26, CPUMillis: 1000, PIDs: 64, OpenFiles: 64, FileBytes: 1 << 20, TmpBytes: 1 << 20, DiskBytes: 1 << 20}
	guard := policy.New(policy.Options{
		Hub: hub, Upstream: hub, Changes: hub, Decider: policy.Untrusted{Decider: policy.AllowAll{}}, Approver: person{h},
		Narrowed: func(ctx context.Context, t sandbox.Thread) ([]string, error) {
			return start.NewNarrowing(h.live, st).Capabilities(ctx, t)
		},
	})
	calls := call.NewRecorder(h.audit, metrics)
	h.options = Options{
		Storage: Storage{DataDir: data},
		Tools: Tools{Hub: guard, CodeAPI: wrappers, Bridge: bridge.New(bridge.Options{Calls: call.NewMaker(call.MakerOptions{Guard: guard, Records: calls, Log: log}), Refusals: calls, Log: log}), CodeSettings: func(string) sandbox.CodeSettings { return sandbox.DefaultCodeSettings() }, Commands: func(sandbox.Owner) ([]prompt.Command, error) {
			return []prompt.Command{{Name: "sales:call-prep", Description: "prepares a call"}}, nil
		}},
		Driver: h.driver, Store: st, Audit: h.audit, Skills: skills, Views: views, Switches: h.extensions,
		Templates: map[string]instance.Template{"base": {Template: sandbox.Template{Name: "base", Runtime: "runc", Limits: limits}}},
		Default:   "base", Daemon: "/bin/true", Install: "install", Instances: Instances{MaxInstances: 3}, StartTime: 20 * time.Second, Metrics: metrics, Log: log,
	}
	for _, c := range change {
		c(&h.options)
	}
	h.Orchestrator, err = New(t.Context(), h.options)
	ok(err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		for _, inst := range h.live.All() {
			if err := h.Threads.ReleaseSandbox(ctx, caller, inst.Thread.ID); err != nil {
				t.Errorf("release: %v", err)
			}
		}
		if err := errors.Join(h.Close(ctx), h.driver.Close(), h.audit.Close(), st.Close()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return h
}

func (h *house) exec(t *testing.T, thread string, timeout time.Duration) (sandbox.Result, error) {
	t.Helper()
	id, err := h.Runs.RunCommand(t.Context(), caller, thread, sandbox.Command{Shell: "true", Timeout: timeout})
	if err != nil {
		return sandbox.Result{}, err
	}
	return h.Execs.Wait(t.Context(), caller, thread, id)
}

func TestManyCallersStartOneSandbox(t *testing.T) {
	t.Parallel()
	h := newHouse(t, daemon{run: exits})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := h.exec(t, "one", time.Minute); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := h.boxes.Load(); n != 1 {
		t.Errorf("%d sandboxes were started", n)
	}
}

func TestCapacityIsNamed(t *testing.T) {
	t.Parallel()
	h := newHouse(t, daemon{run: exits})
	for _, id := range []string{"a", "b", "c"} {
		if _, err := h.exec(t, id, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h.exec(t, "d", time.Minute); !errors.Is(err, sandbox.CapacityExceeded) {
		t.Errorf("the fourth: %v", err)
	}
	if err := h.Threads.ReleaseSandbox(t.Context(), caller, "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := h.exec(t, "d", time.Minute); err != nil {
		t.Errorf("after one was released: %v", err)
	}
}

// TestSilentSandboxIsEnded: a sandboxd that does not keep the deadline loses its sandbox, and the
// exec has its end and one terminal record.
func TestSilentSandboxIsEnded(t *testing.T) {
	t.Parallel()
	h := newHouse(t, daemon{})
	res, err := h.exec(t, "silent", 100*time.Millisecond)
	if err != nil || res.Status != sandbox.StatusTimeout {
		t.Fatalf("%+v, %v", res, err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for h.live.Find(sandbox.Thread{Owner: caller.Owner, ID: "silent"}) != nil {
		if time.Now().After(deadline) {
			t.Fatal("the sandbox lives on")
		}
		time.Sleep(10 * time.Millisecond)
	}
	records, _, err := h.audit.List(t.Context(), audit.Filter{Tenant: "t", Exec: res.ExecID})
	ends := 0
	for _, r := range records {
		if r.Phase == audit.PhaseResult && r.Outcome == "timeout" {
			ends++
		}
	}
	if err != nil || ends != 1 {
		t.Errorf("%d terminal records in %d, %v", ends, len(records), err)
	}
}

// TestDeadSandbox: the exec of a sandbox that dies is lost, or out of memory; the next call gets a new one.
func TestDeadSandbox(t *testing.T) {
	t.Parallel()
	for want, kill := range map[sandbox.Status]func(machine, sandbox.ID){
		sandbox.StatusLost: func(d machine, id sandbox.ID) { d.Kill(id) },
		sandbox.StatusOOM:  func(d machine, id sandbox.ID) { d.KillOOM(id) },
	} {
		first := atomic.Bool{}
		h := newHouse(t, daemon{run: func(out *connect.ServerStream[sandboxv1.Event]) error {
			if first.CompareAndSwap(false, true) {
				time.Sleep(300 * time.Millisecond)
				return errors.New("never sent: the sandbox is gone by then")
			}
			return exits(out)
		}})
		id, err := h.Runs.RunCommand(t.Context(), caller, "dead", sandbox.Command{Shell: "sleep", Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		kill(h.driver, h.live.Find(sandbox.Thread{Owner: caller.Owner, ID: "dead"}).ID)
		res, err := h.Execs.Wait(t.Context(), caller, "dead", id)
		if err != nil || res.Status != want {
			t.Errorf("%s: %+v, %v", want, res, err)
		}
		if _, err := h.exec(t, "dead", time.Minute); err != nil {
			t.Errorf("%s: the next call: %v", want, err)
		}
	}
}

// TestDeleteForgetsSandboxOfKilledServer: what a server that was killed said of a thread's sandbox goes with the thread.
func TestDeleteForgetsSandboxOfKilledServer(t *testing.T) {
	t.Parallel()
	h := newHouse(t, daemon{run: exits})
	thread := sandbox.Thread{Owner: caller.Owner, ID: "old"}
	if _, err := h.exec(t, thread.ID, time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := h.Threads.ReleaseSandbox(t.Context(), caller, thread.ID); err != nil {
		t.Fatal(err)
	}
	if err := h.o.Store.PutSandbox(t.Context(), thread, store.SandboxRecord{ID: sandbox.NewID(), Replica: "killed"}); err != nil {
		t.Fatal(err)
	}
	if err := h.Threads.DeleteThread(t.Context(), caller, thread.ID); err != nil {
		t.Fatal(err)
	}
	if rec, err := h.o.Store.Sandbox(t.Context(), thread); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("left: %+v, %v", rec, err)
	}
}

func TestThreadsOfOthersDoNotExist(t *testing.T) {
	t.Parallel()
	h := newHouse(t, daemon{run: exits})
	if _, err := h.exec(t, "mine", time.Minute); err != nil {
		t.Fatal(err)
	}
	other := sandbox.Caller{Owner: sandbox.Owner{Tenant: "t", User: "other"}}
	ctx := t.Context()
	_, threadErr := h.Threads.Thread(ctx, other, "mine")
	_, execsErr := h.Execs.Execs(ctx, other, "mine")
	for what, err := range map[string]error{"thread": threadErr, "execs": execsErr, "release": h.Threads.ReleaseSandbox(ctx, other, "mine"), "delete": h.Threads.DeleteThread(ctx, other, "mine")} {
		if !errors.Is(err, sandbox.NotFound) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func (h *house) driverName(t *testing.T) string {
	t.Helper()
	caps, err := h.o.Driver.Capabilities(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return caps.Name
}
