package drivertest

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/drivertest/probewire"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func (s *suite) lifecycle(t *testing.T) {
	r := s.rig(t)
	before := time.Now().Add(-2 * time.Second) // engines keep time in seconds
	start := time.Now()
	made := r.create(t)
	t.Logf("created in %v", time.Since(start).Round(time.Millisecond))
	seen := r.inspect(t)
	for _, got := range []sandbox.Instance{made, seen} {
		if got.ID != r.spec.ID || got.State != sandbox.Running || got.Runtime != s.h.Runtime || !maps.Equal(got.Labels, r.spec.Labels) {
			t.Errorf("got %+v, want %s running on %s with the labels %v", got, r.spec.ID, s.h.Runtime, r.spec.Labels)
		}
		if got.CreatedAt.Before(before) || got.CreatedAt.After(time.Now().Add(2*time.Second)) {
			t.Errorf("CreatedAt is %v", got.CreatedAt)
		}
	}
	if s.caps.Isolated {
		if resp := r.ask(t, probewire.Request{Op: probewire.OpPing}); resp.Text != "pong" {
			t.Errorf("PID 1 answered %+v", resp)
		}
	}
	start = time.Now()
	must(t, s.d.Remove(callCtx(t), r.spec.ID))
	t.Logf("removed in %v", time.Since(start).Round(time.Millisecond))
	if _, err := s.d.Inspect(callCtx(t), r.spec.ID); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("Inspect after Remove: %v, want not_found", err)
	}
	if _, err := os.Stat(filepath.Join(r.thread, "workspace")); err != nil {
		t.Errorf("Remove took the mount's source: %v", err)
	}

	if !s.caps.Isolated {
		return
	}
	own := s.start(t)
	own.ask(t, probewire.Request{Op: probewire.OpPing})
	own.tryAsk(t, probewire.Request{Op: probewire.OpExit, N: 3}, time.Second)
	if got := own.awaitState(t, sandbox.Lost, 5*time.Second); got.OOMKilled {
		t.Errorf("a sandbox that ended by itself counts as out of memory: %+v", got)
	}
	if _, err := s.d.Create(callCtx(t), own.spec); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("Create on an ended sandbox: %v, want conflict", err)
	}
}

func (s *suite) idempotence(t *testing.T) {
	r := s.rig(t)
	must(t, s.d.Remove(callCtx(t), r.spec.ID)) // was never there
	first := r.create(t)
	again := r.create(t)
	if !first.CreatedAt.Equal(again.CreatedAt) {
		t.Errorf("the second Create made another sandbox: %v, %v", first.CreatedAt, again.CreatedAt)
	}
	must(t, s.d.Remove(callCtx(t), r.spec.ID))
	must(t, s.d.Remove(callCtx(t), r.spec.ID))
	if _, err := s.d.Inspect(callCtx(t), r.spec.ID); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("Inspect of what is not there: %v, want not_found", err)
	}
}

func (s *suite) concurrency(t *testing.T) {
	t.Run("TenAtOnce", func(t *testing.T) {
		rigs := make([]*rig, 10)
		for i := range rigs {
			rigs[i] = s.rig(t)
		}
		atOnce(t, len(rigs), func(i int) error {
			_, err := s.d.Create(callCtx(t), rigs[i].spec)
			return err
		})
		for _, r := range rigs {
			if got := r.inspect(t); got.State != sandbox.Running {
				t.Errorf("got %+v, want running", got)
			}
		}
		atOnce(t, len(rigs), func(i int) error { return s.d.Remove(callCtx(t), rigs[i].spec.ID) })
	})
	t.Run("SameID", func(t *testing.T) {
		r := s.rig(t)
		made := make([]sandbox.Instance, 8)
		atOnce(t, len(made), func(i int) (err error) {
			made[i], err = s.d.Create(callCtx(t), r.spec)
			return err
		})
		for _, m := range made {
			if m.ID != r.spec.ID || !m.CreatedAt.Equal(made[0].CreatedAt) {
				t.Errorf("two Creates of one id gave %+v and %+v", made[0], m)
			}
		}
		atOnce(t, len(made), func(int) error { return s.d.Remove(callCtx(t), r.spec.ID) })
	})
	t.Run("TwoServersSameID", func(t *testing.T) {
		r := s.rig(t)
		servers := []driver.Driver{s.d, s.h.New(t)}
		defer servers[1].Close() //nolint:errcheck // a driver of the test
		atOnce(t, 4, func(i int) error {
			_, err := servers[i%2].Create(callCtx(t), r.spec)
			return err
		})
		if got := r.inspect(t); got.State != sandbox.Running && got.State != sandbox.Starting {
			t.Errorf("got %+v, want running", got)
		}
		r.awaitState(t, sandbox.Running, 10*time.Second)
	})
	t.Run("CreateAgainstRemove", func(t *testing.T) {
		r := s.rig(t)
		atOnce(t, 6, func(i int) error {
			if i%2 == 0 {
				return s.d.Remove(callCtx(t), r.spec.ID)
			}
			_, err := s.d.Create(callCtx(t), r.spec)
			return err
		})
		must(t, s.d.Remove(callCtx(t), r.spec.ID))
		if _, err := s.d.Inspect(callCtx(t), r.spec.ID); !errors.Is(err, sandbox.NotFound) {
			t.Errorf("Inspect after the last Remove: %v, want not_found", err)
		}
	})
}

