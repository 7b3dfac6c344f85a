package limits

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
	"github.com/skerry-sandbox/skerry/internal/store/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	ann = sandbox.Caller{Owner: sandbox.Owner{Tenant: "acme", User: "ann"}, KeyID: "key_1"}
	bob = sandbox.Caller{Owner: sandbox.Owner{Tenant: "acme", User: "bob"}, KeyID: "key_1", Role: sandbox.RoleAdmin}
)

// table is one set of rules for everybody.
type table struct{ tenant, user, key Rules }

func (t table) Of(sandbox.Caller) (tenant, user, key Rules) { return t.tenant, t.user, t.key }

// trips counts the round trips of checks.
type trips struct {
	*store.Store
	admits atomic.Int32
}

func (t *trips) Admit(ctx context.Context, tenant string, checks []store.Check, back []store.Held) (*store.Refusal, error) {
	t.admits.Add(1)
	return t.Store.Admit(ctx, tenant, checks, back)
}

func stateAt(t testing.TB, url string) *trips {
	t.Helper()
	s, err := store.Open(t.Context(), store.Options{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return &trips{Store: s}
}

func gate(t testing.TB, s state, tab table, change ...func(*Options)) *Gate {
	t.Helper()
	o := Options{State: s, Table: tab, Server: t.Name() + strconv.FormatInt(serial.Add(1), 10)}
	for _, c := range change {
		c(&o)
	}
	g := New(o)
	t.Cleanup(func() { _ = g.Close() })
	return g
}

var serial atomic.Int64

func refusal(t *testing.T, err error) *sandbox.LimitHit {
	t.Helper()
	var e *sandbox.Error
	if !errors.As(err, &e) || e.Kind != sandbox.QuotaExceeded || e.Limit == nil {
		t.Fatalf("want a refusal, got %v", err)
	}
	return e.Limit
}

// eventually waits until other goroutines have made ok true.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

// TestTwoServers: the servers of one Redis keep to a limit together, and use all of it.
func TestTwoServers(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	const most, calls = 3, 120
	rules := table{tenant: Rules{Execs: most}, user: Rules{ToolCallsPerDay: 50}}
	var running, highest, done, tools atomic.Int32
	var wg sync.WaitGroup
	for range 2 {
		g := gate(t, stateAt(t, redis.URL()), rules)
		for worker := range 4 {
			wg.Go(func() {
				for i := 0; done.Load() < calls; i++ {
					p, err := g.Exec(t.Context(), ann, g.o.Server+strconv.Itoa(worker)+"-"+strconv.Itoa(i), time.Minute)
					if err != nil {
						if h := refusal(t, err); h.Limit != Execs || h.Scope != "tenant" || h.Who != "acme" || h.Max != most || h.Used != most {
							t.Errorf("%+v", h)
						}
						time.Sleep(time.Millisecond)
						continue
					}
					n := running.Add(1)
					for was := highest.Load(); n > was && !highest.CompareAndSwap(was, n); was = highest.Load() {
					}
					if g.ToolCall(t.Context(), ann) == nil {
						tools.Add(1)
					}
					time.Sleep(2 * time.Millisecond)
					running.Add(-1)
					done.Add(1)
					p.Release()
				}
			})
		}
	}
	wg.Wait()
	if highest.Load() != most {
		t.Errorf("at most %d ran at a time, and the limit is %d", highest.Load(), most)
	}
	if tools.Load() != 50 {
		t.Errorf("%d tool calls of 50", tools.Load())
	}
}

// TestPlacesOfTheDead: a server that dies frees nothing, and what it had is free after HoldTime; what a living one
// has is not.
func TestPlacesOfTheDead(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"redis": redistest.Start(t).URL(), "embedded": ""} {
		t.Run(name, func(t *testing.T) {
			s := stateAt(t, url)
			short := func(o *Options) { o.HoldTime = time.Second }
			rules := table{user: Rules{Execs: 2, Sandboxes: 2}}
			dead, alive := gate(t, s, rules, short), gate(t, s, rules, short)
			for i, g := range []*Gate{dead, alive} {
				if _, err := g.Exec(t.Context(), ann, "e"+strconv.Itoa(i), time.Hour); err != nil {
					t.Fatal(err)
				}
				if _, err := g.Sandbox(t.Context(), ann, sandbox.ID("s"+strconv.Itoa(i))); err != nil {
					t.Fatal(err)
				}
			}
			if h := refusal(t, second(alive.Exec(t.Context(), ann, "no", time.Hour))); h.Wait < 59*time.Minute || h.FreeAt.IsZero() {
				t.Errorf("%+v", h)
			}
			if h := refusal(t, second(alive.Sandbox(t.Context(), ann, "no"))); h.Wait != 0 || h.Scope != "user" || h.Who != "ann" {
				t.Errorf("%+v", h)
			}
			_ = dead.Close() // it frees no place: to the others it is as if it were killed
			eventually(t, "the places of the dead are not free", func() bool {
				_, err := alive.Exec(t.Context(), ann, "next", time.Hour)
				return err == nil
			})
			eventually(t, "the sandboxes of the dead still count", func() bool {
				_, err := alive.Sandbox(t.Context(), ann, "next")
				return err == nil
			})
			time.Sleep(3 * time.Second)
			refusal(t, second(alive.Exec(t.Context(), ann, "no", time.Hour)))
		})
	}
}

func second[T any](_ T, err error) error { return err }

// TestAnswerFreesThePlace: who has the answer of an exec may begin the next one at once, a hundred times.
func TestAnswerFreesThePlace(t *testing.T) {
	t.Parallel()
	g := gate(t, stateAt(t, redistest.Start(t).URL()), table{key: Rules{Execs: 1}})
	for i := range 100 {
		p, err := g.Exec(t.Context(), ann, strconv.Itoa(i), time.Minute)
		if err != nil {
			t.Fatalf("exec %d: %v", i, err)
		}
		p.Release()
		p.Release()
	}
}

// slow is a state store that a test comes before and after when places are extended.
type slow struct {
	*trips
	before, after func(held []store.Held)
}

func (s *slow) ExtendHeld(ctx context.Context, tenant string, keep, back []store.Held, ttl time.Duration) error {
	s.before(keep)
	err := s.trips.ExtendHeld(ctx, tenant, keep, back, ttl)
	s.after(keep)
	return err
}

// TestFreedWhileExtended: a place that is given back, and taken by another, while its extension is on the way stays free.
func TestFreedWhileExtended(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"redis": redistest.Start(t).URL(), "embedded": ""} {
		t.Run(name, func(t *testing.T) {
			var g *Gate
			var first *Place
			next := 0
			take := func() *Place {
				next++
				p, err := g.Sandbox(t.Context(), ann, sandbox.ID("s"+strconv.Itoa(next)))
				if err != nil {
					t.Errorf("sandbox %d: %v", next, err)
				}
				return p
			}
			extended := make(chan struct{})
			var once, twice sync.Once
			s := &slow{trips: stateAt(t, url)}
			s.before = func(keep []store.Held) {
				if len(keep) > 0 {
					once.Do(func() {
						first.Release()
						take().Release()
					})
				}
			}
			s.after = func(keep []store.Held) {
				if len(keep) > 0 {
					twice.Do(func() {
						take().Release()
						close(extended)
					})
				}
			}
			g = gate(t, s, table{user: Rules{Sandboxes: 1}})
			first = take()
			g.nudge()
			<-extended
			take()
		})
	}
}

