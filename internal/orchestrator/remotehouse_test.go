package orchestrator

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/driver/memory"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
	"github.com/skerry-sandbox/skerry/internal/sandboxapi/v1/sandboxv1connect"
	vpath "github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// shells plays the sandboxds of sandboxes with disks of their own: commands are shell scripts that begin in the sandbox's
// workspace.
type shells struct {
	mu   sync.Mutex
	all  []*script
	byID map[string]*script
	wg   sync.WaitGroup
}

type script struct {
	cmd    *exec.Cmd
	killed atomic.Bool
	done   chan struct{}
}

func newShells(t testing.TB) *shells {
	s := &shells{byID: map[string]*script{}}
	t.Cleanup(func() {
		s.mu.Lock()
		for _, x := range s.all {
			_ = x.cmd.Process.Kill()
		}
		s.mu.Unlock()
		s.wg.Wait()
	})
	return s
}

// of is the daemon of one sandbox.
func (s *shells) of(spec sandbox.Spec) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(sandboxv1connect.NewSandboxServiceHandler(&shellDaemon{all: s, work: filepath.Join(spec.Mounts[0].Source, "workspace")}))
	return mux
}

type shellDaemon struct {
	daemon
	all  *shells
	work string
}

func (d *shellDaemon) Run(ctx context.Context, req *connect.Request[sandboxv1.RunRequest], out *connect.ServerStream[sandboxv1.Event]) error {
	x := &script{cmd: exec.Command("sh", "-c", req.Msg.GetShell()), done: make(chan struct{})}
	x.cmd.Dir = d.work
	if err := x.cmd.Start(); err != nil {
		return err
	}
	d.all.mu.Lock()
	d.all.all, d.all.byID[req.Msg.GetExecId()] = append(d.all.all, x), x
	d.all.mu.Unlock()
	d.all.wg.Go(func() {
		_ = x.cmd.Wait()
		close(x.done)
	})
	if err := out.Send(&sandboxv1.Event{N: 1, Kind: &sandboxv1.Event_Started{Started: &sandboxv1.Started{Pid: 2}}}); err != nil {
		return err
	}
	return x.follow(ctx, out)
}

func (x *script) follow(ctx context.Context, out *connect.ServerStream[sandboxv1.Event]) error {
	select {
	case <-x.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	exit := &sandboxv1.Exit{Status: sandboxv1.Exit_STATUS_EXITED, Code: int32(x.cmd.ProcessState.ExitCode()), Stdout: &sandboxv1.Stream{}, Stderr: &sandboxv1.Stream{}}
	if x.killed.Load() {
		exit.Status = sandboxv1.Exit_STATUS_KILLED
	}
	return out.Send(&sandboxv1.Event{N: 2, Kind: &sandboxv1.Event_Exit{Exit: exit}})
}

func (d *shellDaemon) find(id string) *script {
	d.all.mu.Lock()
	defer d.all.mu.Unlock()
	return d.all.byID[id]
}

// Attach goes on where a broken connection was.
func (d *shellDaemon) Attach(ctx context.Context, req *connect.Request[sandboxv1.AttachRequest], out *connect.ServerStream[sandboxv1.Event]) error {
	x := d.find(req.Msg.GetExecId())
	if x == nil {
		return connect.NewError(connect.CodeNotFound, errors.New("no such exec"))
	}
	return x.follow(ctx, out)
}

func (d *shellDaemon) Kill(_ context.Context, req *connect.Request[sandboxv1.KillRequest]) (*connect.Response[sandboxv1.KillResponse], error) {
	if x := d.find(req.Msg.GetExecId()); x != nil {
		x.killed.Store(true)
		_ = x.cmd.Process.Kill()
	}
	return connect.NewResponse(&sandboxv1.KillResponse{}), nil
}

// spied is a driver.Remote whose copying is counted, and can be held up.
type spied struct {
	*memory.Remote
	pulls, pushes atomic.Int64
	mu            sync.Mutex
	onPull        func(sandbox.ID) // before one
	onPush        func([]string)
	failPush      func(id sandbox.ID, paths []string) error // in the place of one, when it returns an error
	failCreate    func() error
	image         atomic.Value
	imageAsked    atomic.Int32
}

// ImageNow names the image of all templates.
func (s *spied) ImageNow(context.Context, string) (string, error) {
	s.imageAsked.Add(1)
	image, _ := s.image.Load().(string)
	return image, nil
}

func (s *spied) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Instance, error) {
	s.mu.Lock()
	fail := s.failCreate
	s.mu.Unlock()
	if fail != nil {
		if err := fail(); err != nil {
			return sandbox.Instance{}, err
		}
	}
	return s.Remote.Create(ctx, spec)
}

