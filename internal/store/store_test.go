package store

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/redis/go-redis/v9"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	ann  = sandbox.Owner{Tenant: "acme", User: "ann@example.org"}
	bob  = sandbox.Owner{Tenant: "acme", User: "bob"}
	t0   = time.Date(2026, 1, 2, 3, 4, 5, 6_000_000, time.UTC)
	main = sandbox.Thread{Owner: ann, ID: "main"}
)

func open(t *testing.T, o Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestStore runs one suite on the embedded state, with and without a journal, on a real Redis and on a
// cluster.
func TestStore(t *testing.T) {
	t.Parallel()
	suite := map[string]func(*testing.T, *Store){
		"Threads": testThreads, "Latest": testLatest, "LatestAtOnce": testLatestAtOnce, "ThreadsByText": testThreadsByText, "ThreadPages": testThreadPages, "ThreadRace": testThreadRace, "ToolPinRace": testToolPinRace, "ToolPinsLeft": testToolPinsLeft, "Reseal": testReseal, "KeyUsedLate": testKeyUsedLate, "SecretUsed": testSecretUsed, "Touch": testTouch, "Usage": testUsage, "UsageRace": testUsageRace, "Largest": testLargest, "UID": testUID,
		"Sandbox": testSandbox, "Lease": testLease, "TakeLease": testTakeLease, "RenewLeases": testRenewLeases, "AnswersOfAnOwner": testAnswersOfAnOwner, "IdempotencyOfTheDead": testIdempotencyOfTheDead, "IdempotencyOfTheForgetful": testIdempotencyOfTheForgetful, "Sandboxes": testSandboxes, "UIDLost": testUIDLost, "UIDBehind": testUIDBehind, "LeaseRace": testLeaseRace, "LeaseExpires": testLeaseExpires,
		"Keys": testKeys, "Idempotency": testIdempotency, "BadNames": testBadNames, "Context": testContext,
		"WatchKeys":     testWatchKeys,
		"LargePipeline": testLargePipeline, "Pool": testPool, "PackStreams": testPackStreams,
		"Rate": testRate, "Held": testHeld, "HeldRace": testHeldRace, "DayLimit": testDayLimit, "AllOrNothing": testAllOrNothing, "Count": testCount, "CPUMarks": testCPUMarks,
		"Approvals": testApprovals, "ApprovalRace": testApprovalRace, "ApprovalBounds": testApprovalBounds, "Grants": testGrants, "WatchApprovals": testWatchApprovals,
	}
	for kind, server := range map[string]func(testing.TB) *redistest.Server{
		"embedded": nil, "journal": nil, "redis": redistest.Start, "cluster": redistest.StartCluster,
	} {
		t.Run(kind, func(t *testing.T) {
			var o Options
			wipe := func() {}
			if server != nil {
				r := server(t)
				o.URL = r.URL()
				wipe = func() { must(t, r.Client().FlushAll(t.Context()).Err()) }
			}
			for name, test := range suite {
				t.Run(name, func(t *testing.T) {
					wipe()
					if kind == "journal" {
						o.Journal = filepath.Join(t.TempDir(), "state.jsonl")
					}
					s := open(t, o)
					if err := s.Ping(t.Context()); err != nil {
						t.Fatal(err)
					}
					if s.Embedded() != (server == nil) {
						t.Errorf("Embedded() = %v", s.Embedded())
					}
					test(t, s)
				})
			}
		})
	}
}

func wantKind(t *testing.T, err error, k sandbox.Kind) {
	t.Helper()
	if sandbox.KindOf(err) != k {
		t.Errorf("error %v of kind %q, want %q", err, sandbox.KindOf(err), k)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// PutThread writes what is remembered of a thread, in place of what was, as only tests do.
func (s threadRecords) PutThread(ctx context.Context, info sandbox.ThreadInfo) error {
	if err := checkThread(info.Thread); err != nil {
		return err
	}
	return s.save(ctx, threadPlace(info.Thread), info)
}

// testThreadRace: of changes of one thread at once none is lost, whether the thread was there before or not.
func testThreadRace(t *testing.T, s *Store) {
	const changes = 40
	var wg sync.WaitGroup
	for i := range changes {
		wg.Go(func() {
			_, err := s.ChangeThread(t.Context(), main, func(info *sandbox.ThreadInfo, found bool) error {
				if !found {
					info.CreatedAt, info.Labels = t0, map[string]string{}
				}
				info.Labels[fmt.Sprint("l", i)] = "1"
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	info, err := s.Thread(t.Context(), main)
	must(t, err)
	if len(info.Labels) != changes || !info.CreatedAt.Equal(t0) {
		t.Errorf("%d of %d changes are there: %v", len(info.Labels), changes, info)
	}
	list, _, err := s.ThreadPage(t.Context(), ThreadQuery{Owner: ann}, "", 100)
	must(t, err)
	if len(list) != 1 {
		t.Errorf("listed %v", list)
	}
	no := errors.New("no")
	if _, err := s.ChangeThread(t.Context(), main, func(info *sandbox.ThreadInfo, _ bool) error { info.Labels = nil; return no }); !errors.Is(err, no) {
		t.Errorf("an error of the change is %v", err)
	}
	if again, err := s.Thread(t.Context(), main); err != nil || fmt.Sprint(again) != fmt.Sprint(info) {
		t.Errorf("changed although it was refused: %v %v", again, err)
	}
}

// testToolPinRace: a server does not overwrite what another one made of a tool since it was read.
func testToolPinRace(t *testing.T, s *Store) {
	ctx, p := t.Context(), PinnedServer{Server: "crm"}
	must(t, s.PutToolPins(ctx, p, []ToolPin{{Tool: "a", Now: "1"}, {Tool: "b", Now: "1"}}, nil))
	read := func() map[string]ToolPin {
		_, pins, ok, err := s.ToolPins(ctx, p)
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		return pins
	}
	mine, theirs := read()["a"], read()["a"]
	theirs.Accepted = []string{"1"}
	must(t, s.PutToolPins(ctx, p, []ToolPin{theirs}, nil))
	mine.Now = "2"
	wantKind(t, s.PutToolPins(ctx, p, []ToolPin{mine}, nil), sandbox.Conflict)
	wantKind(t, s.PutToolPins(ctx, p, []ToolPin{{Tool: "b", Now: "2"}}, nil), sandbox.Conflict)
	now := read()
	if len(now["a"].Accepted) != 1 || now["a"].Now != "1" || now["b"].Now != "1" {
		t.Errorf("overwritten: %+v", now)
	}
	must(t, s.PutToolPins(ctx, p, []ToolPin{now["b"].Becomes(ToolPin{Tool: "b", Now: "3"})}, nil))
	if read()["b"].Now != "3" {
		t.Error("not written")
	}
}

// testToolPinsLeft: what a server left that ended before it had written all does not stand in the way of the next one.
func testToolPinsLeft(t *testing.T, s *Store) {
	ctx, p := t.Context(), PinnedServer{Server: "left"}
	must(t, s.save(ctx, place{key: toolPinsKey(p), field: "a"}, ToolPin{Tool: "a", Now: "1"}))
	_, pins, ok, err := s.ToolPins(ctx, p)
	if ok || err != nil || len(pins) != 1 {
		t.Fatal(ok, err, pins)
	}
	must(t, s.PutToolPins(ctx, p, []ToolPin{pins["a"].Becomes(ToolPin{Tool: "a", Now: "2"})}, nil))
	if _, pins, ok, err := s.ToolPins(ctx, p); !ok || err != nil || pins["a"].Now != "2" {
		t.Error(ok, err, pins)
	}
}

// testReseal: a record with a field that this server does not know is sealed anew all the same: a rotation that
// passed over it would take the key away that it needs.
func testReseal(t *testing.T, s *Store) {
	ctx, r := t.Context(), SecretRecord{Tenant: "acme", Scope: "tenant", Name: "A", Sealed: []byte("old"), ChangedAt: t0}
	must(t, s.PutSecret(ctx, r))
	at := secretPlace(r.Tenant, r.Scope, r.Name)
	must(t, s.rdb.HSet(ctx, at.key, at.field, `{"tenant":"acme","scope":"tenant","name":"A","sealed":"b2xk","later":1}`).Err())
	renewed := r
	renewed.Sealed = []byte("new")
	if done, err := s.ResealSecret(ctx, r, renewed); !done || err != nil {
		t.Errorf("not sealed anew: %v %v", done, err)
	}
	if done, err := s.ResealSecret(ctx, r, renewed); done || err != nil {
		t.Errorf("sealed over another value: %v %v", done, err)
	}
	if list, err := s.Secrets(ctx, "acme"); err != nil || len(list) != 1 || string(list[0].Sealed) != "new" {
		t.Errorf("%v %v", list, err)
	}
	must(t, s.DeleteSecret(ctx, r.Tenant, r.Scope, r.Name))
	if done, err := s.ResealSecret(ctx, renewed, r); done || err != nil {
		t.Errorf("a deleted one is back: %v %v", done, err)
	}
}

// testSecretUsed: a use is with the list, changes no record, and goes with the secret; one that is written down later
// leaves nothing.
func testSecretUsed(t *testing.T, s *Store) {
	ctx, r := t.Context(), SecretRecord{Tenant: "acme", Scope: "server/crm", Name: "A", Sealed: []byte("old"), ChangedAt: t0}
	must(t, s.PutSecret(ctx, r))
	used := func() *time.Time {
		t.Helper()
		list, err := s.Secrets(ctx, "acme")
		if err != nil || len(list) != 1 {
			t.Fatalf("%v, %v", list, err)
		}
		return list[0].LastUsedAt
	}
	if used() != nil {
		t.Error("a secret that was never used")
	}
	must(t, s.SecretUsed(ctx, "acme", r.Scope, r.Name, t0.Add(time.Hour)))
	if at := used(); at == nil || at.Unix() != t0.Add(time.Hour).Unix() {
		t.Errorf("used %v", at)
	}
	r.Sealed = []byte("new")
	must(t, s.PutSecret(ctx, r))
	if at := used(); at == nil || at.Unix() != t0.Add(time.Hour).Unix() {
		t.Errorf("with another value: used %v", at)
	}
	must(t, s.DeleteSecret(ctx, "acme", r.Scope, r.Name))
	must(t, s.SecretUsed(ctx, "acme", r.Scope, r.Name, t0))
	must(t, s.SecretUsed(ctx, "acme", "tenant", "B", t0))
	if n, err := s.rdb.HLen(ctx, secretUsesKey("acme")).Result(); n != 0 || err != nil {
		t.Errorf("%d uses of no secret: %v", n, err)
	}
}

// testKeyUsedLate: a use that is written down after the key was deleted leaves nothing.
func testKeyUsedLate(t *testing.T, s *Store) {
	ctx := t.Context()
	must(t, s.PutKey(ctx, KeyRecord{ID: "k1", Tenant: "acme", User: "ann", CreatedAt: t0, Hash: "aa"}))
	must(t, s.KeyUsed(ctx, "acme", "k1", t0))
	must(t, s.DeleteKey(ctx, "acme", "k1"))
	must(t, s.KeyUsed(ctx, "acme", "k1", t0))
	if n, err := s.rdb.HLen(ctx, keyUsesKey("acme")).Result(); n != 0 || err != nil {
		t.Errorf("%d uses of no key: %v", n, err)
	}
}

func testThreads(t *testing.T, s *Store) {
	ctx := t.Context()
	_, err := s.Thread(ctx, main)
	wantKind(t, err, sandbox.NotFound)
	info := sandbox.ThreadInfo{Thread: main, Labels: map[string]string{"k": "v <&>"}, CreatedAt: t0, LastActiveAt: t0}
	must(t, s.PutThread(ctx, info))
	got, err := s.Thread(ctx, main)
	must(t, err)
	if fmt.Sprint(got) != fmt.Sprint(info) {
		t.Errorf("got %v, want %v", got, info)
	}
	// The same name of another user is another thread.
	_, err = s.Thread(ctx, sandbox.Thread{Owner: bob, ID: "main"})
	wantKind(t, err, sandbox.NotFound)
	must(t, s.DeleteThread(ctx, main))
	must(t, s.DeleteThread(ctx, main))
	_, err = s.Thread(ctx, main)
	wantKind(t, err, sandbox.NotFound)
	items, next, err := s.ThreadPage(ctx, ThreadQuery{Owner: ann}, "", 100)
	must(t, err)
	if len(items) != 0 || next != "" {
		t.Errorf("Threads of nobody: %v, %q", items, next)
	}
}

func testThreadPages(t *testing.T, s *Store) {
	ctx := t.Context()
	var want []string
	for i := range 25 {
		th := sandbox.Thread{Owner: ann, ID: fmt.Sprintf("t-%d", i)}
		want = append(want, th.ID)
		must(t, s.PutThread(ctx, sandbox.ThreadInfo{Thread: th, Labels: map[string]string{"odd": fmt.Sprint(i % 2)}, CreatedAt: t0}))
	}
	must(t, s.PutThread(ctx, sandbox.ThreadInfo{Thread: sandbox.Thread{Owner: bob, ID: "his"}}))
	slices.Sort(want)
	for _, limit := range []int{1, 4, 5, 25, 100} {
		var got []string
		for cursor := ""; ; {
			items, next, err := s.ThreadPage(ctx, ThreadQuery{Owner: ann}, cursor, limit)
			must(t, err)
			if len(items) == 0 {
				t.Fatalf("limit %d: an empty page after %q", limit, cursor)
			}
			for _, it := range items {
				got = append(got, it.ID)
			}
			if cursor = next; next == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("limit %d: got %v", limit, got)
		}
	}
	if n, err := s.ThreadCount(ctx, ann); err != nil || n != 25 {
		t.Errorf("%d threads, %v", n, err)
	}
	_, _, err := s.ThreadPage(ctx, ThreadQuery{Owner: ann}, "no/cursor", 1)
	wantKind(t, err, sandbox.Invalid)
	_, _, err = s.ThreadPage(ctx, ThreadQuery{Owner: sandbox.Owner{Tenant: "acme"}}, "", 1)
	wantKind(t, err, sandbox.Invalid)
}

func testTouch(t *testing.T, s *Store) {
	ctx := t.Context()
	must(t, s.TouchThread(ctx, main, t0))
	must(t, s.PutThread(ctx, sandbox.ThreadInfo{Thread: main, CreatedAt: t0, LastActiveAt: t0}))
	later := t0.Add(time.Minute)
	must(t, s.TouchThread(ctx, main, later))
	got, err := s.Thread(ctx, main)
	must(t, err)
	if !got.LastActiveAt.Equal(later) {
		t.Errorf("last active %v, want %v", got.LastActiveAt, later)
	}
	items, _, err := s.ThreadPage(ctx, ThreadQuery{Owner: ann}, "", 100)
	must(t, err)
	if !items[0].LastActiveAt.Equal(later) {
		t.Errorf("listed as last active %v, want %v", items[0].LastActiveAt, later)
	}
	must(t, s.TouchThread(ctx, main, t0.Add(-time.Hour)))
	if got, _ = s.Thread(ctx, main); !got.LastActiveAt.Equal(t0) {
		t.Errorf("last active %v: the record's own time is later than the touch", got.LastActiveAt)
	}
}

func testUID(t *testing.T, s *Store) {
	const n = 40
	var mu sync.Mutex
	seen := map[int]bool{}
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			uid, err := s.NextUID(t.Context(), 1_000_000)
			mu.Lock()
			defer mu.Unlock()
			if err != nil || seen[uid] || uid < 1_000_000 || uid >= 1_000_000+n {
				t.Errorf("uid %d (given before: %v), %v", uid, seen[uid], err)
			}
			seen[uid] = true
		})
	}
	wg.Wait()
	for _, c := range []struct{ min, want int }{{5_000_000, 5_000_000}, {5, 5_000_001}} {
		if uid, err := s.NextUID(t.Context(), c.min); err != nil || uid != c.want {
			t.Errorf("NextUID(%d) = %d, %v; want %d", c.min, uid, err, c.want)
		}
	}
}

func testSandbox(t *testing.T, s *Store) {
	ctx := t.Context()
	_, err := s.Sandbox(ctx, main)
	wantKind(t, err, sandbox.NotFound)
	rec := SandboxRecord{ID: "skerry-1", Info: sandbox.Info{ID: "skerry-1", State: sandbox.Running, CreatedAt: t0}, Replica: "r1"}
	must(t, s.PutSandbox(ctx, main, rec))
	if got, err := s.Sandbox(ctx, main); err != nil || !reflect.DeepEqual(got, rec) {
		t.Errorf("got %v, %v", got, err)
	}
	must(t, s.DeleteSandbox(ctx, main, "skerry-0"))
	if _, err := s.Sandbox(ctx, main); err != nil {
		t.Errorf("deleting another id took it: %v", err)
	}
	must(t, s.DeleteSandbox(ctx, main, "skerry-1"))
	must(t, s.DeleteSandbox(ctx, main, "skerry-1"))
	_, err = s.Sandbox(ctx, main)
	wantKind(t, err, sandbox.NotFound)
}

func testLease(t *testing.T, s *Store) {
	ctx := t.Context()
	l1, err := s.AcquireLease(ctx, main, "r1", time.Minute)
	must(t, err)
	if l1.Owner != "r1" || l1.Deleting || l1.Token <= 0 {
		t.Errorf("lease %+v", l1)
	}
	held, err := s.AcquireLease(ctx, main, "r2", time.Minute)
	wantKind(t, err, sandbox.Conflict)
	if held != l1 || !strings.Contains(err.Error(), "another server") {
		t.Errorf("the conflict gives %+v, %v", held, err)
	}
	wantKind(t, s.RenewLease(ctx, main, "r2", time.Minute), sandbox.Conflict)
	_, err = s.MarkDeleting(ctx, main, "r2", time.Minute)
	wantKind(t, err, sandbox.Conflict)
	must(t, s.ReleaseLease(ctx, main, "r2"))
	must(t, s.RenewLease(ctx, main, "r1", time.Minute))

	d, err := s.MarkDeleting(ctx, main, "r1", time.Minute)
	must(t, err)
	if !d.Deleting || d.Token != l1.Token {
		t.Errorf("marked: %+v", d)
	}
	held, err = s.AcquireLease(ctx, main, "r2", time.Minute)
	wantKind(t, err, sandbox.Conflict)
	if !held.Deleting || !strings.Contains(err.Error(), "removed") {
		t.Errorf("the conflict gives %+v, %v", held, err)
	}
	again, err := s.AcquireLease(ctx, main, "r1", time.Minute)
	must(t, err)
	if !again.Deleting || again.Token <= l1.Token {
		t.Errorf("taken again: %+v after %+v", again, l1)
	}
	if again, err = s.AcquireLease(ctx, main, "r1", time.Minute); err != nil || again.Deleting {
		t.Errorf("taken a third time: %+v, %v", again, err)
	}
	must(t, s.ReleaseLease(ctx, main, "r1"))
	must(t, s.ReleaseLease(ctx, main, "r1"))
	l2, err := s.AcquireLease(ctx, main, "r2", time.Minute)
	must(t, err)
	if l2.Token <= again.Token {
		t.Errorf("token %d after %d", l2.Token, again.Token)
	}
}

func testTakeLease(t *testing.T, s *Store) {
	ctx := t.Context()
	_, err := s.Lease(ctx, main)
	wantKind(t, err, sandbox.NotFound)
	dead, err := s.AcquireLease(ctx, main, "r1", time.Minute)
	must(t, err)
	if got, err := s.Lease(ctx, main); err != nil || got != dead {
		t.Errorf("the lease is %+v, %v; want %+v", got, err, dead)
	}
	held, err := s.TakeLease(ctx, main, "r2", "r0", time.Minute)
	wantKind(t, err, sandbox.Conflict)
	if held != dead {
		t.Errorf("the conflict gives %+v", held)
	}
	taken, err := s.TakeLease(ctx, main, "r2", "r1", time.Minute)
	must(t, err)
	if taken.Owner != "r2" || taken.Token <= dead.Token {
		t.Errorf("taken: %+v after %+v", taken, dead)
	}
	// The replica that was taken for dead comes back.
	wantKind(t, s.RenewLeases(ctx, "r1", map[sandbox.Thread]int64{main: dead.Token}, time.Minute)[main], sandbox.Conflict)
	wantKind(t, s.RenewLeases(ctx, "r2", map[sandbox.Thread]int64{main: dead.Token}, time.Minute)[main], sandbox.Conflict)
	must(t, s.RenewLeases(ctx, "r2", map[sandbox.Thread]int64{main: taken.Token}, time.Minute)[main])
	must(t, s.RenewLease(ctx, main, "r2", time.Minute))
	must(t, s.ReleaseLease(ctx, main, "r1"))
	if got, err := s.Lease(ctx, main); err != nil || got.Token != taken.Token {
		t.Errorf("the former owner released it: %+v, %v", got, err)
	}
	must(t, s.ReleaseLease(ctx, main, "r2"))
	wantKind(t, s.RenewLeases(ctx, "r2", map[sandbox.Thread]int64{main: taken.Token}, time.Minute)[main], sandbox.NotFound)
	if _, err := s.TakeLease(ctx, main, "r2", "r1", time.Minute); err != nil {
		t.Errorf("one that nobody has: %v", err)
	}
}

// testRenewLeases: many at once, each by itself.
func testRenewLeases(t *testing.T, s *Store) {
	ctx := t.Context()
	tokens := map[sandbox.Thread]int64{}
	for i := range 2*leasesAtOnce + 3 {
		th := sandbox.Thread{Owner: ann, ID: fmt.Sprint("t", i)}
		if i%3 == 0 {
			th.Tenant = "other"
		}
		l, err := s.AcquireLease(ctx, th, "r1", time.Minute)
		must(t, err)
		tokens[th] = l.Token
	}
	taken, lost := sandbox.Thread{Owner: ann, ID: "t1"}, sandbox.Thread{Owner: ann, ID: "t2"}
	_, err := s.TakeLease(ctx, taken, "r2", "r1", time.Minute)
	must(t, err)
	must(t, s.ReleaseLease(ctx, lost, "r1"))
	bad := sandbox.Thread{Owner: ann, ID: "no/thread"}
	tokens[bad] = 1
	failed := s.RenewLeases(ctx, "r1", tokens, time.Hour)
	wantKind(t, failed[taken], sandbox.Conflict)
	wantKind(t, failed[lost], sandbox.NotFound)
	wantKind(t, failed[bad], sandbox.Invalid)
	if len(failed) != 3 {
		t.Errorf("%d of %d failed", len(failed), len(tokens))
	}
	for th := range tokens {
		if failed[th] == nil {
			if ttl := s.Redis().PTTL(ctx, leaseKey(th)).Val(); ttl < 59*time.Minute {
				t.Fatalf("%s is kept for %v", th, ttl)
			}
		}
	}
	if got := s.RenewLeases(ctx, "r1", nil, time.Minute); len(got) != 0 {
		t.Errorf("none: %v", got)
	}
}

func testSandboxes(t *testing.T, s *Store) {
	ctx := t.Context()
	other := sandbox.Thread{Owner: main.Owner, ID: "other"}
	rec := SandboxRecord{ID: "skerry-1", Info: sandbox.Info{ID: "skerry-1", State: sandbox.Running, CreatedAt: t0}, Replica: "r1"}
	must(t, s.PutSandbox(ctx, main, rec))
	got, err := s.Sandboxes(ctx, []sandbox.Thread{other, main})
	must(t, err)
	if len(got) != 1 || !reflect.DeepEqual(got[main], rec) {
		t.Errorf("got %+v", got)
	}
	if got, err := s.Sandboxes(ctx, nil); err != nil || len(got) != 0 {
		t.Errorf("of none: %v, %v", got, err)
	}
	_, err = s.Sandboxes(ctx, []sandbox.Thread{{Owner: main.Owner, ID: "a/b"}})
	wantKind(t, err, sandbox.Invalid)
}

// testUIDLost: a counter that is gone begins above what is in use.
func testUIDLost(t *testing.T, s *Store) {
	asked := 0
	s.highestUID = func() (int, error) { asked++; return 1_000_007, nil }
	for i, want := range []int{1_000_008, 1_000_009} {
		if uid, err := s.NextUID(t.Context(), 1_000_000); err != nil || uid != want {
			t.Errorf("%d: NextUID = %d, %v; want %d", i, uid, err, want)
		}
	}
	if asked != 1 {
		t.Errorf("the uids in use were read %d times", asked)
	}
	must(t, s.rdb.Del(t.Context(), uidKey).Err())
	s.highestUID = func() (int, error) { return 0, errors.New("no") }
	if uid, err := s.NextUID(t.Context(), 1_000_000); err == nil {
		t.Errorf("given %d without knowing which are in use", uid)
	}
}

// testUIDBehind: a counter that lost its last steps is set right by the look at a start.
func testUIDBehind(t *testing.T, s *Store) {
	ctx := t.Context()
	first, err := s.NextUID(ctx, 1_000_000)
	must(t, err)
	used := first + 10
	s.highestUID = func() (int, error) { return used, nil }
	must(t, s.CheckUIDs(ctx))
	if uid, err := s.NextUID(ctx, 1_000_000); err != nil || uid != used+1 {
		t.Errorf("uid %d, %v", uid, err)
	}
	used = first
	must(t, s.CheckUIDs(ctx)) // it never goes back
	if uid, err := s.NextUID(ctx, 1_000_000); err != nil || uid != first+12 {
		t.Errorf("uid %d, %v", uid, err)
	}
	s.highestUID = func() (int, error) { return 0, errors.New("no such folder") }
	if err := s.CheckUIDs(ctx); err == nil {
		t.Error("what cannot be looked at is taken for right")
	}
}

func testLeaseRace(t *testing.T, s *Store) {
	var mu sync.Mutex
	winners := 0
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			_, err := s.AcquireLease(t.Context(), main, fmt.Sprintf("r%d", i), time.Minute)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				winners++
			} else if !errors.Is(err, sandbox.Conflict) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if winners != 1 {
		t.Errorf("%d replicas have the lease", winners)
	}
}

func testLeaseExpires(t *testing.T, s *Store) {
	ctx := t.Context()
	_, err := s.AcquireLease(ctx, main, "r1", 600*time.Millisecond)
	must(t, err)
	time.Sleep(200 * time.Millisecond)
	must(t, s.RenewLease(ctx, main, "r1", 600*time.Millisecond))
	deadline := time.Now().Add(5 * time.Second)
	for {
		if _, err = s.AcquireLease(ctx, main, "r2", 300*time.Millisecond); err == nil {
			break
		}
		wantKind(t, err, sandbox.Conflict)
		if time.Now().After(deadline) {
			t.Fatal("the lease does not expire")
		}
		time.Sleep(20 * time.Millisecond)
	}
	wantKind(t, s.RenewLease(ctx, main, "r1", time.Second), sandbox.Conflict)
	for {
		err = s.RenewLease(ctx, main, "r3", time.Second)
		if errors.Is(err, sandbox.NotFound) {
			break
		}
		wantKind(t, err, sandbox.Conflict)
		if time.Now().After(deadline) {
			t.Fatal("the second lease does not expire")
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func testKeys(t *testing.T, s *Store) {
	ctx := t.Context()
	if has, err := s.HasKeys(ctx); err != nil || has {
		t.Errorf("HasKeys of nothing: %v, %v", has, err)
	}
	until := t0.Add(time.Hour)
	k1 := KeyRecord{ID: "key_1", Name: "ci", Tenant: "acme", User: "ann", Admin: true, ActFor: true, CreatedAt: t0, ExpiresAt: &until, Hash: "aa"}
	k2 := KeyRecord{ID: "key_0", Tenant: "acme", User: "bob", CreatedAt: t0.Add(time.Second), Hash: "bb"}
	k3 := KeyRecord{ID: "key_9", Tenant: "other", User: "eve", CreatedAt: t0, Hash: "cc"}
	for _, k := range []KeyRecord{k2, k1, k3} {
		must(t, s.PutKey(ctx, k))
	}
	got, err := s.KeyByHash(ctx, "aa")
	must(t, err)
	if got.ExpiresAt == nil || !got.ExpiresAt.Equal(until) {
		t.Errorf("expires %v", got.ExpiresAt)
	}
	if got.ExpiresAt = k1.ExpiresAt; !reflect.DeepEqual(got, k1) {
		t.Errorf("got %+v, want %+v", got, k1)
	}
	list, err := s.Keys(ctx, "acme")
	must(t, err)
	if len(list) != 2 || list[0].ID != "key_1" || list[1].ID != "key_0" {
		t.Errorf("listed %+v", list)
	}
	must(t, s.KeyUsed(ctx, "acme", "key_1", t0.Add(time.Minute)))
	list, err = s.Keys(ctx, "acme")
	must(t, err)
	if at := list[0].LastUsedAt; at == nil || at.Unix() != t0.Add(time.Minute).Unix() || list[1].LastUsedAt != nil {
		t.Errorf("used %v, %v", at, list[1].LastUsedAt)
	}
	wantKind(t, s.DeleteKey(ctx, "acme", "key_9"), sandbox.NotFound)
	must(t, s.DeleteKey(ctx, "acme", "key_1"))
	wantKind(t, s.DeleteKey(ctx, "acme", "key_1"), sandbox.NotFound)
	_, err = s.KeyByHash(ctx, "aa")
	wantKind(t, err, sandbox.NotFound)
	if has, err := s.HasKeys(ctx); err != nil || !has {
		t.Errorf("HasKeys: %v, %v", has, err)
	}
}

// testWatchKeys: who watches hears of each key that is made and deleted, and first that it may have missed some.
func testWatchKeys(t *testing.T, s *Store) {
	ctx, end := context.WithCancel(t.Context())
	heard, ended := make(chan string, 16), make(chan struct{})
	go func() { defer close(ended); s.WatchKeys(ctx, func(id string) { heard <- id }) }()
	next := func(want string) {
		t.Helper()
		select {
		case got := <-heard:
			if got != want {
				t.Errorf("heard of %q, want %q", got, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("nothing is heard of %q", want)
		}
	}
	next("")
	must(t, s.PutKey(ctx, KeyRecord{ID: "key_w", Tenant: "watched", User: "ann", CreatedAt: t0, Hash: "dd"}))
	next("key_w")
	must(t, s.DeleteKey(ctx, "watched", "key_w"))
	next("key_w")
	end()
	<-ended
}

func testIdempotency(t *testing.T, s *Store) {
	ctx := t.Context()
	begin := func(o sandbox.Owner, key, fp string) (bool, string, error) {
		first, answer, err := s.Begin(ctx, o, key, fp, 0)
		return first, string(answer), err
	}
	if first, _, err := begin(ann, "k", "f1"); err != nil || !first {
		t.Fatalf("first %v, %v", first, err)
	}
	_, _, err := begin(ann, "k", "f1")
	wantKind(t, err, sandbox.Conflict)
	_, _, err = begin(ann, "k", "f2")
	wantKind(t, err, sandbox.Invalid)
	if first, _, err := begin(bob, "k", "f2"); err != nil || !first {
		t.Errorf("another user's key: first %v, %v", first, err)
	}
	must(t, s.Finish(ctx, ann, "k", []byte("answer\x00\xff")))
	if first, answer, err := begin(ann, "k", "f1"); err != nil || first || answer != "answer\x00\xff" {
		t.Errorf("again: %v %q %v", first, answer, err)
	}
	must(t, s.Finish(ctx, ann, "k", nil))
	if first, _, err := begin(ann, "k", "f3"); err != nil || !first {
		t.Errorf("freed: first %v, %v", first, err)
	}
	must(t, s.Finish(ctx, ann, "k", make([]byte, MaxAnswer+1)))
	_, _, err = begin(ann, "k", "f3")
	wantKind(t, err, sandbox.Conflict)
	if !strings.Contains(err.Error(), "too large") {
		t.Error(err)
	}
	if first, _, err := begin(ann, "empty", "f"); err != nil || !first {
		t.Fatal(first, err)
	}
	must(t, s.Finish(ctx, ann, "empty", []byte{}))
	if first, answer, err := begin(ann, "empty", "f"); err != nil || first || answer != "" {
		t.Errorf("an empty answer: %v %q %v", first, answer, err)
	}
	must(t, s.Finish(ctx, ann, "never begun", []byte("x")))
	if first, _, err := begin(ann, "never begun", "f"); err != nil || !first {
		t.Errorf("Finish without Begin left something: %v, %v", first, err)
	}
	_, _, err = begin(ann, strings.Repeat("x", MaxIdempotencyKey+1), "f")
	wantKind(t, err, sandbox.Invalid)
	for key, want := range map[string]time.Duration{"k": answerTTL, "never begun": claimTTL} {
		at, err := idempotencyPlace(ann, key)
		must(t, err)
		if ttl := s.rdb.PTTL(ctx, at).Val(); ttl > want || ttl < want-time.Minute {
			t.Errorf("key %q lives for %v, want %v", key, ttl, want)
		}
	}
}

// testAnswersOfAnOwner: what is remembered of one user, and of one tenant, is bounded; a retry of what was forgotten is
// refused.
func testAnswersOfAnOwner(t *testing.T, s *Store) {
	ctx := t.Context()
	const size = 1000
	s.answers = answerBounds{userBytes: 5 * (size + answerCost), userFacts: 3, tenantBytes: 8 * (size + answerCost), tenantFacts: 100}
	o := func(user string) sandbox.Owner { return sandbox.Owner{Tenant: "bounded", User: user} }
	do := func(user, key string) {
		t.Helper()
		if first, _, err := s.Begin(ctx, o(user), key, "fp", 0); !first || err != nil {
			t.Fatal(first, err)
		}
		must(t, s.Finish(ctx, o(user), key, make([]byte, size)))
		for at := s.rdb.Time(ctx).Val(); s.rdb.Time(ctx).Val().Sub(at) < time.Millisecond; { //nolint:revive // the next one is younger
		}
	}
	hourAgo := s.rdb.Time(ctx).Val().Add(-time.Hour).UnixMilli()
	must(t, s.rdb.Set(ctx, idempotencySinceKey("bounded"), hourAgo, 0).Err())
	kept := func(user string) (list string) {
		t.Helper()
		for i := range 10 {
			key := fmt.Sprint(i)
			first, answer, err := s.Begin(ctx, o(user), key, "fp", time.Second)
			switch {
			case err == nil && !first && len(answer) == size:
				list += key
			case err == nil && first:
				must(t, s.Finish(ctx, o(user), key, nil))
			case sandbox.KindOf(err) != sandbox.Conflict:
				t.Fatal(first, err)
			}
		}
		return list
	}
	for i := range 10 {
		do("ann", fmt.Sprint(i))
	}
	if got := kept("ann"); got != "56789" {
		t.Errorf("of ann are kept %s", got)
	}
	conflict := func(user, key string, age time.Duration, want string) {
		t.Helper()
		_, _, err := s.Begin(ctx, o(user), key, "fp", age)
		var e *sandbox.Error
		if !errors.As(err, &e) || len(e.Fields) != 1 || e.Fields[0].Detail != want {
			t.Errorf("a retry of %s of %s: %v, want %s", key, user, err, want)
		}
	}
	conflict("ann", "4", 0, sandbox.KeyDone)
	conflict("ann", "2", time.Second, sandbox.KeyDone)
	conflict("ann", "1", time.Second, sandbox.KeyUnknown)
	for i := range 4 {
		do("bob", fmt.Sprint(i))
	}
	if a, b := kept("ann"), kept("bob"); a != "6789" || b != "0123" {
		t.Errorf("of the tenant are kept %s of ann and %s of bob", a, b)
	}
}

// testIdempotencyOfTheForgetful: a retry whose first try may have come before anything was remembered is
// refused, and a later one is not.
func testIdempotencyOfTheForgetful(t *testing.T, s *Store) {
	ctx := t.Context()
	o := sandbox.Owner{Tenant: "forgetful", User: "ann"}
	must(t, s.rdb.FlushAll(ctx).Err()) // as Redis that comes back empty
	_, _, err := s.Begin(ctx, o, "k", "fp", time.Millisecond)
	wantKind(t, err, sandbox.Conflict)
	var e *sandbox.Error
	if !errors.As(err, &e) || len(e.Fields) != 1 || e.Fields[0] != (sandbox.Field{Name: "Idempotency-Key", Detail: sandbox.KeyUnknown}) {
		t.Errorf("a retry from before: %v, %+v", err, e)
	}
	if first, _, err := s.Begin(ctx, o, "new", "fp", 0); !first || err != nil {
		t.Errorf("no retry: %v, %v", first, err)
	}
	hourAgo := s.rdb.Time(ctx).Val().Add(-time.Hour).UnixMilli()
	must(t, s.rdb.Set(ctx, idempotencySinceKey(o.Tenant), hourAgo, 0).Err())
	if first, _, err := s.Begin(ctx, o, "k", "fp", 30*time.Minute); !first || err != nil {
		t.Errorf("a retry of what never came: %v, %v", first, err)
	}
	_, _, err = s.Begin(ctx, o, "older", "fp", 61*time.Minute)
	wantKind(t, err, sandbox.Conflict)
	for _, bad := range []time.Duration{-1, MaxRetryAge + 1} {
		_, _, err = s.Begin(ctx, o, "bad", "fp", bad)
		wantKind(t, err, sandbox.Invalid)
	}
}

// testIdempotencyOfTheDead: who retries is told that the first request's server ended.
func testIdempotencyOfTheDead(t *testing.T, s *Store) {
	ended := map[string]bool{}
	s.replica, s.alive = "r1", func(replica string) bool { return !ended[replica] }
	if first, _, err := s.Begin(t.Context(), main.Owner, "k", "fp", 0); !first || err != nil {
		t.Fatalf("%v, %v", first, err)
	}
	s.replica = "r2"
	_, _, err := s.Begin(t.Context(), main.Owner, "k", "fp", 0)
	wantKind(t, err, sandbox.Conflict)
	if !strings.Contains(err.Error(), "still running") {
		t.Errorf("while it runs: %v", err)
	}
	ended["r1"] = true
	first, _, err := s.Begin(t.Context(), main.Owner, "k", "fp", 0)
	wantKind(t, err, sandbox.Conflict)
	if first || !strings.Contains(err.Error(), "ended before it answered") {
		t.Errorf("after its end: %v, %v", first, err)
	}
}

func testBadNames(t *testing.T, s *Store) {
	ctx := t.Context()
	for _, bad := range []sandbox.Thread{
		{Owner: sandbox.Owner{Tenant: "a}", User: "u"}, ID: "x"}, {Owner: sandbox.Owner{Tenant: "a", User: ""}, ID: "x"},
		{Owner: ann, ID: "a:b"}, {Owner: ann, ID: "../x"},
	} {
		_, err := s.Thread(ctx, bad)
		wantKind(t, err, sandbox.Invalid)
		wantKind(t, s.PutThread(ctx, sandbox.ThreadInfo{Thread: bad}), sandbox.Invalid)
		_, err = s.AcquireLease(ctx, bad, "r", time.Second)
		wantKind(t, err, sandbox.Invalid)
	}
	labels := map[string]string{"k": strings.Repeat("x", maxRecord)}
	wantKind(t, s.PutThread(ctx, sandbox.ThreadInfo{Thread: main, Labels: labels}), sandbox.Invalid)
}

func testContext(t *testing.T, s *Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Thread(ctx, main)
	wantKind(t, err, sandbox.Unavailable)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the cause is lost: %v", err)
	}
}

// testLargePipeline: no pipeline waits for itself, whatever is sent before its first answer is read, and whatever comes back.
func testLargePipeline(t *testing.T, s *Store) {
	ctx := t.Context()
	key := func(i int) string { return fmt.Sprint(strings.Repeat("k", 1000), i) }
	p := s.Redis().Pipeline()
	for i := range 1000 {
		p.Set(ctx, key(i), strings.Repeat("x", 2000)+fmt.Sprint(i), 0)
		p.Get(ctx, key(i))
	}
	if _, err := p.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		p.Get(ctx, key(i))
	}
	answers, err := p.Exec(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range answers {
		if got := a.(*redis.StringCmd).Val(); got != strings.Repeat("x", 2000)+fmt.Sprint(i) {
			t.Fatalf("answer %d has %d bytes", i, len(got))
		}
	}
}
