package orchestrator

import (
	"testing"
	"time"

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
