package orchestrator

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
)

// takes is an exec that takes as long as sandboxd says.
func takes(d time.Duration) func(*connect.ServerStream[sandboxv1.Event]) error {
	return func(out *connect.ServerStream[sandboxv1.Event]) error {
		exit := &sandboxv1.Exit{Status: sandboxv1.Exit_STATUS_EXITED, Stdout: &sandboxv1.Stream{}, Stderr: &sandboxv1.Stream{}, DurationUs: d.Microseconds()}
		return errors.Join(
			out.Send(&sandboxv1.Event{N: 1, Kind: &sandboxv1.Event_Started{Started: &sandboxv1.Started{Pid: 2}}}),
			out.Send(&sandboxv1.Event{N: 2, Kind: &sandboxv1.Event_Exit{Exit: exit}}),
		)
	}
}

// usageOf says what a thread is shown to have used.
func (h *house) usageOf(t *testing.T, id string) string {
	t.Helper()
	v, err := h.Threads.Thread(t.Context(), caller, id)
	if err != nil {
		t.Fatal(err)
	}
	return usageText(v)
}

func usageText(v sandbox.ThreadView) string {
	u := v.Usage
	switch {
	case u == nil:
		return "nothing"
	case u.DiskBytes == nil:
		return fmt.Sprintf("%d in %g s", u.Execs, u.ExecSeconds)
	}
	return fmt.Sprintf("%d in %g s, %d KiB", u.Execs, u.ExecSeconds, *u.DiskBytes>>10)
}

// fill makes the thread's sandbox write a file.
func (h *house) fill(t *testing.T, id string, size int) {
	t.Helper()
	text := make([]byte, size)
	_, _ = rand.Read(text)
	if err := os.WriteFile(h.within(t, id, sandbox.WorkspaceDir+"/big"), text, 0o644); err != nil { //nolint:gosec // the sandbox's uid reads it
		t.Fatal(err)
	}
}

