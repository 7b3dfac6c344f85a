package pool

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// inventoryOf has n of a template "base" that wait.
func inventoryOf(n int, p sandbox.Pool) (*inventory, *templatePool) {
	s := newInventory(map[string]instance.Template{"base": {Template: sandbox.Template{Name: "base", Pool: &p}}, "none": {Template: sandbox.Template{Name: "none"}}})
	of := s.pools["base"]
	for range n {
		x := pooled(of)
		s.begin(of, x)
		s.add(of, x, nil)
	}
	return s, of
}

func pooled(of *templatePool) *instance.Pooled {
	_, cancel := context.WithCancel(context.Background())
	return &instance.Pooled{
		Instance: instance.New(sandbox.Thread{}, of.template, sandbox.Info{ID: sandbox.NewID()}), Made: time.Now(), Image: of.image, Cancel: cancel,
	}
}

// TestPick: the oldest first, none that is too old or of a former image, and none once the server stops.
func TestPick(t *testing.T) {
	s, of := inventoryOf(4, sandbox.Pool{Target: 4, Burst: 4, MaxAgeSeconds: 60})
	first := of.idle[0]
	if got := s.pick("base"); got != first {
		t.Error("not the oldest")
	}
	s.putBack(first)
	first.Made = first.Made.Add(-time.Hour)
	of.idle[1].Image, of.image = "former", "now"
	for _, x := range of.idle[2:] {
		x.Image = "now"
	}
	if got := s.pick("base"); got != of.idle[0] && got.Image != "now" {
		t.Errorf("picked %+v", got)
	}
	old, former := s.unfit(of, time.Now())
	if len(old)+len(former) != 2 || len(former) != 2 && old[0] != first || len(of.idle) != 1 {
		t.Errorf("%d are too old, %d of a former image, %d wait", len(old), len(former), len(of.idle))
	}
	if s.pick("none") != nil || s.pick("unknown") != nil {
		t.Error("picked of a template without a pool")
	}
	if left := s.empty(); len(left) != 1 || s.pick("base") != nil {
		t.Errorf("%d left", len(left))
	}
}

// TestCount: a server makes what is missing, fewer beside starts of callers, and none in a pause or in a rush of claims.
func TestCount(t *testing.T) {
	s, of := inventoryOf(2, sandbox.Pool{Target: 8, Min: 3, Burst: 4, MaxAgeSeconds: 60})
	want := func(what string, now time.Time, cold bool, have, more int) {
		t.Helper()
		if c := s.count(of, now, cold); c.Have != have || c.Want != more || c.Target != 8 {
			t.Errorf("%s: %+v, want %d and %d more", what, c, have, more)
		}
	}
	now := time.Now()
	want("at rest", now, false, 2, 4)
	want("beside a start", now, true, 2, 1)
	x := pooled(of)
	s.begin(of, x)
	want("while one is made", now, false, 3, 3)
	if s.add(of, x, errors.New("no room")) {
		t.Error("one that failed waits")
	}
	want("in the pause", now, false, 2, 0)
	want("after the pause", time.Now().Add(firstPause), false, 2, 4)
	s.left(x.ID)
	s.pick("base")
	want("in a rush", time.Now(), false, 1, 0)
	of.until = time.Time{}
	want("after the rush", time.Now().Add(rushPause), false, 1, 4)
}

// TestEvict: what waits goes first, then what is being made; nothing is counted twice.
func TestEvict(t *testing.T) {
	s, of := inventoryOf(2, sandbox.Pool{Target: 4, Burst: 4, MaxAgeSeconds: 60})
	over := func(n int) func() int { return func() int { return n } }
	x := pooled(of)
	s.begin(of, x)
	if out := s.evict(over(1)); len(out) != 1 {
		t.Fatalf("%d go", len(out))
	}
	if out := s.evict(over(3)); len(out) != 1 || !x.Unwanted {
		t.Errorf("%d go; what is being made is unwanted: %v", len(out), x.Unwanted)
	}
	if out := s.evict(over(3)); len(out) != 0 {
		t.Errorf("%d more go", len(out))
	}
	if s.add(of, x, nil) {
		t.Error("what nobody wants waits")
	}
	if got := s.remove(x.ID); got != nil || s.leaving != 3 {
		t.Errorf("%v, %d are leaving", got, s.leaving)
	}
}