// TestRetryAfterIsTrue: after the time that a refusal says, the call goes through.
func TestRetryAfterIsTrue(t *testing.T) {
	t.Parallel()
	s := stateAt(t, redistest.Start(t).URL())
	g := gate(t, s, table{user: Rules{RequestsPerMinute: 120, RequestsBurst: 2, Execs: 1}})
	for range 3 {
		var h *sandbox.LimitHit
		for h == nil {
			if err := g.Request(t.Context(), ann); err != nil {
				h = refusal(t, err)
			}
		}
		if h.Limit != Requests || h.Wait <= 0 || h.Wait > 501*time.Millisecond {
			t.Fatalf("%+v", h)
		}
		time.Sleep(h.Wait)
		if err := g.Request(t.Context(), ann); err != nil {
			t.Fatalf("after %s: %v", h.Wait, err)
		}
	}
	p, err := g.Exec(t.Context(), ann, "a", 700*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	end := time.AfterFunc(700*time.Millisecond, p.Release) // as the orchestrator does at the deadline
	defer end.Stop()
	h := refusal(t, second(g.Exec(t.Context(), ann, "b", time.Minute)))
	if h.Wait <= 0 || h.Wait > 700*time.Millisecond {
		t.Fatalf("%+v", h)
	}
	time.Sleep(h.Wait)
	eventually(t, "the place is not free after the time that was said", func() bool {
		_, err := g.Exec(t.Context(), ann, "b", time.Minute)
		return err == nil
	})
}

// TestDayEnds: what is used up for a day is free when the next one begins.
func TestDayEnds(t *testing.T) {
	t.Parallel()
	var now atomic.Pointer[time.Time]
	at := time.Date(2026, 5, 6, 23, 30, 0, 0, time.UTC)
	now.Store(&at)
	g := gate(t, stateAt(t, ""), table{user: Rules{CPUSecondsPerDay: 10, ToolCallsPerDay: 1}}, func(o *Options) {
		o.Now = func() time.Time { return *now.Load() }
	})
	g.CPU(ann, "s1", 12*time.Second, false)
	eventually(t, "the CPU time is not counted", func() bool {
		_, err := g.Exec(t.Context(), ann, "x", time.Minute)
		return err != nil
	})
	h := refusal(t, second(g.Exec(t.Context(), ann, "x", time.Minute)))
	if h.Limit != CPU || h.Max != 10 || h.Used != 12 || h.Wait != 30*time.Minute {
		t.Fatalf("%+v", h)
	}
	if err := g.ToolCall(t.Context(), ann); err != nil {
		t.Fatal(err)
	}
	refusal(t, g.ToolCall(t.Context(), ann))
	next := at.Add(h.Wait)
	now.Store(&next)
	if _, err := g.Exec(t.Context(), ann, "y", time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := g.ToolCall(t.Context(), ann); err != nil {
		t.Fatal(err)
	}
}

// TestRoundTrips: no limit costs none; all limits of an exec, that of its request among them, cost one.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	s := stateAt(t, "")
	free := gate(t, s, table{})
	ctx := free.Defer(t.Context())
	if _, err := free.Exec(ctx, ann, "a", time.Minute); err != nil || free.ToolCall(ctx, ann) != nil || free.Request(ctx, ann) != nil {
		t.Fatal(err)
	}
	if n := s.admits.Load(); n != 0 {
		t.Errorf("%d round trips without a limit", n)
	}
	all := Rules{RequestsPerMinute: 60, RequestsBurst: 2, Execs: 5, CPUSecondsPerDay: 100}
	g := gate(t, s, table{all, all, all})
	ctx = g.Defer(t.Context())
	if _, err := g.Exec(ctx, ann, "b", time.Minute); err != nil {
		t.Fatal(err)
	}
	g.Settle(ctx, ann)
	if n := s.admits.Load(); n != 1 {
		t.Errorf("%d round trips for an exec", n)
	}
	g.Settle(g.Defer(t.Context()), ann) // a request that came to nothing counts
	refusal(t, g.Request(t.Context(), ann))
}

// TestRedisAway: what is limited is refused, what is not goes on, and nothing that was counted is lost or counted twice.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	s := stateAt(t, redis.URL())
	limited, free := gate(t, s, table{user: Rules{Execs: 1}}), gate(t, s, table{})
	p, err := limited.Exec(t.Context(), ann, "a", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	redis.Kill()
	if err := second(limited.Exec(t.Context(), ann, "b", time.Hour)); sandbox.KindOf(err) != sandbox.Unavailable {
		t.Fatal(err)
	}
	p.Release()
	for i := range 20 {
		p, err := free.Exec(t.Context(), bob, strconv.Itoa(i), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		p.Release()
	}
	time.Sleep(2 * reportEvery)
	redis.Restart()
	eventually(t, "the place that was given back meanwhile is not free", func() bool {
		_, err := limited.Exec(t.Context(), ann, "c", time.Hour)
		return err == nil
	})
	count := func() int64 {
		u, err := free.Usage(t.Context(), bob, sandbox.UsageQuery{User: "bob"})
		if err != nil {
			return -1
		}
		return u.Total.Execs
	}
	eventually(t, "what was counted meanwhile is lost", func() bool { return count() == 20 })
	time.Sleep(2 * reportEvery)
	if n := count(); n != 20 {
		t.Errorf("%d execs of 20", n)
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	s := stateAt(t, "")
	g := gate(t, s, table{user: Rules{Execs: 3}})
	for i, c := range []sandbox.Caller{ann, ann, bob} {
		p, err := g.Exec(t.Context(), c, strconv.Itoa(i), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		p.Release()
	}
	for _, call := range []func(context.Context, sandbox.Caller) error{g.ToolCall, CodeToolCall(g), CodeToolCall(nil)} {
		if err := call(t.Context(), ann); err != nil {
			t.Fatal(err)
		}
	}
	CountResults(g, ann, 5000, 70)
	CountResults(nil, ann, 1, 1)
	g.CPU(ann, "s1", 1500*time.Millisecond, false)
	p, err := g.Sandbox(t.Context(), ann, "s1")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "nothing is counted", func() bool {
		u, err := g.Usage(t.Context(), ann, sandbox.UsageQuery{})
		return err == nil && u.Total.SandboxSeconds > 0 && u.Total.CPUSeconds == 1.5 && u.Total.Execs == 2
	})
	if u, err := g.Usage(t.Context(), ann, sandbox.UsageQuery{}); err != nil || u.Total.ToolCalls != 2 || u.Total.CodeToolCalls != 1 || u.Total.ToolResultBytes != 5000 || u.Total.ReturnedBytes != 70 {
		t.Errorf("%+v %v", u.Total, err)
	}
	p.Release()
	for _, q := range []sandbox.UsageQuery{{User: "bob"}, {By: "user"}, {By: "key"}} {
		if _, err := g.Usage(t.Context(), ann, q); sandbox.KindOf(err) != sandbox.Forbidden {
			t.Errorf("%+v: %v", q, err)
		}
	}
	u, err := g.Usage(t.Context(), bob, sandbox.UsageQuery{By: "user", From: time.Now().AddDate(0, 0, -3)})
	if err != nil || len(u.Items) != 2 || u.Items[0].User != "ann" || u.Items[0].Execs != 2 || u.Items[1].Execs != 1 || u.Total.Execs != 3 {
		t.Fatalf("%+v %v", u, err)
	}
	u, err = g.Usage(t.Context(), bob, sandbox.UsageQuery{By: "key"})
	if err != nil || len(u.Items) != 1 || u.Items[0].KeyID != "key_1" || u.Items[0].Execs != 3 {
		t.Fatalf("%+v %v", u, err)
	}
	if len(u.Limits) != 1 || u.Limits[0].Limit != Execs || u.Limits[0].Who != "bob" || *u.Limits[0].Used != 0 {
		t.Fatalf("%+v", u.Limits)
	}
	for _, q := range []sandbox.UsageQuery{{By: "week"}, {From: time.Now().AddDate(0, 0, 1)}, {From: time.Now().AddDate(-1, 0, 0)}, {By: "key", User: "ann"}} {
		if _, err := g.Usage(t.Context(), bob, q); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

// TestUncountableDisk: files that cannot be counted count as too many, and the refusal says why.
func TestUncountableDisk(t *testing.T) {
	t.Parallel()
	deep := sandbox.Errorf(sandbox.QuotaExceeded, "too deep")
	g := gate(t, stateAt(t, ""), table{user: Rules{DiskMiB: 10}}, func(o *Options) {
		o.Disk = func(context.Context, string, string) (int64, error) { return 0, deep }
	})
	for range 2 {
		if err := g.Files(t.Context(), ann); !errors.Is(err, deep) {
			t.Errorf("%v, want %v", err, deep)
		}
	}
	list, err := g.limitsOf(t.Context(), ann)
	if err != nil || len(list) != 1 || list[0].Used == nil || *list[0].Used != 10 {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestUncountableDiskOfAnother: the limit of a tenant stops the user whose files cannot be counted, and no other one.
func TestUncountableDiskOfAnother(t *testing.T) {
	t.Parallel()
	deep := sandbox.Errorf(sandbox.QuotaExceeded, "too deep")
	g := gate(t, stateAt(t, ""), table{tenant: Rules{DiskMiB: 10}}, func(o *Options) {
		o.Disk = func(_ context.Context, _, user string) (int64, error) {
			if user == "eve" {
				return 0, deep
			}
			return 1 << 20, nil
		}
	})
	eve := ann
	eve.User = "eve"
	if err := g.Files(t.Context(), eve); !errors.Is(err, deep) {
		t.Errorf("eve: %v", err)
	}
	if err := g.Files(t.Context(), ann); err != nil {
		t.Errorf("ann: %v", err)
	}
}

func TestDisk(t *testing.T) {
	t.Parallel()
	var bytes atomic.Int64
	bytes.Store(11 << 20)
	var now atomic.Int64
	g := gate(t, stateAt(t, ""), table{user: Rules{DiskMiB: 10}}, func(o *Options) {
		o.Disk = func(context.Context, string, string) (int64, error) { return bytes.Load(), nil }
		o.Now = func() time.Time { return time.Unix(now.Load(), 0) }
	})
	if h := refusal(t, second(g.Exec(t.Context(), ann, "a", time.Minute))); h.Limit != Disk || h.Max != 10 || h.Used != 11 || h.Wait != 0 {
		t.Fatalf("%+v", h)
	}
	bytes.Store(9 << 20)
	now.Add(int64(diskEvery/time.Second) + 1)
	eventually(t, "files that were deleted still count", func() bool { return g.Files(t.Context(), ann) == nil })
}

func BenchmarkExecWithoutLimits(b *testing.B) {
	g := gate(b, stateAt(b, ""), table{})
	for i := 0; b.Loop(); i++ {
		p, err := g.Exec(g.Defer(b.Context()), ann, "e", time.Minute)
		if err != nil {
			b.Fatal(err)
		}
		p.Release()
	}
}

func BenchmarkExecWithAllLimits(b *testing.B) {
	for _, kind := range []string{"embedded", "redis"} {
		b.Run(kind, func(b *testing.B) {
			url := ""
			if kind == "redis" {
				r := redistest.Start(b)
				if err := r.Client().ConfigSet(b.Context(), "appendfsync", "everysec").Err(); err != nil {
					b.Fatal(err)
				}
				url = r.URL()
			}
			all := Rules{RequestsPerMinute: 1 << 30, RequestsBurst: 1 << 30, Execs: 100, CPUSecondsPerDay: 1 << 30}
			g := gate(b, stateAt(b, url), table{all, all, all})
			for i := 0; b.Loop(); i++ {
				p, err := g.Exec(g.Defer(b.Context()), ann, strconv.Itoa(i), time.Minute)
				if err != nil {
					b.Fatal(err)
				}
				p.Release()
			}
		})
	}
}