// TestUsage: a thread shows what its execs used and how large its files are once its sandbox has ended, to its user alone. It goes
// with the thread, and a new one of the name has none of it.
func TestUsage(t *testing.T) {
	t.Parallel()
	h := newHouseWith(t, daemon{run: takes(1500 * time.Millisecond)}, noTools{}, func(o *Options) { o.MaxInstances = 8 })
	ctx, other, foreign := t.Context(), caller, caller
	other.User, foreign.Tenant = "bob", "other"
	hibernate := func(id string) {
		t.Helper()
		if _, err := h.Lifecycle.Hibernate(ctx, caller, id, true); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		h.mustExec(t, "a")
	}
	h.fill(t, "a", 300<<10)
	h.mustExec(t, "a") // where sandboxes have disks of their own, its end copies the file
	hibernate("a")
	if got := h.usageOf(t, "a"); !strings.HasPrefix(got, "3 in 4.5 s") {
		t.Errorf("%s", got)
	}
	eventually(t, "files are measured", func() bool { return h.usageOf(t, "a") == "3 in 4.5 s, 300 KiB" })
	h.mustExec(t, "b")
	h.fill(t, "b", 700<<10)
	h.mustExec(t, "b")
	hibernate("b")
	eventually(t, "files are measured", func() bool { return h.usageOf(t, "b") == "2 in 3 s, 700 KiB" })
	if _, err := h.Starts.Acquire(ctx, caller, "c", sandbox.AcquireOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := h.usageOf(t, "c"); got != "nothing" {
		t.Errorf("a thread without execs used %s", got)
	}

	largest := func(c sandbox.Caller, f sandbox.ThreadFilter) string {
		got, _ := h.listed(t, c, f)
		return strings.ReplaceAll(got, "u/", "")
	}
	admin := caller
	admin.Role = sandbox.RoleAdmin
	for _, limit := range []int{1, 2, 100} {
		for want, f := range map[string]sandbox.ThreadFilter{
			"b a": {Largest: true}, "b": {Largest: true, MinDisk: 301 << 10}, "a b": {MinDisk: 300 << 10}, "a": {Largest: true, Text: "a"}, "": {MinDisk: 1 << 40},
		} {
			f.Limit = limit
			if got := largest(caller, f); got != want {
				t.Errorf("%+v: %q, want %q", f, got, want)
			}
			f.User, f.Latest = sandbox.AllUsers, !f.Largest
			if got := largest(admin, f); len(got) != len(want) {
				t.Errorf("%+v: %q of all users, want %q", f, got, want)
			}
		}
	}
	list, err := h.Threads.Threads(ctx, caller, sandbox.ThreadFilter{})
	if err != nil || len(list.Items) != 3 || usageText(list.Items[0]) != "3 in 4.5 s, 300 KiB" {
		t.Errorf("listed %+v, %v", list, err)
	}
	foreign.Role = sandbox.RoleAdmin
	for _, c := range []sandbox.Caller{other, foreign} {
		if got := largest(c, sandbox.ThreadFilter{Largest: true}); got != "" {
			t.Errorf("%s of %s sees %s", c.User, c.Tenant, got)
		}
	}
	if got := largest(foreign, sandbox.ThreadFilter{User: sandbox.AllUsers, Largest: true}); got != "" {
		t.Errorf("another tenant sees %s", got)
	}
	if _, err := h.Threads.Threads(ctx, caller, sandbox.ThreadFilter{User: sandbox.AllUsers, Largest: true}); !errors.Is(err, sandbox.Forbidden) {
		t.Errorf("all users without the role: %v", err)
	}

	h.mustExec(t, "a") // what it counts is not to come into the next thread
	if err := h.Threads.DeleteThread(ctx, caller, "a"); err != nil {
		t.Fatal(err)
	}
	if got := largest(caller, sandbox.ThreadFilter{Largest: true}); got != "b" {
		t.Errorf("after a was deleted: %s", got)
	}
	h.mustExec(t, "a")
	hibernate("a")
	eventually(t, "files are measured", func() bool { return h.usageOf(t, "a") == "1 in 1.5 s, 0 KiB" })
}

// TestUsageOfKilled: an exec that ends with its sandbox counts, too.
func TestUsageOfKilled(t *testing.T) {
	t.Parallel()
	h := newHouseOf(t, newGate())
	h.background(t, "a")
	if _, err := h.Lifecycle.Hibernate(t.Context(), caller, "a", true); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a killed exec counts", func() bool { return strings.HasPrefix(h.usageOf(t, "a"), "1 in ") })
}

// TestUsageOfLiving: the usage of a sandbox that goes on is written and measured, too, and not at each look.
func TestUsageOfLiving(t *testing.T) {
	t.Parallel()
	h := newHouse(t, daemon{run: takes(time.Second)})
	for range 3 {
		h.mustExec(t, "a")
	}
	h.fill(t, "a", 200<<10)
	eventually(t, "what execs used is written", func() bool {
		h.Lifecycle.Look(time.Now().Add(time.Minute)) // so that it is due
		return h.usageOf(t, "a") == "3 in 3 s"
	})
	h.mustExec(t, "a")
	eventually(t, "files are measured", func() bool {
		h.Lifecycle.Look(time.Now().Add(3 * time.Minute))
		return h.usageOf(t, "a") == "4 in 4 s, 200 KiB"
	})
	h.fill(t, "a", 100<<10)
	h.mustExec(t, "a")
	for range 20 {
		h.Lifecycle.Look(time.Now().Add(time.Minute))
		time.Sleep(time.Millisecond)
	}
	if got := h.usageOf(t, "a"); !strings.HasSuffix(got, "200 KiB") {
		t.Errorf("files are measured again at once: %s", got)
	}
}

// TestUsageOfEndedServer: a server that stops in order writes what its living sandboxes used.
func TestUsageOfEndedServer(t *testing.T) {
	t.Parallel()
	h := newHouse(t, daemon{run: takes(time.Second)})
	for range 4 {
		h.mustExec(t, "a")
	}
	if err := h.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	l, err := h.options.Store.UsedThread(t.Context(), sandbox.Thread{Owner: caller.Owner, ID: "a"})
	if err != nil || l.Used == nil || l.Used.Execs != 4 {
		t.Errorf("%+v, %v", l.Used, err)
	}
}