func (s *spied) Pull(ctx context.Context, id sandbox.ID) (bool, error) {
	s.pulls.Add(1)
	s.mu.Lock()
	hook := s.onPull
	s.mu.Unlock()
	if hook != nil {
		hook(id)
	}
	return s.Remote.Pull(ctx, id)
}

func (s *spied) Push(ctx context.Context, id sandbox.ID, paths ...string) error {
	s.pushes.Add(1)
	s.mu.Lock()
	hook, fail := s.onPush, s.failPush
	s.mu.Unlock()
	if hook != nil {
		hook(paths)
	}
	if fail != nil {
		if err := fail(id, paths); err != nil {
			return err
		}
	}
	return s.Remote.Push(ctx, id, paths...)
}

func (s *spied) fails(push func(sandbox.ID, []string) error, create func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failPush, s.failCreate = push, create
}

func (s *spied) hook(pull func(sandbox.ID), push func([]string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onPull, s.onPush = pull, push
}

// remoteHouse is a house whose sandboxes have disks of their own, and run scripts.
type remoteHouse struct {
	*house
	spy *spied
	t   *testing.T
}

func newFarHouse(t *testing.T, change ...func(*Options)) *remoteHouse {
	t.Helper()
	all := newShells(t)
	f := &remoteHouse{t: t, spy: &spied{Remote: memory.NewRemote(memory.Options{Log: slog.New(slog.DiscardHandler), Handler: all.of})}}
	t.Cleanup(func() {
		if err := f.spy.Close(); err != nil {
			t.Error(err)
		}
	})
	f.house = newHouseWith(t, daemon{}, noTools{}, append([]func(*Options){func(o *Options) { o.Driver = f.spy }}, change...)...)
	return f
}

func (f *remoteHouse) start(id, script string) string {
	f.t.Helper()
	exec, err := f.Runs.RunCommand(f.t.Context(), caller, id, sandbox.Command{Shell: script, Timeout: time.Minute, ReportFiles: true})
	if err != nil {
		f.t.Fatal(err)
	}
	return exec
}

func (f *remoteHouse) end(id, exec string) sandbox.Result {
	f.t.Helper()
	res, err := f.Execs.Wait(f.t.Context(), caller, id, exec)
	if err != nil {
		f.t.Fatal(err)
	}
	return res
}

func (f *remoteHouse) run(id, script string) sandbox.Result {
	f.t.Helper()
	return f.end(id, f.start(id, script))
}

// ok runs a script that ends well.
func (f *remoteHouse) ok(id, script string) sandbox.Result {
	f.t.Helper()
	res := f.run(id, script)
	if res.Status != sandbox.StatusExited || res.ExitCode == nil || *res.ExitCode != 0 {
		f.t.Fatalf("%s: %+v", script, res)
	}
	return res
}

// here is what the server has at a path of the thread; "": nothing.
func (f *remoteHouse) here(id, name string) string {
	text, _ := os.ReadFile(filepath.Join(f.folders.Dir(sandbox.Thread{Owner: caller.Owner, ID: id}), "workspace", name))
	return string(text)
}

func (f *remoteHouse) instance(id string) *instance.Instance {
	return f.live.Find(sandbox.Thread{Owner: caller.Owner, ID: id})
}

// there is where the sandbox has a file.
func (f *remoteHouse) there(id, name string) string {
	return f.spy.Host().Inside(f.instance(id).ID, sandbox.WorkspaceDir+"/"+name)
}

// read is what the API says of a file.
func (f *remoteHouse) read(id, name string) (string, error) {
	text := ""
	err := f.Files.ReadFiles(f.t.Context(), caller, id, func(fs *vpath.FS) error {
		got, err := fs.Read(sandbox.WorkspaceDir+"/"+name, 0, 0)
		text = got.Content
		return err
	})
	return text, err
}

func (f *remoteHouse) write(id, name, text string, add bool) error {
	return f.Files.ChangeFiles(f.t.Context(), caller, id, audit.ActionFileWrite, name, func(fs *vpath.FS) (int64, error) {
		w, err := fs.Write(f.t.Context(), sandbox.WorkspaceDir+"/"+name, strings.NewReader(text), add)
		return w.Added, err
	})
}

func (f *remoteHouse) change(id string, change func(*vpath.FS) error) {
	f.t.Helper()
	err := f.Files.ChangeFiles(f.t.Context(), caller, id, audit.ActionFileMove, "x", func(fs *vpath.FS) (int64, error) { return 0, change(fs) })
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *remoteHouse) want(what, got, want string) {
	f.t.Helper()
	if got != want {
		f.t.Errorf("%s is %q, want %q", what, got, want)
	}
}

// untilThere is a line of a script that waits for a file of the sandbox, for a bounded time.
func untilThere(file string) string {
	return "for i in $(seq 1500); do [ -e " + file + " ] && break; sleep 0.02; done; "
}
