package orchestrator

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/instance/savedspec"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
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

// BenchmarkThreadsByText looks for a text that one of 100,000 threads of 500 users has, as the console does: call by call until
// the list ends. The state is the embedded one.
func BenchmarkThreadsByText(b *testing.B) {
	const many = 100_000
	journal := filepath.Join(b.TempDir(), "state.jsonl")
	file, err := os.Create(journal)
	if err != nil {
		b.Fatal(err)
	}
	out := bufio.NewWriter(file)
	for i := range many {
		user, at := fmt.Sprintf("user-%03d", i%500), time.Date(2026, 1, 1, 0, 0, i*97%20_000_000, 0, time.UTC).Format(time.RFC3339)
		key := "skerry:{t}:threads:" + user
		fmt.Fprintf(out, `{"k":%q,"f":"thread-%06d","i":"%s:index","v":{"tenant":"t","user":%q,"thread_id":"thread-%06d","labels":{"team":"t%d"},"created_at":%q,"last_active_at":%q}}`+"\n", key, i, key, user, i, i%7, at, at)
	}
	if err := errors.Join(out.Flush(), file.Close()); err != nil {
		b.Fatal(err)
	}
	h := newHouseWith(b, daemon{run: exits}, noTools{}, func(o *Options) {
		if o.Store, err = store.Open(b.Context(), store.Options{Journal: journal, Log: o.Log}); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = o.Store.Close() })
	})
	admin := caller
	admin.Role = sandbox.RoleAdmin
	for b.Loop() {
		calls, found := 0, 0
		for f := (sandbox.ThreadFilter{User: sandbox.AllUsers, Latest: true, Text: "THREAD-050000"}); ; calls++ {
			list, err := h.Threads.Threads(b.Context(), admin, f)
			if err != nil {
				b.Fatal(err)
			}
			found += len(list.Items)
			if f.Cursor = list.Next; f.Cursor == "" {
				break
			}
		}
		if found != 1 {
			b.Fatalf("%d threads", found)
		}
		b.ReportMetric(float64(calls+1), "calls")
	}
}