// atOnce runs n calls at the same time and reports the ones that fail.
func atOnce(t *testing.T, n int, call func(i int) error) {
	t.Helper()
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			if err := call(i); err != nil {
				t.Errorf("call %d of %d: %v", i, n, err)
			}
		})
	}
	group.Wait()
}

// restart: the server is gone without a word, and a new one finds everything.
func (s *suite) restart(t *testing.T) {
	first := s.h.New(t)
	alive, dead := s.rig(t), s.rig(t)
	for _, r := range []*rig{alive, dead} {
		if _, err := first.Create(callCtx(t), r.spec); err != nil {
			t.Fatalf("Create: %v", err)
		}
	}
	s.h.Kill(t, dead.spec.ID)
	must(t, first.Close())

	second := s.h.New(t)
	defer second.Close() //nolint:errcheck // a driver of the test
	if again, err := second.Create(callCtx(t), alive.spec); err != nil || again.State != sandbox.Running {
		t.Errorf("Create of what runs already: %+v, %v", again, err)
	}
	if s.caps.Isolated {
		alive.ask(t, probewire.Request{Op: probewire.OpPing})
	}
	dead.awaitState(t, sandbox.Lost, 5*time.Second)
	found, err := second.List(callCtx(t), map[string]string{runLabel: s.run})
	must(t, err)
	states := make(map[sandbox.ID]sandbox.State)
	for _, f := range found {
		states[f.ID] = f.State
		if f.ID == alive.spec.ID && !maps.Equal(f.Labels, alive.spec.Labels) {
			t.Errorf("labels %v, want %v", f.Labels, alive.spec.Labels)
		}
	}
	want := map[sandbox.ID]sandbox.State{alive.spec.ID: sandbox.Running, dead.spec.ID: sandbox.Lost}
	if !maps.Equal(states, want) {
		t.Errorf("the new server finds %v, want %v", states, want)
	}
	for id := range want {
		must(t, second.Remove(callCtx(t), id))
		if _, err := second.Inspect(callCtx(t), id); !errors.Is(err, sandbox.NotFound) {
			t.Errorf("Inspect after Remove: %v, want not_found", err)
		}
	}
}

func (s *suite) list(t *testing.T) {
	one := s.start(t, func(spec *sandbox.Spec) { spec.Labels["color"] = "red" })
	two := s.start(t, func(spec *sandbox.Spec) { spec.Labels["color"] = "blue" })
	for _, c := range []struct {
		labels map[string]string
		want   []sandbox.ID
	}{
		{map[string]string{runLabel: s.run}, []sandbox.ID{one.spec.ID, two.spec.ID}},
		{map[string]string{runLabel: s.run, "color": "red"}, []sandbox.ID{one.spec.ID}},
		{map[string]string{runLabel: s.run, "color": "re"}, nil},
		{map[string]string{runLabel: s.run, "color": ""}, nil},
		{map[string]string{runLabel: s.run, "odd value": "ä = b,c", "color": "blue"}, []sandbox.ID{two.spec.ID}},
		{map[string]string{runLabel: s.run, "no": "such"}, nil},
	} {
		got, err := s.d.List(callCtx(t), c.labels)
		must(t, err)
		ids := make(map[sandbox.ID]bool)
		for _, g := range got {
			ids[g.ID] = true
		}
		if len(got) != len(c.want) {
			t.Errorf("List(%v) gave %d sandboxes, want %v", c.labels, len(got), c.want)
		}
		for _, w := range c.want {
			if !ids[w] {
				t.Errorf("List(%v) lacks %s", c.labels, w)
			}
		}
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.d.Inspect(ended, one.spec.ID); err != nil && errors.Is(err, sandbox.NotFound) {
		t.Errorf("Inspect with an ended context says not_found: %v", err)
	}
}

func (s *suite) pause(t *testing.T) {
	pauser, ok := s.d.(driver.Pauser)
	need(t, ok, "Pauser")
	r := s.start(t)
	if s.caps.Isolated {
		r.ask(t, probewire.Request{Op: probewire.OpPing})
	}
	for range 2 {
		must(t, pauser.Pause(callCtx(t), r.spec.ID))
	}
	if got := r.inspect(t).State; got != sandbox.Paused {
		t.Errorf("after Pause it is %q", got)
	}
	if again, err := s.d.Create(callCtx(t), r.spec); err != nil || again.State != sandbox.Paused {
		t.Errorf("Create of a paused sandbox: %+v, %v", again, err)
	}
	if s.caps.Isolated {
		if resp, ok := r.tryAsk(t, probewire.Request{Op: probewire.OpPing}, 300*time.Millisecond); ok {
			t.Errorf("a paused sandbox answered %+v", resp)
		}
	}
	for range 2 {
		must(t, pauser.Resume(callCtx(t), r.spec.ID))
	}
	if got := r.inspect(t).State; got != sandbox.Running {
		t.Errorf("after Resume it is %q", got)
	}
	if s.caps.Isolated {
		r.ask(t, probewire.Request{Op: probewire.OpPing})
	}
	must(t, pauser.Pause(callCtx(t), r.spec.ID))
	must(t, s.d.Remove(callCtx(t), r.spec.ID)) // also while paused
	if err := pauser.Pause(callCtx(t), r.spec.ID); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("Pause of what is not there: %v, want not_found", err)
	}
	if err := pauser.Resume(callCtx(t), r.spec.ID); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("Resume of what is not there: %v, want not_found", err)
	}
}
