package e2b

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skerry-sandbox/skerry/internal/api/held"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/service"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }

// house is all use cases, as fakes.
type house struct {
	mu           sync.Mutex
	threads      map[string]sandbox.ThreadView
	deleted      []string
	dir          string
	cmd          sandbox.Command
	code         sandbox.Code
	events       []sandbox.Event
	list         []sandbox.ExecInfo
	did          []string
	contexts     []sandbox.CodeContext
	lacksData    bool
	load         sandbox.Load
	slow         time.Duration // what a change of a sandbox takes
	runs         chan struct{} // closed at the end of the run that goes on; nil: what runs has ended
	stubborn     bool          // an interrupt does not end the run
	beforeEvents func()
	acquire      func() error // comes before a sandbox starts, when it is set
}

var me = sandbox.Caller{Owner: sandbox.Owner{Tenant: "t", User: "u"}, Role: sandbox.RoleAgent}

func (h *house) Acquire(_ context.Context, c sandbox.Caller, id string, o sandbox.AcquireOptions) (sandbox.Info, error) {
	if h.acquire != nil {
		if err := h.acquire(); err != nil {
			return sandbox.Info{}, err
		}
	}
	h.pause()
	h.mu.Lock()
	defer h.mu.Unlock()
	if o.Template == "nosuch" {
		return sandbox.Info{}, sandbox.Errorf(sandbox.Invalid, "there is no template")
	}
	v, ok := h.threads[id]
	if !ok {
		v = sandbox.ThreadView{ThreadInfo: sandbox.ThreadInfo{Thread: sandbox.Thread{Owner: c.Owner, ID: id}, CreatedAt: time.Now()}}
	}
	if v.Sandbox == nil {
		v.Sandbox = &sandbox.Info{Template: o.Template, CreatedAt: time.Now()}
	}
	info := *v.Sandbox
	info.State = sandbox.Running
	v.Sandbox = &info
	if o.Labels != nil {
		v.Labels = o.Labels
	}
	h.threads[id] = v
	return info, nil
}

func (h *house) Thread(_ context.Context, _ sandbox.Caller, id string) (sandbox.ThreadView, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v, ok := h.threads[id]
	if !ok {
		return v, sandbox.Errorf(sandbox.NotFound, "there is no thread")
	}
	return v, nil
}

func (h *house) Threads(_ context.Context, _ sandbox.Caller, f sandbox.ThreadFilter) (out sandbox.ThreadList, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, v := range h.threads {
		fits := true
		for k, want := range f.Labels {
			fits = fits && v.Labels[k] == want
		}
		if fits {
			out.Items = append(out.Items, v)
		}
	}
	return out, nil
}

func (h *house) DeleteThread(_ context.Context, _ sandbox.Caller, id string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.threads[id]; !ok {
		return sandbox.Errorf(sandbox.NotFound, "there is no thread")
	}
	delete(h.threads, id)
	h.deleted = append(h.deleted, id)
	return nil
}

// pause takes as long as a change of a sandbox does.
func (h *house) pause() {
	h.mu.Lock()
	slow := h.slow
	h.mu.Unlock()
	time.Sleep(slow)
}

func (h *house) set(id string, s sandbox.State) (sandbox.Info, error) {
	h.pause()
	h.mu.Lock()
	defer h.mu.Unlock()
	v := h.threads[id]
	if s == sandbox.Paused && len(h.list) > 0 {
		return sandbox.Info{}, sandbox.Errorf(sandbox.Conflict, "execs run")
	}
	info := *v.Sandbox
	info.State = s
	v.Sandbox = &info
	h.threads[id] = v
	return info, nil
}

func (h *house) Pause(_ context.Context, _ sandbox.Caller, id string) (sandbox.Info, error) {
	return h.set(id, sandbox.Paused)
}

func (h *house) Resume(_ context.Context, _ sandbox.Caller, id string) (sandbox.Info, error) {
	return h.set(id, sandbox.Running)
}

func (h *house) Hibernate(_ context.Context, _ sandbox.Caller, id string, _ bool) (sandbox.Info, error) {
	return h.set(id, sandbox.Hibernated)
}

func (h *house) SandboxLoad(_ context.Context, _ sandbox.Caller, id string) (sandbox.Load, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.load, nil
}

