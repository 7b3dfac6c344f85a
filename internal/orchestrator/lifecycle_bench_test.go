package orchestrator

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/instance/savedspec"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// BenchmarkExec is an exec in a sandbox that runs, from the call to its durable result.
func BenchmarkExec(b *testing.B) {
	h := newHouse(b, daemon{run: exits})
	for b.Loop() {
		id, err := h.Runs.RunCommand(b.Context(), caller, "one", sandbox.Command{Shell: "true", Timeout: time.Minute})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := h.Execs.Wait(b.Context(), caller, "one", id); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAcquire is the call for a sandbox that is there.
func BenchmarkAcquire(b *testing.B) {
	h := newHouse(b, daemon{run: exits})
	for b.Loop() {
		if _, err := h.Starts.Acquire(b.Context(), caller, "one", sandbox.AcquireOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStart is a cold start with its end, on a driver that costs nothing.
func BenchmarkStart(b *testing.B) {
	h := newHouse(b, daemon{run: exits})
	for b.Loop() {
		if _, err := h.Starts.Acquire(b.Context(), caller, "one", sandbox.AcquireOptions{}); err != nil {
			b.Fatal(err)
		}
		if err := h.Threads.ReleaseSandbox(b.Context(), caller, "one"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkListThreads is a page of 100 threads that are hibernated, each with an environment of the largest
// kind.
func BenchmarkListThreads(b *testing.B) {
	h := newHouse(b, daemon{run: exits})
	env := map[string]string{}
	for i := range 8 {
		env[fmt.Sprint("K", i)] = strings.Repeat("x", 31<<10)
	}
	for i := range 100 {
		t := sandbox.Thread{Owner: caller.Owner, ID: fmt.Sprintf("t%03d", i)}
		_, err := h.threads.Ensure(b.Context(), t)
		if err == nil {
			err = h.Specs.Write(b.Context(), t, savedspec.Spec{Template: "base", Env: env, Hibernated: &sandbox.Info{State: sandbox.Hibernated}})
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		list, err := h.Threads.Threads(b.Context(), caller, sandbox.ThreadFilter{})
		if err != nil || len(list.Items) != 100 || list.Items[99].Sandbox == nil {
			b.Fatalf("%d threads, %v", len(list.Items), err)
		}
	}
}
