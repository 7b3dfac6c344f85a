package store

import (
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store/redistest"
)

func admit(t *testing.T, s *Store, back []Held, checks ...Check) *Refusal {
	t.Helper()
	no, err := s.Admit(t.Context(), "acme", checks, back)
	if err != nil {
		t.Fatal(err)
	}
	return no
}

// testRate: a full bucket yields what it holds, then one each time; what a refusal says to wait is enough.
func testRate(t *testing.T, s *Store) {
	c := Check{Kind: CheckRate, Limit: "requests", Scope: "u:rate", Max: 3, Every: 200 * time.Millisecond}
	for i := range 3 {
		if no := admit(t, s, nil, c); no != nil {
			t.Fatalf("%d: %+v", i, no)
		}
	}
	for range 3 {
		no := admit(t, s, nil, c)
		if no == nil {
			continue // a slow machine filled it up again
		}
		if no.Check != 0 || no.Wait <= 0 || no.Wait > 201*time.Millisecond || no.Used != 3 {
			t.Fatalf("%+v", no)
		}
		time.Sleep(no.Wait)
		if no := admit(t, s, nil, c); no != nil {
			t.Fatalf("after the time that was said: %+v", no)
		}
	}
	c.Scope = "u:other"
	if no := admit(t, s, nil, c); no != nil {
		t.Fatalf("another one's: %+v", no)
	}
}

func held(id string, until time.Time) Check {
	return Check{Kind: CheckHeld, Limit: "execs", Scope: "t", Max: 2, Member: id, Until: until, TTL: time.Minute}
}

func testHeld(t *testing.T, s *Store) {
	until := time.Now().Add(time.Hour)
	for _, id := range []string{"a", "b", "b"} { // the same one again is no third
		if no := admit(t, s, nil, held(id, until)); no != nil {
			t.Fatalf("%s: %+v", id, no)
		}
	}
	no := admit(t, s, nil, held("c", until))
	if no == nil || no.Used != 2 || no.Wait < 59*time.Minute || no.Wait > time.Hour {
		t.Fatalf("%+v", no)
	}
	if n, err := s.CountHeld(t.Context(), "acme", "execs", "t"); err != nil || n != 2 {
		t.Fatal(n, err)
	}
	// The next call frees what expired.
	a := Held{Limit: "execs", Scope: "t", Member: "a", Until: until}
	if no := admit(t, s, []Held{a, a}, held("c", until)); no != nil {
		t.Fatalf("after a was given back: %+v", no)
	}
	// A place that is not extended is free when its time is over; an extended one is not.
	short := held("d", time.Time{})
	short.Scope, short.Max, short.TTL = "u:short", 2, 300*time.Millisecond
	keep := short
	keep.Member = "e"
	if no := admit(t, s, nil, short, keep); no != nil {
		t.Fatal(no)
	}
	if err := s.ExtendHeld(t.Context(), "acme", []Held{{Limit: "execs", Scope: "u:short", Member: "e"}}, nil, time.Minute); err != nil {
		t.Fatal(err)
	}
	next := short
	next.Member, next.TTL = "f", time.Minute
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		no := admit(t, s, nil, next)
		if no == nil {
			break
		}
		if no.Wait != 0 {
			t.Fatalf("nobody knows until when: %+v", no)
		}
		if time.Now().After(deadline) {
			t.Fatal("the place of the dead is not free")
		}
	}
	next.Member = "g"
	if no := admit(t, s, nil, next); no == nil {
		t.Fatal("a place that is held on to was given away")
	}
}

// testHeldRace: however many ask at a time, there are never more than the limit.
func testHeldRace(t *testing.T, s *Store) {
	var got atomic.Int32
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			c := Check{Kind: CheckHeld, Limit: "execs", Scope: "u:race", Max: 7, Member: strconv.Itoa(i), TTL: time.Minute}
			no, err := s.Admit(t.Context(), "acme", []Check{c}, nil)
			if err != nil {
				t.Error(err)
			} else if no == nil {
				got.Add(1)
			}
		})
	}
	wg.Wait()
	if got.Load() != 7 {
		t.Fatalf("%d of 7 places were given", got.Load())
	}
}

func testDayLimit(t *testing.T, s *Store) {
	c := Check{Kind: CheckDay, Limit: "tool_calls", Scope: "u:day", Max: 2, Counter: "tool_calls", Day: "20260102", Add: 1}
	for range 2 {
		if no := admit(t, s, nil, c); no != nil {
			t.Fatal(no)
		}
	}
	if no := admit(t, s, nil, c); no == nil || no.Used != 2 {
		t.Fatalf("%+v", no)
	}
	c.Day = "20260103"
	if no := admit(t, s, nil, c); no != nil {
		t.Fatalf("the next day: %+v", no)
	}
}

// testAllOrNothing: a call that is refused by one limit takes nothing of the others.
func testAllOrNothing(t *testing.T, s *Store) {
	rate := Check{Kind: CheckRate, Limit: "requests", Scope: "u:all", Max: 2, Every: time.Hour}
	place := Check{Kind: CheckHeld, Limit: "execs", Scope: "u:all", Max: 1, Member: "a", TTL: time.Minute}
	if no := admit(t, s, nil, rate, place); no != nil {
		t.Fatal(no)
	}
	place.Member = "b"
	if no := admit(t, s, nil, rate, place); no == nil || no.Check != 1 {
		t.Fatalf("%+v", no)
	}
	if no := admit(t, s, nil, rate); no != nil {
		t.Fatalf("the refused call took a token: %+v", no)
	}
	if no := admit(t, s, nil, rate); no == nil {
		t.Fatal("two tokens, three calls")
	}
}