func (h *house) Templates() []sandbox.Template {
	all := []sandbox.Template{{Name: "base", Limits: sandbox.Limits{MemoryBytes: 1 << 30, CPUMillis: 2000, DiskBytes: 2 << 30}}, {Name: "data"}}
	if h.lacksData {
		all = all[:1]
	}
	return all
}

func (h *house) RunCommand(_ context.Context, _ sandbox.Caller, _ string, cmd sandbox.Command) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cmd = cmd
	return "ex1", nil
}

func (h *house) RunCode(_ context.Context, _ sandbox.Caller, _ string, code sandbox.Code) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.code = code
	return "ex1", nil
}

func (h *house) Execs(_ context.Context, _ sandbox.Caller, id string) ([]sandbox.ExecInfo, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.threads[id]; !ok {
		return nil, sandbox.Errorf(sandbox.NotFound, "there is no thread")
	}
	return h.list, nil
}

func (h *house) Events(ctx context.Context, _ sandbox.Caller, _, _ string, _ uint64, emit func(sandbox.Event) error) error {
	h.mu.Lock()
	runs := h.runs
	h.mu.Unlock()
	if runs != nil {
		select {
		case <-runs:
		case <-ctx.Done():
			return ctx.Err()
		}
		return emit(sandbox.Event{N: 1, Type: sandbox.EventExit, Result: &sandbox.Result{Status: sandbox.StatusExited}})
	}
	if h.beforeEvents != nil {
		h.beforeEvents()
	}
	for _, ev := range h.events {
		if err := emit(ev); err != nil {
			return err
		}
	}
	return nil
}

func (h *house) act(what string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.did = append(h.did, what)
	return nil
}

func (h *house) SendStdin(_ context.Context, _ sandbox.Caller, _, id string, data []byte, closeIt bool) error {
	if closeIt {
		return h.act("close " + id)
	}
	return h.act("stdin " + id + " " + string(data))
}

func (h *house) Signal(_ context.Context, _ sandbox.Caller, _, id, signal string) error {
	return h.act(signal + " " + id)
}

func (h *house) Kill(_ context.Context, _ sandbox.Caller, _, id string) error {
	h.end()
	return h.act("kill " + id)
}

// end ends the run that goes on.
func (h *house) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.runs != nil {
		close(h.runs)
	}
}

func (h *house) JoinTerminal(_ context.Context, _ sandbox.Caller, _, id string) error {
	return sandbox.Errorf(sandbox.Conflict, "exec %s was not started with a pty", id)
}

func (h *house) Resize(_ context.Context, _ sandbox.Caller, _, id string, _ sandbox.TerminalSize) error {
	return h.act("resize " + id)
}

func (h *house) CreateContext(_ context.Context, _ sandbox.Caller, _ string, q sandbox.ContextRequest) (sandbox.CodeContext, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	cc := sandbox.CodeContext{ContextID: "c" + q.Language, Language: q.Language, Cwd: q.Cwd, State: sandbox.ContextIdle, Runs: 1}
	h.contexts = append(h.contexts, cc)
	return cc, nil
}

func (h *house) Contexts(context.Context, sandbox.Caller, string) ([]sandbox.CodeContext, error) {
	return h.contexts, nil
}

func (h *house) Context(_ context.Context, _ sandbox.Caller, _, id string) (sandbox.CodeContext, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, cc := range h.contexts {
		if cc.ContextID == id {
			return cc, nil
		}
	}
	return sandbox.CodeContext{}, sandbox.Errorf(sandbox.NotFound, "there is no context %s", id)
}

func (h *house) RestartContext(ctx context.Context, c sandbox.Caller, thread, id string) (sandbox.CodeContext, error) {
	_ = h.act("restart " + id)
	return h.Context(ctx, c, thread, id)
}

func (h *house) DeleteContext(_ context.Context, _ sandbox.Caller, _, id string) error {
	return h.act("delete " + id)
}

func (h *house) ReadSandbox(context.Context, sandbox.Caller, string, func(paths.Tree) error) error {
	return sandbox.Errorf(sandbox.NotSupported, "there is no sandbox")
}

func (h *house) ChangeSandbox(context.Context, sandbox.Caller, string, string, string, func(paths.Tree) (int64, error)) error {
	return sandbox.Errorf(sandbox.NotSupported, "there is no sandbox")
}

func (h *house) ReadFiles(_ context.Context, _ sandbox.Caller, _ string, read func(*paths.FS) error) error {
	fs, err := paths.New(paths.Options{Mounts: []paths.Mount{{Virtual: sandbox.UserDataDir, Host: h.dir, Writable: true}}})
	if err != nil {
		return err
	}
	defer fs.Close() //nolint:errcheck // test
	return read(fs)
}

