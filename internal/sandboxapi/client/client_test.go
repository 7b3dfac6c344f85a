package client

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sandboxapi/link"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
	"github.com/skerry-sandbox/skerry/internal/sandboxapi/v1/sandboxv1connect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hostile is a sandboxd that answers what a test wants. The real one is tested with the client in
// internal/sandboxd.
type hostile struct {
	sandboxv1connect.UnimplementedSandboxServiceHandler
	events []*sandboxv1.Event // of Run and Attach
	err    error              // after them
	hang   bool               // after them, instead
	status *sandboxv1.StatusResponse
	info   *sandboxv1.FileInfo
	chunks [][]byte

	mu    sync.Mutex
	calls []string
}

func (h *hostile) note(call string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, call)
}

func (h *hostile) stream(ctx context.Context, s *connect.ServerStream[sandboxv1.Event]) error {
	h.mu.Lock()
	events, hang, err := h.events, h.hang, h.err
	h.mu.Unlock()
	for _, e := range events {
		if err := s.Send(e); err != nil {
			return err
		}
	}
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

func (h *hostile) Run(ctx context.Context, _ *connect.Request[sandboxv1.RunRequest], s *connect.ServerStream[sandboxv1.Event]) error {
	h.note("run")
	return h.stream(ctx, s)
}

func (h *hostile) Attach(ctx context.Context, _ *connect.Request[sandboxv1.AttachRequest], s *connect.ServerStream[sandboxv1.Event]) error {
	h.note("attach")
	return h.stream(ctx, s)
}

func (h *hostile) Status(context.Context, *connect.Request[sandboxv1.StatusRequest]) (*connect.Response[sandboxv1.StatusResponse], error) {
	return connect.NewResponse(h.status), h.err
}

func (h *hostile) Kill(ctx context.Context, _ *connect.Request[sandboxv1.KillRequest]) (*connect.Response[sandboxv1.KillResponse], error) {
	if h.hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return connect.NewResponse(&sandboxv1.KillResponse{}), h.err
}

func (h *hostile) Stat(context.Context, *connect.Request[sandboxv1.StatRequest]) (*connect.Response[sandboxv1.FileInfo], error) {
	return connect.NewResponse(h.info), nil
}

func (h *hostile) ReadFile(_ context.Context, _ *connect.Request[sandboxv1.ReadFileRequest], s *connect.ServerStream[sandboxv1.FileChunk]) error {
	for _, c := range h.chunks {
		if err := s.Send(&sandboxv1.FileChunk{Data: c}); err != nil {
			return err
		}
	}
	return nil
}

// serve connects h to a client, and again when the connection is lost, until the test ends or the
// returned function is called.
func (h *hostile) serve(t *testing.T) (c *Client, stop func()) {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(sandboxv1connect.NewSandboxServiceHandler(h))
	return serve(t, mux)
}

func serve(t *testing.T, h http.Handler) (c *Client, stop func()) {
	t.Helper()
	dir := t.TempDir()
	ln, err := link.Listen(link.ListenOptions{Dir: dir, SecretFile: filepath.Join(t.TempDir(), "secret"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		secret := ""
		for ctx.Err() == nil {
			conn, s, err := link.Dial(ctx, filepath.Join(dir, "control.sock"), secret)
			if err != nil {
				time.Sleep(5 * time.Millisecond)
				continue
			}
			secret = s
			_ = link.Serve(ctx, conn, h)
		}
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(func() { stop(); ln.Close() })
	return New(ln, nil), stop
}

func started(n uint64) *sandboxv1.Event {
	return &sandboxv1.Event{N: n, UnixMs: time.Now().UnixMilli(), Kind: &sandboxv1.Event_Started{Started: &sandboxv1.Started{Pid: 7}}}
}

func output(n uint64, size int) *sandboxv1.Event {
	return &sandboxv1.Event{N: n, UnixMs: time.Now().UnixMilli(), Kind: &sandboxv1.Event_Output{Output: &sandboxv1.Output{Data: bytes.Repeat([]byte("x"), size)}}}
}

func exit(n uint64, change ...func(*sandboxv1.Exit)) *sandboxv1.Event {
	x := &sandboxv1.Exit{Status: sandboxv1.Exit_STATUS_EXITED}
	for _, c := range change {
		c(x)
	}
	return &sandboxv1.Event{N: n, UnixMs: time.Now().UnixMilli(), Kind: &sandboxv1.Event_Exit{Exit: x}}
}

func ignore(*sandboxv1.Event) error { return nil }

func TestEventsAreChecked(t *testing.T) {
	t.Parallel()
	stream := func(s *sandboxv1.Stream) func(*sandboxv1.Exit) { return func(x *sandboxv1.Exit) { x.Stdout = s } }
	for name, events := range map[string][]*sandboxv1.Event{
		"a gap":               {started(1), output(3, 1)},
		"a repetition":        {started(1), output(1, 1)},
		"number zero":         {started(0)},
		"started twice":       {started(1), started(2)},
		"no kind":             {{N: 1}},
		"no exit":             {started(1), output(2, 5)},
		"nothing":             {},
		"empty output":        {started(1), output(2, 0)},
		"a chunk too large":   {started(1), output(2, maxChunk+1)},
		"too much output":     {started(1), output(2, 600), output(3, 600), exit(4)},
		"a status":            {exit(1, func(x *sandboxv1.Exit) { x.Status = 99 })},
		"a code":              {exit(1, func(x *sandboxv1.Exit) { x.Code = -1 })},
		"a tail too long":     {exit(1, stream(&sandboxv1.Stream{Total: 1 << 20, Tail: make([]byte, 501)}))},
		"a tail beyond total": {exit(1, stream(&sandboxv1.Stream{Total: 1, Tail: make([]byte, 5)}))},
		"a spill path":        {exit(1, stream(&sandboxv1.Stream{SpillPath: "/etc/passwd"}))},
		"a spill path up":     {exit(1, stream(&sandboxv1.Stream{SpillPath: "/mnt/user-data/x/../../etc"}))},
		"events after exit":   {started(1), exit(2), output(3, 1)},
	} {
		h := &hostile{events: events}
		c, _ := h.serve(t)
		_, err := c.Run(t.Context(), &sandboxv1.RunRequest{ExecId: "x", MaxOutputBytes: 1000, SpillDir: "/mnt/user-data/x"}, ignore)
		if !errors.Is(err, sandbox.SandboxLost) || !errors.Is(err, ErrContract) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestGoodEvents(t *testing.T) {
	t.Parallel()
	x := func(x *sandboxv1.Exit) {
		x.Stdout = &sandboxv1.Stream{Total: 2000, Tail: make([]byte, 500), SpillPath: "/mnt/user-data/x/stdout"}
		x.CpuUs, x.Reason = -5, "bad\x1b[31m\n"+strings.Repeat("long", 1000)
	}
	old := output(2, 500)
	old.UnixMs = 12345
	h := &hostile{events: []*sandboxv1.Event{started(1), old, exit(3, x)}}
	c, _ := h.serve(t)
	var n []uint64
	got, err := c.Run(t.Context(), &sandboxv1.RunRequest{ExecId: "x", MaxOutputBytes: 1000, SpillDir: "/mnt/user-data/x/"}, func(e *sandboxv1.Event) error {
		n = append(n, e.GetN())
		if time.Since(time.UnixMilli(e.GetUnixMs())).Abs() > time.Minute {
			t.Errorf("event %d is of %v", e.GetN(), time.UnixMilli(e.GetUnixMs()))
		}
		return nil
	})
	if err != nil || len(n) != 3 || got.GetCpuUs() != 0 || len(got.GetReason()) > maxDetail+3 || strings.ContainsAny(got.GetReason(), "\x1b\n") {
		t.Errorf("%v, %v, %+v", err, n, got)
	}
	// The end of the stream may be kept back.
	h = &hostile{events: []*sandboxv1.Event{exit(1)}, hang: true}
	c, _ = h.serve(t)
	start := time.Now()
	if _, err := c.Run(t.Context(), &sandboxv1.RunRequest{ExecId: "x"}, ignore); err != nil || time.Since(start) > 20*time.Second {
		t.Errorf("%v after %v", err, time.Since(start))
	}
}

func TestErrorsOfRun(t *testing.T) {
	t.Parallel()
	h := &hostile{events: []*sandboxv1.Event{started(1)}, hang: true}
	c, stop := h.serve(t)
	ours := errors.New("ours")
	if _, err := c.Run(t.Context(), &sandboxv1.RunRequest{ExecId: "x"}, func(*sandboxv1.Event) error { return ours }); !errors.Is(err, ours) {
		t.Errorf("error of emit: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Run(ctx, &sandboxv1.RunRequest{ExecId: "x"}, ignore); !errors.Is(err, sandbox.Timeout) {
		t.Errorf("deadline: %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	if _, err := c.Run(ctx, &sandboxv1.RunRequest{ExecId: "x"}, ignore); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	// The sandbox goes away for good.
	start := time.Now()
	_, err := c.Run(t.Context(), &sandboxv1.RunRequest{ExecId: "x"}, func(*sandboxv1.Event) error { go stop(); return nil })
	if !errors.Is(err, sandbox.SandboxLost) || errors.Is(err, ErrContract) || time.Since(start) > Grace+2*time.Second {
		t.Errorf("sandbox gone: %v after %v", err, time.Since(start))
	}
}

// A sandbox that runs is waited for beyond Grace, and no longer than it runs.
func TestPatience(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ln, err := link.Listen(link.ListenOptions{Dir: dir, SecretFile: filepath.Join(t.TempDir(), "secret"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	asked := 0
	c := New(ln, func(context.Context) bool { asked++; return asked == 1 })
	start := time.Now()
	if _, err := c.Status(t.Context()); !errors.Is(err, sandbox.SandboxLost) || asked != 2 || time.Since(start) < 2*Grace {
		t.Errorf("%v after %v, asked %d times", err, time.Since(start), asked)
	}
	asked = 0
	ctx, cancel := context.WithTimeout(t.Context(), Grace+500*time.Millisecond)
	defer cancel()
	if _, err := c.Status(ctx); !errors.Is(err, sandbox.Timeout) || asked != 1 {
		t.Errorf("%v, asked %d times", err, asked)
	}
}

// After a break the client asks for the rest, and tells when sandboxd does not know the exec any more.
func TestExecIsLostWithItsSandbox(t *testing.T) {
	t.Parallel()
	h := &hostile{events: []*sandboxv1.Event{started(1)}, hang: true}
	c, _ := h.serve(t)
	_, err := c.Run(t.Context(), &sandboxv1.RunRequest{ExecId: "x"}, func(*sandboxv1.Event) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.events, h.hang, h.err = nil, false, connect.NewError(connect.CodeNotFound, errors.New("no such exec"))
		conn, err := c.link.Conn(t.Context())
		if err == nil {
			conn.Close()
		}
		return err
	})
	if !errors.Is(err, sandbox.SandboxLost) {
		t.Errorf("%v", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if got := strings.Join(h.calls, " "); got != "run attach" {
		t.Errorf("calls: %s", got)
	}
}

func TestErrorKinds(t *testing.T) {
	t.Parallel()
	for code, want := range kinds {
		h := &hostile{err: connect.NewError(code, errors.New("text\x00 of\nsandboxd"))}
		c, _ := h.serve(t)
		err := c.Kill(t.Context(), "x")
		var e *sandbox.Error
		if !errors.As(err, &e) || e.Kind != want || e.Detail != "text  of sandboxd" {
			t.Errorf("%v: %v", code, err)
		}
	}
	h := &hostile{err: errors.New("a secret of sandboxd")}
	c, _ := h.serve(t)
	var e *sandbox.Error
	if err := c.Kill(t.Context(), "x"); !errors.As(err, &e) || e.Kind != sandbox.Internal || strings.Contains(e.Detail, "secret") {
		t.Errorf("%v", err)
	}
	if err := c.Forget(t.Context(), "x"); !errors.Is(err, sandbox.NotSupported) {
		t.Errorf("unimplemented: %v", err)
	}
	h = &hostile{hang: true}
	c, _ = h.serve(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.Kill(ctx, "x"); !errors.Is(err, sandbox.Timeout) {
		t.Errorf("hang: %v", err)
	}
}

func TestAnswersAreChecked(t *testing.T) {
	t.Parallel()
	h := &hostile{status: &sandboxv1.StatusResponse{Languages: make([]string, maxStrings+1)}, info: &sandboxv1.FileInfo{Path: strings.Repeat("x", maxPath+1)}}
	c, _ := h.serve(t)
	if _, err := c.Status(t.Context()); !errors.Is(err, ErrContract) {
		t.Errorf("status: %v", err)
	}
	h.status = &sandboxv1.StatusResponse{Execs: []*sandboxv1.ExecStatus{{ExecId: strings.Repeat("x", 200)}}}
	if _, err := c.Status(t.Context()); !errors.Is(err, ErrContract) {
		t.Errorf("status: %v", err)
	}
	if _, err := c.Stat(t.Context(), "/x"); !errors.Is(err, ErrContract) {
		t.Errorf("stat: %v", err)
	}
	h.chunks = [][]byte{make([]byte, 50), make([]byte, 51)}
	var b bytes.Buffer
	if _, err := c.ReadFile(t.Context(), "/x", 0, 100, &b); !errors.Is(err, ErrContract) || b.Len() > 100 {
		t.Errorf("more than was asked for: %v", err)
	}
	h.chunks = [][]byte{make([]byte, maxMessage+1)}
	if _, err := c.ReadFile(t.Context(), "/x", 0, 0, &b); !errors.Is(err, ErrContract) {
		t.Errorf("a message too large: %v", err)
	}
}
