package execution

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/platform/redact"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
)

var errGone = errors.New("the follower has enough")

const secretValue = "sk-live-0123456789"

func newExecution(id string) *Exec {
	return &Exec{ID: id, Started: time.Now(), log: eventLog{changed: make(chan struct{})}, Thread: sandbox.Thread{ID: "t"}}
}

func output(stderr bool, text string) *sandboxv1.Event {
	return &sandboxv1.Event{Kind: &sandboxv1.Event_Output{Output: &sandboxv1.Output{Stderr: stderr, Data: []byte(text)}}}
}

func TestFollowersSeeEveryEventOnceAndInOrder(t *testing.T) {
	e := newExecution("x")
	const n = 200
	go func() {
		for i := range n {
			if e.Take(output(i%2 == 1, fmt.Sprint(i))) != nil {
				panic("take failed")
			}
		}
		e.Finish(sandbox.Result{Status: sandbox.StatusExited}, nil)
	}()
	for _, after := range []uint64{0, 7, n} {
		next := after + 1
		err := e.Follow(context.Background(), after, func(ev sandbox.Event) error {
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
		if err := e.Take(output(false, "head")); err != nil {
			t.Fatal(err)
		}
		res := e.Compose(&sandboxv1.Exit{Status: sandboxv1.Exit_STATUS_EXITED, Stdout: c.stream})
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
		if got := string(TrimEnd([]byte(text))); got != want {
			t.Errorf("trimEnd(%q) = %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{"éa": "éa", "\xa9a": "a", "\x82\xac€": "€", "": ""} {
		if got := string(TrimStart([]byte(text))); got != want {
			t.Errorf("trimStart(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestBinaryOutputIsBase64(t *testing.T) {
	var res sandbox.Result
	SetText(&res, []byte{0xff}, []byte("ok"))
	if res.Encoding != "base64" || res.Stdout != "/w==" || res.Stderr != "b2s=" {
		t.Errorf("%+v", res)
	}
}

func TestResultWithoutADurableRecordIsNotShown(t *testing.T) {
	e := newExecution("x")
	e.Finish(sandbox.Result{Stdout: "secret"}, sandbox.Errorf(sandbox.Unavailable, "no record"))
	if res, err := e.Wait(context.Background()); !errors.Is(err, sandbox.Unavailable) || res.Stdout != "" {
		t.Errorf("%+v, %v", res, err)
	}
	if err := e.Follow(context.Background(), 0, func(sandbox.Event) error { return nil }); !errors.Is(err, sandbox.Unavailable) {
		t.Errorf("follow: %v", err)
	}
}

func TestRegistryIsBounded(t *testing.T) {
	g := NewRegistry(nil)
	for i := range keepPerThread + 50 {
		e := newExecution(fmt.Sprint(i))
		g.Begin()
		g.Add(e)
		e.Finish(sandbox.Result{}, nil)
		g.End(e)
	}
	if g.ended.Len() != keepPerThread || len(g.byID) != keepPerThread || g.Running() != 0 {
		t.Errorf("%d ended, %d known, %d run", g.ended.Len(), len(g.byID), g.Running())
	}
	if _, err := g.Get(sandbox.Thread{ID: "t"}, "0"); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("the oldest: %v", err)
	}
	if _, err := g.Get(sandbox.Thread{ID: "other"}, "249"); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("another thread's: %v", err)
	}
	big := newExecution("big")
	big.Thread.ID = "big"
	g.Begin()
	g.Add(big)
	big.log.bytes = keepOutput + 1
	big.Finish(sandbox.Result{}, nil)
	g.End(big)
	if g.held > keepOutput {
		t.Errorf("%d bytes are held", g.held)
	}
	g.Expire(time.Now().Add(24 * time.Hour))
	if len(g.byID) != 0 || g.held != 0 {
		t.Errorf("after a day: %d known, %d bytes", len(g.byID), g.held)
	}
}

// TestTerminalKeepsTheNewest: old events are dropped, a follower goes on with what is there, and the
// result is as long as any other.
func TestTerminalKeepsTheNewest(t *testing.T) {
	e := newExecution("x")
	e.Spec.Live, e.log.live = 1000, 1000
	for i := range 500 {
		if err := e.Take(&sandboxv1.Event{N: uint64(i) + 1, Kind: output(false, fmt.Sprintf("%09d\n", i)).Kind}); err != nil {
			t.Fatal(err)
		}
	}
	if e.log.bytes != 1000 || len(e.log.events) != 100 {
		t.Fatalf("%d bytes in %d events are held", e.log.bytes, len(e.log.events))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	next := uint64(401)
	err := e.Follow(ctx, 3, func(ev sandbox.Event) error {
		if ev.N != next || string(ev.Data) != fmt.Sprintf("%09d\n", ev.N-1) {
			return fmt.Errorf("event %d with %q, want %d", ev.N, ev.Data, next)
		}
		if next++; ev.N == 500 {
			return errGone
		}
		return nil
	})
	if !errors.Is(err, errGone) {
		t.Fatal(err)
	}
	tail := strings.Repeat("x", 500)
	res := e.Compose(&sandboxv1.Exit{Status: sandboxv1.Exit_STATUS_EXITED, Stdout: &sandboxv1.Stream{Total: 5000, Tail: []byte(tail)}, Stderr: &sandboxv1.Stream{}})
	if !res.Truncated || len(res.Stdout) > 1100 || !strings.HasPrefix(res.Stdout, "000000000\n") || !strings.Contains(res.Stdout, "4000 bytes left out") || !strings.HasSuffix(res.Stdout, tail) {
		t.Errorf("%v, %d bytes: %.60q", res.Truncated, len(res.Stdout), res.Stdout)
	}
}

// TestTerminalStderrIsBounded, although terminals have none: a follower could take it from a sandboxd that is not ours.
func TestTerminalStderrIsBounded(t *testing.T) {
	e := newExecution("x")
	e.Spec.Live, e.log.live = 1000, 1000
	for i := range 100 {
		if err := e.Take(&sandboxv1.Event{N: uint64(i) + 1, Kind: output(true, strings.Repeat("x", 100)).Kind}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(e.log.stderr); n > 1100 {
		t.Errorf("%d bytes of stderr are held", n)
	}
}

// TestEventsCostMoreThanTheirBytes: what ended execs hold is counted as the memory that it takes.
func TestEventsCostMoreThanTheirBytes(t *testing.T) {
	g := NewRegistry(nil)
	e := newExecution("x")
	e.Secret = Secrets{rawOut: 1}
	g.Begin()
	g.Add(e)
	for i := range 1000 {
		if err := e.Take(&sandboxv1.Event{N: uint64(i) + 1, Kind: output(false, "x").Kind}); err != nil {
			t.Fatal(err)
		}
	}
	results := []sandbox.RichResult{{"text/plain": json.RawMessage(`"` + strings.Repeat("r", 5000) + `"`)}}
	e.Finish(sandbox.Result{
		Stdout: strings.Repeat("x", 2000), Stderr: strings.Repeat("x", 3000), Results: &results, Files: []sandbox.FileChange{{Path: strings.Repeat("p", 4000)}},
	}, nil)
	g.End(e)
	if least, most := int64(1000*100+2000+3000+5000+4000), int64(1000*200+20_000); g.held < least || g.held > most {
		t.Errorf("%d bytes are held, want %d to %d", g.held, least, most)
	}
	if e.Secret != (Secrets{}) {
		t.Error("the secrets are kept with an exec that ended")
	}
	g.Expire(time.Now().Add(24 * time.Hour))
	if g.held != 0 {
		t.Errorf("%d bytes are held of none", g.held)
	}
}

func TestLostOutputTellsNoPartOfASecret(t *testing.T) {
	e := newExecution("x")
	hide, err := redact.New(secretValue)
	if err != nil {
		t.Fatal(err)
	}
	e.Secret = NewSecrets(instance.Hidden{Output: hide, Given: hide, All: hide})
	if err := e.Take(output(false, "a "+secretValue[:12])); err != nil {
		t.Fatal(err)
	}
	e.TakeRest(nil)
	if res := e.Compose(&sandboxv1.Exit{}); res.Stdout != "a [redacted]" {
		t.Errorf("%q", res.Stdout)
	}
}

// BenchmarkRegistry measures the end of an exec and a list of a thread's execs. Its parameter is the number
// of execs that ended within half an hour.
func BenchmarkRegistry(b *testing.B) {
	for _, n := range []int{100, 10_000, 100_000} {
		g := NewRegistry(nil)
		exec := func(i int) *Exec {
			return &Exec{ID: strconv.Itoa(i), Thread: sandbox.Thread{Owner: sandbox.Owner{Tenant: "t", User: "u"}, ID: strconv.Itoa(i % 1000)}, Started: time.Now(), log: eventLog{result: &sandbox.Result{}}}
		}
		for i := range n {
			e := exec(i)
			g.Add(e)
			g.End(e)
		}
		b.Run("end/"+strconv.Itoa(n), func(b *testing.B) {
			for i := n; b.Loop(); i++ {
				e := exec(i)
				g.Add(e)
				g.End(e)
			}
		})
		b.Run("list/"+strconv.Itoa(n), func(b *testing.B) {
			for b.Loop() {
				g.List(sandbox.Thread{Owner: sandbox.Owner{Tenant: "t", User: "u"}, ID: "7"})
			}
		})
	}
}