func (h *house) ChangeFiles(ctx context.Context, c sandbox.Caller, thread, action, path string, change func(*paths.FS) (int64, error)) error {
	_ = h.act(action + " " + path)
	return h.ReadFiles(ctx, c, thread, func(fs *paths.FS) error { _, err := change(fs); return err })
}

// WatchFiles looks until ctx ends.
func (h *house) WatchFiles(ctx context.Context, c sandbox.Caller, thread, path string, recursive bool, emit func([]paths.Change) error) error {
	w := paths.NewWatch(path, recursive)
	w.Listen()
	defer w.Close()
	for {
		var changes []paths.Change
		err := h.ReadFiles(ctx, c, thread, func(fs *paths.FS) error { var err error; changes, err = w.Look(ctx, fs); return err })
		if err == nil {
			err = emit(changes)
		}
		if err == nil {
			err = w.Wait(ctx, time.Second)
		}
		if err != nil {
			return err
		}
	}
}

// adapter makes an adapter of fakes.
func adapter(t *testing.T) (*house, *Adapter) {
	t.Helper()
	h := &house{threads: map[string]sandbox.ThreadView{}, dir: t.TempDir()}
	if err := os.Mkdir(h.dir+"/workspace", 0o755); err != nil { //nolint:gosec // a test's
		t.Fatal(err)
	}
	return h, New(Options{Service: service.Service{Threads: h, Sandboxes: h, Runs: h, Execs: h, Terminals: h, Contexts: h, Files: h}, DefaultTemplate: "base", Held: held.New(), Log: slog.New(slog.DiscardHandler)})
}

var parameter = regexp.MustCompile(`[:*]([a-z]+)`)

// start serves the adapter's routes, for the one caller there is.
func start(t *testing.T) (*house, *httptest.Server) {
	t.Helper()
	h, a := adapter(t)
	return h, serve(t, a)
}

func serve(t *testing.T, a *Adapter) *httptest.Server {
	t.Helper()
	served := a.Routes()
	mux := http.NewServeMux()
	for _, route := range served.Routes {
		pattern := parameter.ReplaceAllStringFunc(route.Path, func(p string) string {
			if p[0] == '*' {
				return "{" + p[1:] + "...}"
			}
			return "{" + p[1:] + "}"
		})
		mux.HandleFunc(route.Method+" "+pattern, func(w http.ResponseWriter, r *http.Request) {
			served.Prepare(r)
			thread := r.PathValue("thread")
			if route.Thread != nil {
				thread = route.Thread(r)
			}
			route.Serve(w, r, me, thread)
		})
	}
	srv := httptest.NewServer(mux)
	t.Cleanup(func() { srv.Close(); a.Close(); http.DefaultClient.CloseIdleConnections() })
	return srv
}

// call sends a request, about a sandbox when it is named, and returns status and body.
func call(t *testing.T, method, url, id, body string, headers ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(sandboxHeader, id)
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close() //nolint:errcheck // test
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(data)
}

func exited(code int) sandbox.Event {
	return sandbox.Event{N: 9, Type: sandbox.EventExit, Result: &sandbox.Result{Status: sandbox.StatusExited, ExitCode: &code}}
}

// What E2B's API has no words for.
var errNotAsked = errors.New("not asked for by this API")

func (h *house) ReleaseSandbox(context.Context, sandbox.Caller, string) error { return errNotAsked }

func (h *house) RunScript(context.Context, sandbox.Caller, string, sandbox.Script) (string, error) {
	return "", errNotAsked
}

func (h *house) Wait(ctx context.Context, _ sandbox.Caller, _, _ string) (sandbox.Result, error) {
	select {
	case <-h.runs:
		return sandbox.Result{Status: sandbox.StatusKilled}, nil
	case <-ctx.Done():
		return sandbox.Result{}, ctx.Err()
	}
}

func (h *house) Exec(context.Context, sandbox.Caller, string, string) (sandbox.Result, error) {
	return sandbox.Result{}, errNotAsked
}

func (h *house) InterruptContext(ctx context.Context, c sandbox.Caller, thread, id string) (sandbox.CodeContext, error) {
	_ = h.act("interrupt " + id)
	if !h.stubborn {
		h.end()
	}
	return h.Context(ctx, c, thread, id)
}
