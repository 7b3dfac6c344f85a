package drivertest

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/drivertest/probewire"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// reportWithin is what the contract allows for reporting an end.
const reportWithin = time.Second

func (s *suite) watch(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	before, removed := s.start(t), s.start(t)
	events, err := s.d.Watch(ctx)
	must(t, err)
	after := s.start(t)
	other := s.h.New(t)
	defer other.Close() //nolint:errcheck // a driver of the test
	foreign := s.rig(t)
	if _, err := other.Create(callCtx(t), foreign.spec); err != nil {
		t.Fatalf("Create: %v", err)
	}

	for what, r := range map[string]*rig{"made before Watch": before, "made after Watch": after, "made by another server": foreign} {
		s.h.Kill(t, r.spec.ID)
		start := time.Now()
		awaitEvent(t, events, r.spec.ID, max(reportWithin, s.h.ReportWithin))
		t.Logf("%s: reported after %v", what, time.Since(start).Round(time.Millisecond))
		if got := r.inspect(t); got.State != sandbox.Lost {
			t.Errorf("%s: Inspect says %q", what, got.State)
		}
	}
	must(t, s.d.Remove(callCtx(t), removed.spec.ID))
	awaitEvent(t, events, removed.spec.ID, reportWithin)

	cancel()
	awaitClosed(t, events)

	short := s.h.New(t)
	events, err = short.Watch(context.Background())
	must(t, err)
	must(t, short.Close())
	awaitClosed(t, events)
}

func awaitEvent(t testing.TB, events <-chan driver.Event, id sandbox.ID, within time.Duration) driver.Event {
	t.Helper()
	late := time.After(within)
	for {
		select {
		case e, ok := <-events:
			if !ok {
				t.Fatalf("the channel was closed before %s was reported", id)
			}
			if e.ID == id && e.State == sandbox.Lost {
				return e
			}
		case <-late:
			t.Fatalf("the end of %s was not reported within %v", id, within)
		}
	}
}

func awaitClosed(t testing.TB, events <-chan driver.Event) {
	t.Helper()
	late := time.After(2 * time.Second)
	for {
		select {
		case _, ok := <-events:
			if !ok {
				return
			}
		case <-late:
			t.Fatal("the channel was not closed")
		}
	}
}

// failedCreate: whatever goes wrong at starting, nothing is left.
func (s *suite) failedCreate(t *testing.T) {
	nothing := func(t *testing.T, r *rig) {
		t.Helper()
		if got, err := s.d.Inspect(callCtx(t), r.spec.ID); !errors.Is(err, sandbox.NotFound) {
			t.Errorf("Inspect: %+v, %v, want not_found", got, err)
		}
	}
	t.Run("SourceMissing", func(t *testing.T) {
		r := s.rig(t, func(spec *sandbox.Spec) {
			spec.Mounts = append(spec.Mounts, sandbox.Mount{Source: "/no/such/folder", Target: sandbox.CodeAPIDir, ReadOnly: true})
		})
		_, err := s.d.Create(callCtx(t), r.spec)
		refused(t, err, sandbox.Invalid)
		nothing(t, r)
	})
	t.Run("DaemonIsNoProgram", func(t *testing.T) {
		need(t, s.caps.Isolated, "Isolated")
		if _, remote := s.d.(driver.Remote); remote {
			t.Skip("driver.Remote: the daemon is not this host's")
		}
		r := s.rig(t)
		r.spec.Daemon = r.run + "/daemon"
		must(t, os.WriteFile(r.spec.Daemon, []byte("not a program"), 0o755))
		if _, err := s.d.Create(callCtx(t), r.spec); err == nil {
			t.Error("Create succeeded")
		} else {
			checkDetail(t, err)
		}
		nothing(t, r)
		r.spec.Daemon = s.program
		r.create(t) // the id is free
		r.ask(t, probewire.Request{Op: probewire.OpPing})
	})
	t.Run("ContextEnds", func(t *testing.T) {
		for _, after := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond, 60 * time.Millisecond, 200 * time.Millisecond} {
			r := s.rig(t)
			ctx, cancel := context.WithTimeout(context.Background(), after)
			_, err := s.d.Create(ctx, r.spec)
			cancel()
			if err != nil {
				nothing(t, r)
			}
			must(t, s.d.Remove(callCtx(t), r.spec.ID))
			nothing(t, r)
		}
	})
}
