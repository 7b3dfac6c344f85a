package orchestrator

import (
	"errors"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
)

func TestTerminalOfAnExec(t *testing.T) {
	t.Parallel()
	asked := make(chan *sandboxv1.RunRequest, 1)
	sizes, done := make(chan *sandboxv1.TerminalSize, 1), make(chan struct{})
	d := daemon{asked: func(r *sandboxv1.RunRequest) { asked <- r }, resized: func(s *sandboxv1.TerminalSize) { sizes <- s }}
	d.run = func(out *connect.ServerStream[sandboxv1.Event]) error {
		first, gap := output(false, "shown sk-live-"), output(false, "-0123456789 on")
		first.N, gap.N = 2, 9
		err := errors.Join(out.Send(&sandboxv1.Event{N: 1, Kind: &sandboxv1.Event_Started{Started: &sandboxv1.Started{Pid: 2}}}), out.Send(first), out.Send(gap))
		<-done
		return errors.Join(err, out.Send(&sandboxv1.Event{N: 10, Kind: &sandboxv1.Event_Exit{Exit: &sandboxv1.Exit{
			Status: sandboxv1.Exit_STATUS_EXITED, Stdout: &sandboxv1.Stream{Total: 90}, Stderr: &sandboxv1.Stream{},
		}}}))
	}
	h := newHouse(t, d)
	size := sandbox.TerminalSize{Cols: 80, Rows: 24}
	id, err := h.Runs.RunCommand(t.Context(), caller, "t1", sandbox.Command{Shell: "top", Background: true, Terminal: &size, Env: map[string]string{"API": secretValue}, RedactEnv: true})
	if err != nil {
		t.Fatal(err)
	}
	if req := <-asked; req.GetTerminal().GetCols() != 80 || req.GetTerminal().GetRows() != 24 {
		t.Errorf("sandboxd was asked for %v", req.GetTerminal())
	}
	if err := h.Execs.Resize(t.Context(), caller, "t1", id, sandbox.TerminalSize{Cols: 100, Rows: 40}); err != nil {
		t.Fatal(err)
	}
	if got := <-sizes; got.GetCols() != 100 || got.GetRows() != 40 {
		t.Errorf("resized to %v", got)
	}
	if err := h.Execs.Resize(t.Context(), caller, "t1", id, sandbox.TerminalSize{Cols: 100}); !errors.Is(err, sandbox.Invalid) {
		t.Errorf("no rows: %v", err)
	}
	if err := h.Execs.JoinTerminal(t.Context(), caller, "t1", id); err != nil {
		t.Fatal(err)
	}
	stranger := sandbox.Caller{Owner: sandbox.Owner{Tenant: "t", User: "other"}}
	if err := errors.Join(h.Execs.JoinTerminal(t.Context(), stranger, "t1", id), h.Execs.Resize(t.Context(), stranger, "t1", id, size)); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("a stranger: %v", err)
	}
	close(done)
	res, err := h.Execs.Wait(t.Context(), caller, "t1", id)
	if err != nil || strings.Contains(res.Stdout, "sk-live") || strings.Contains(res.Stdout, "0123456789") || !strings.HasPrefix(res.Stdout, "shown ") {
		t.Errorf("%v, %q", err, res.Stdout)
	}
	if err := h.Execs.JoinTerminal(t.Context(), caller, "t1", id); err != nil {
		t.Errorf("join after the end: %v", err)
	}
	if err := h.Execs.Resize(t.Context(), caller, "t1", id, size); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("resize after the end: %v", err)
	}
	deadline := time.Now().Add(20 * time.Second)
	for {
		joined, _, err := h.audit.List(t.Context(), audit.Filter{Tenant: "t", Action: audit.ActionTerminal}) // records are shipped there
		if err == nil && len(joined) == 2 && joined[0].Exec == id && joined[0].Parent != "" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("audit: %v, %+v", err, joined)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestTerminalNeedsBackground(t *testing.T) {
	t.Parallel()
	h := newHouse(t, daemon{run: exits})
	for name, c := range map[string]sandbox.Command{
		"in front": {Shell: "true", Terminal: &sandbox.TerminalSize{Cols: 80, Rows: 24}},
		"no size":  {Shell: "true", Background: true, Terminal: &sandbox.TerminalSize{}},
		"too wide": {Shell: "true", Background: true, Terminal: &sandbox.TerminalSize{Cols: 1001, Rows: 24}},
	} {
		if _, err := h.Runs.RunCommand(t.Context(), caller, "t1", c); !errors.Is(err, sandbox.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	id, err := h.Runs.RunCommand(t.Context(), caller, "t1", sandbox.Command{Shell: "true", Background: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Execs.JoinTerminal(t.Context(), caller, "t1", id); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("joined pipes: %v", err)
	}
}