const usedDay = "20260102"

func used(t *testing.T, s *Store, scope, counter string) int64 {
	t.Helper()
	all, err := s.Usage(t.Context(), "acme", []string{usedDay}, []string{scope}, []string{counter})
	if err != nil {
		t.Fatal(err)
	}
	every, err := s.Usage(t.Context(), "acme", []string{usedDay}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := all[usedDay][scope][counter]; n == every[usedDay][scope][counter] {
		return n
	}
	t.Fatalf("one question says %v, the other %v", all, every)
	return 0
}

// testCount: a batch that is told again, because its answer was lost, counts once.
func testCount(t *testing.T, s *Store) {
	c := Counts{"u:we|rd": {"execs": 2, "requests": 5}, "t": {"execs": 2}}
	for range 2 {
		if err := s.Count(t.Context(), "acme", usedDay, "server1", 1, c, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Count(t.Context(), "acme", usedDay, "server2", 1, Counts{"t": {"execs": 1}}, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Count(t.Context(), "acme", usedDay, "server1", 2, Counts{"t": {"execs": 1}}, nil); err != nil {
		t.Fatal(err)
	}
	if n := used(t, s, "t", "execs"); n != 4 {
		t.Errorf("%d execs of the tenant, want 4", n)
	}
	if n := used(t, s, "u:we|rd", "requests"); n != 5 {
		t.Errorf("%d requests of the user, want 5", n)
	}
	if _, err := s.Usage(t.Context(), "acme", make([]string, MaxUsageDays+1), nil, nil); sandbox.KindOf(err) != sandbox.Invalid {
		t.Error(err)
	}
}

// testCPUMarks: the CPU time of a sandbox is counted once, whichever server tells it.
func testCPUMarks(t *testing.T, s *Store) {
	var batch uint64
	mark := func(server string, total, known time.Duration) {
		t.Helper()
		batch++
		m := []CPUMark{{Sandbox: "s1", Total: total, Known: known, Scopes: []string{"u:cpu", "k:1"}}}
		if err := s.Count(t.Context(), "acme", usedDay, server, batch, nil, m); err != nil {
			t.Fatal(err)
		}
	}
	mark("a", 2*time.Second, 0)
	mark("a", 3*time.Second, 2*time.Second)
	mark("b", 5*time.Second, -1) // it adopted the sandbox and knows nothing
	mark("a", 4*time.Second, 3*time.Second)
	if n := used(t, s, "u:cpu", "cpu_ms"); n != 5000 {
		t.Errorf("%d ms, want 5000", n)
	}
	if n := used(t, s, "k:1", "cpu_ms"); n != 5000 {
		t.Errorf("%d ms of the key, want 5000", n)
	}
	m := []CPUMark{{Sandbox: "s2", Total: 9 * time.Second, Known: -1, Scopes: []string{"u:cpu"}}}
	if err := s.Count(t.Context(), "acme", usedDay, "c", 1, nil, m); err != nil {
		t.Fatal(err)
	}
	if n := used(t, s, "u:cpu", "cpu_ms"); n != 5000 {
		t.Errorf("time of which nobody knows whether it was counted is: %d ms", n)
	}
}

// TestUsageSurvivesARestart, and the days of long ago do not.
func TestUsageSurvivesARestart(t *testing.T) {
	t.Parallel()
	o := Options{Journal: filepath.Join(t.TempDir(), "state.jsonl")}
	today, old := Day(time.Now()), Day(time.Now().AddDate(0, 0, -usageDays-2))
	s := open(t, o)
	for _, day := range []string{today, old} {
		if err := s.Count(t.Context(), "acme", day, "a", 1, Counts{"t": {"execs": 3}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, o)
	got, err := s.Usage(t.Context(), "acme", []string{today, old}, nil, nil)
	if err != nil || got[today]["t"]["execs"] != 3 || len(got) != 1 {
		t.Fatal(got, err)
	}
}

// BenchmarkAdmit is what the limits of an exec cost: the request, a place and the CPU time of tenant, user and key.
func BenchmarkAdmit(b *testing.B) {
	for _, kind := range []string{"embedded", "redis"} {
		b.Run(kind, func(b *testing.B) {
			var o Options
			if kind == "redis" {
				o.URL = redistest.Start(b).URL()
			}
			s, err := Open(b.Context(), o)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = s.Close() })
			var back []Held
			for i := 0; b.Loop(); i++ {
				var checks []Check
				var taken []Held
				for _, scope := range []string{"t", "u:ann", "k:key_1"} {
					id, until := strconv.Itoa(i), time.Now().Add(time.Minute)
					checks = append(checks, Check{Kind: CheckRate, Limit: "requests", Scope: scope, Max: 1 << 30, Every: time.Millisecond},
						Check{Kind: CheckHeld, Limit: "execs", Scope: scope, Max: 100, Member: id, Until: until, TTL: time.Minute},
						Check{Kind: CheckDay, Limit: "cpu", Scope: scope, Max: 1 << 40, Counter: cpuCounter, Day: usedDay})
					taken = append(taken, Held{Limit: "execs", Scope: scope, Member: id, Until: until})
				}
				if no, err := s.Admit(b.Context(), "acme", checks, back); err != nil || no != nil {
					b.Fatal(no, err)
				}
				back = taken
			}
		})
	}
}
