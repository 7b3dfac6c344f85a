package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
)

func newExecution(id string) *execution {
	return &execution{id: id, started: time.Now(), changed: make(chan struct{}), thread: sandbox.Thread{ID: "t"}}
}

func output(stderr bool, text string) *sandboxv1.Event {
	return &sandboxv1.Event{Kind: &sandboxv1.Event_Output{Output: &sandboxv1.Output{Stderr: stderr, Data: []byte(text)}}}
}

func TestFollowersSeeEveryEventOnceAndInOrder(t *testing.T) {
	e := newExecution("x")
	const n = 200
	go func() {
		for i := range n {
			if e.take(output(i%2 == 1, fmt.Sprint(i))) != nil {
				panic("take failed")
			}
		}
		e.finish(sandbox.Result{Status: sandbox.StatusExited}, nil)
	}()
	for _, after := range []uint64{0, 7, n} {
		next := after + 1
		err := e.follow(context.Background(), after, func(ev sandbox.Event) error {
			if ev.N != next {
				return fmt.Errorf("event %d, want %d", ev.N, next)
			}
			next++
			return nil
		})
		if err != nil || next != n+2 {
			t.Errorf("after %d: %v, up to %d", after, err, next-1)
		}
	}
}

func TestWhatSandboxdSaysIsData(t *testing.T) {
	for name, c := range map[string]struct {
		stream *sandboxv1.Stream
		path   bool
	}{
		"good":            {&sandboxv1.Stream{Total: 100, Tail: []byte("end"), SpillPath: "/mnt/user-data/workspace/.skerry/x"}, true},
		"path outside":    {&sandboxv1.Stream{Total: 100, Tail: []byte("end"), SpillPath: "/etc/passwd"}, false},
		"path with dots":  {&sandboxv1.Stream{Total: 100, Tail: []byte("end"), SpillPath: "/mnt/user-data/../../etc/passwd"}, false},
		"total too small": {&sandboxv1.Stream{Total: 5, Tail: []byte(strings.Repeat("x", 50))}, false},
		"total enormous":  {&sandboxv1.Stream{Total: 1<<64 - 1, Tail: []byte("end")}, false},
	} {
		e := newExecution("x")
		if err := e.take(output(false, "head")); err != nil {
			t.Fatal(err)
		}
		res := e.compose(&sandboxv1.Exit{Status: sandboxv1.Exit_STATUS_EXITED, Stdout: c.stream})
		if (res.StdoutPath != nil) != c.path {
			t.Errorf("%s: path %v", name, res.StdoutPath)
		}
		if !strings.HasPrefix(res.Stdout, "head") {
			t.Errorf("%s: %q", name, res.Stdout)
		}
	}
}

func TestCutsFallBetweenCharacters(t *testing.T) {
	for text, want := range map[string]string{"aé": "aé", "a\xc3": "a", "€\xe2\x82": "€", "": ""} {
		if got := string(trimEnd([]byte(text))); got != want {
			t.Errorf("trimEnd(%q) = %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{"éa": "éa", "\xa9a": "a", "\x82\xac€": "€", "": ""} {
		if got := string(trimStart([]byte(text))); got != want {
			t.Errorf("trimStart(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestBinaryOutputIsBase64(t *testing.T) {
	var res sandbox.Result
	setText(&res, []byte{0xff}, []byte("ok"))
	if res.Encoding != "base64" || res.Stdout != "/w==" || res.Stderr != "b2s=" {
		t.Errorf("%+v", res)
	}
}

func TestResultWithoutADurableRecordIsNotShown(t *testing.T) {
	e := newExecution("x")
	e.finish(sandbox.Result{Stdout: "secret"}, sandbox.Errorf(sandbox.Unavailable, "no record"))
	if res, err := e.wait(context.Background()); !errors.Is(err, sandbox.Unavailable) || res.Stdout != "" {
		t.Errorf("%+v, %v", res, err)
	}
	if err := e.follow(context.Background(), 0, func(sandbox.Event) error { return nil }); !errors.Is(err, sandbox.Unavailable) {
		t.Errorf("follow: %v", err)
	}
}

func TestRegistryIsBounded(t *testing.T) {
	var g registry
	g.init()
	for i := range keepPerThread + 50 {
		e := newExecution(fmt.Sprint(i))
		g.begin()
		g.add(e)
		e.finish(sandbox.Result{}, nil)
		g.end(e)
	}
	if g.ended.Len() != keepPerThread || len(g.byID) != keepPerThread || g.running() != 0 {
		t.Errorf("%d ended, %d known, %d run", g.ended.Len(), len(g.byID), g.running())
	}
	if _, err := g.get(sandbox.Thread{ID: "t"}, "0"); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("the oldest: %v", err)
	}
	if _, err := g.get(sandbox.Thread{ID: "other"}, "249"); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("another thread's: %v", err)
	}
	big := newExecution("big")
	big.thread.ID = "big"
	g.begin()
	g.add(big)
	big.bytes = keepOutput + 1
	big.finish(sandbox.Result{}, nil)
	g.end(big)
	if g.held > keepOutput {
		t.Errorf("%d bytes are held", g.held)
	}
	g.expire(time.Now().Add(24 * time.Hour))
	if len(g.byID) != 0 || g.held != 0 {
		t.Errorf("after a day: %d known, %d bytes", len(g.byID), g.held)
	}
}

func TestCommandsThatCannotBeRight(t *testing.T) {
	for name, cmd := range map[string]sandbox.Command{
		"neither":     {},
		"both":        {Shell: "a", Argv: []string{"a"}},
		"many words":  {Argv: make([]string, maxArgs+1)},
		"NUL":         {Argv: []string{"a\x00"}},
		"long word":   {Shell: strings.Repeat("x", maxArgBytes+1)},
		"long stdin":  {Shell: "a", Stdin: strings.Repeat("x", sandbox.MaxStdinBytes+1)},
		"cwd":         {Shell: "a", Cwd: "relative"},
		"timeout":     {Shell: "a", Timeout: -1},
		"env name":    {Shell: "a", Env: map[string]string{"1A": ""}},
		"env of ours": {Shell: "a", Env: map[string]string{"SKERRY_EXEC_TOKEN": "x"}},
		"env NUL":     {Shell: "a", Env: map[string]string{"A": "\x00"}},
	} {
		if err := checkCommand(cmd); !errors.Is(err, sandbox.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := checkCommand(sandbox.Command{Shell: "true", Env: map[string]string{"A": "1"}}); err != nil {
		t.Errorf("a good one: %v", err)
	}
}

// TestKilledInTheSandbox: the caller reads why an exec ended that no caller killed.
func TestKilledInTheSandbox(t *testing.T) {
	h := newHouse(t, daemon{run: func(out *connect.ServerStream[sandboxv1.Event]) error {
		return errors.Join(
			out.Send(&sandboxv1.Event{N: 1, Kind: &sandboxv1.Event_Started{Started: &sandboxv1.Started{Pid: 2}}}),
			out.Send(&sandboxv1.Event{N: 2, Kind: &sandboxv1.Event_Exit{Exit: &sandboxv1.Exit{
				Status: sandboxv1.Exit_STATUS_KILLED, Reason: "its supervisor was killed", Stdout: &sandboxv1.Stream{}, Stderr: &sandboxv1.Stream{},
			}}}),
		)
	}})
	res, err := h.exec(t, "one", time.Minute)
	if err != nil || res.Status != sandbox.StatusKilled || res.Detail != "its supervisor was killed" {
		t.Errorf("%+v, %v", res, err)
	}
}
