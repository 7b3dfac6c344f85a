package store

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// usedBy says what a thread used, as a text.
func usedBy(t *testing.T, s *Store, th sandbox.Thread) string {
	t.Helper()
	l, err := s.UsedThread(t.Context(), th)
	must(t, err)
	return usedText(l.Used)
}

func usedText(u *sandbox.ThreadUsage) string {
	switch {
	case u == nil:
		return "nothing"
	case u.DiskBytes == nil:
		return fmt.Sprintf("%d execs, %g s", u.Execs, u.ExecSeconds)
	}
	return fmt.Sprintf("%d execs, %g s, %d bytes at %s", u.Execs, u.ExecSeconds, *u.DiskBytes, u.MeasuredAt.Format(time.TimeOnly))
}

// measured makes a thread whose files have a size.
func measured(t *testing.T, s *Store, o sandbox.Owner, id string, size int64) {
	t.Helper()
	makeThread(t, s, o, id, t0)
	must(t, s.UseThread(t.Context(), sandbox.Thread{Owner: o, ID: id}, time.Time{}, ThreadUse{Writer: "w", DiskBytes: size, MeasuredAt: t0}))
}

// testUsage: what is written adds up, once for each batch; it goes with the thread, and other threads have none of it.
func testUsage(t *testing.T, s *Store) {
	ctx := t.Context()
	use := func(at time.Time, u ThreadUse) {
		t.Helper()
		must(t, s.UseThread(ctx, main, at, u))
	}
	want := func(text string) {
		t.Helper()
		if got := usedBy(t, s, main); got != text {
			t.Errorf("used %s, want %s", got, text)
		}
		page, _, err := s.ThreadPage(ctx, ThreadQuery{Owner: ann}, "", 9)
		if must(t, err); len(page) != 1 || usedText(page[0].Used) != text {
			t.Errorf("listed %+v, want %s", page, text)
		}
		page, _, err = s.ThreadPage(ctx, ThreadQuery{Owner: sandbox.Owner{Tenant: ann.Tenant}, Latest: true}, "", 9)
		if must(t, err); len(page) == 0 || usedText(page[0].Used) != text {
			t.Errorf("listed by activity %+v, want %s", page, text)
		}
	}
	use(t0, ThreadUse{Writer: "a", Batch: 1, Execs: 1}) // there is no such thread
	makeThread(t, s, ann, main.ID, t0)
	want("nothing")
	use(time.Time{}, ThreadUse{Writer: "a", Batch: 1, Execs: 2, ExecTime: 1500 * time.Millisecond})
	use(time.Time{}, ThreadUse{Writer: "a", Batch: 1, Execs: 2, ExecTime: 1500 * time.Millisecond}) // its answer was lost
	want("2 execs, 1.5 s")
	use(time.Time{}, ThreadUse{Writer: "a", DiskBytes: 7 << 30, MeasuredAt: t0.Add(time.Second)})
	use(time.Time{}, ThreadUse{Writer: "a", Batch: 2, Execs: 1, DiskBytes: 5, MeasuredAt: t0}) // measured before
	want("3 execs, 1.5 s, 7516192768 bytes at 03:04:06")
	use(time.Time{}, ThreadUse{Writer: "b", Batch: 1, Execs: 1, DiskBytes: 0, MeasuredAt: t0.Add(time.Minute)})
	want("4 execs, 1.5 s, 0 bytes at 03:05:05")
	if info, err := s.Thread(ctx, main); err != nil || !info.LastActiveAt.Equal(t0) {
		t.Errorf("active at %v without a time, %v", info.LastActiveAt, err)
	}
	use(t0.Add(time.Hour), ThreadUse{Writer: "b", Batch: 2, ExecTime: time.Hour})
	if info, err := s.Thread(ctx, main); err != nil || !info.LastActiveAt.Equal(t0.Add(time.Hour)) {
		t.Errorf("active at %v, %v", info.LastActiveAt, err)
	}
	his := sandbox.Thread{Owner: bob, ID: main.ID}
	theirs := sandbox.Thread{Owner: sandbox.Owner{Tenant: "other", User: ann.User}, ID: main.ID}
	for _, th := range []sandbox.Thread{his, theirs} {
		makeThread(t, s, th.Owner, th.ID, t0)
		if got := usedBy(t, s, th); got != "nothing" {
			t.Errorf("%s has %s", th, got)
		}
	}
	must(t, s.DeleteThread(ctx, main))
	use(time.Time{}, ThreadUse{Writer: "b", Batch: 3, Execs: 1, DiskBytes: 1, MeasuredAt: t0.Add(time.Hour)}) // late
	makeThread(t, s, ann, main.ID, t0.Add(2*time.Hour))
	want("nothing")
	page, _, err := s.ThreadPage(ctx, ThreadQuery{Owner: ann, Largest: true}, "", 9)
	if must(t, err); len(page) != 0 {
		t.Errorf("a deleted thread is listed by size: %v", page)
	}
	wantKind(t, s.UseThread(ctx, sandbox.Thread{Owner: ann, ID: "a/b"}, t0, ThreadUse{}), sandbox.Invalid)
}

// testUsageRace: of what two servers write at once nothing is lost, and nothing counts twice.
func testUsageRace(t *testing.T, s *Store) {
	makeThread(t, s, ann, main.ID, t0)
	const batches = 50
	var wg sync.WaitGroup
	for _, writer := range []string{"a", "b"} {
		wg.Go(func() {
			for i := range uint64(batches) {
				u := ThreadUse{Writer: writer, Batch: i + 1, Execs: 2, ExecTime: 10 * time.Millisecond}
				if err := s.UseThread(t.Context(), main, time.Time{}, u); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := usedBy(t, s, main); got != "200 execs, 1 s" {
		t.Error(got)
	}
}

// largestOf lists threads by size, page by page.
func largestOf(t *testing.T, s *Store, q ThreadQuery, limit int) string {
	t.Helper()
	q.Largest = true
	text, cursor := "", ""
	for range 100 {
		page, next, err := s.ThreadPage(t.Context(), q, cursor, limit)
		must(t, err)
		for _, x := range page {
			if x.LastActiveAt.IsZero() || x.CreatedAt.IsZero() {
				t.Errorf("%s has no times", x.ID)
			}
			text += short(x.Thread) + " "
		}
		if cursor = next; next == "" {
			return text
		}
	}
	t.Error("a list without an end")
	return text
}

// testLargest: a list by size has each thread that was measured once, whatever the length of a page.
func testLargest(t *testing.T, s *Store) {
	measured(t, s, ann, "small", 10)
	measured(t, s, bob, "same", 500)
	measured(t, s, ann, "same", 500)
	measured(t, s, ann, "big", 8<<40)
	measured(t, s, ann, "empty", 0)
	makeThread(t, s, ann, "unknown", t0)
	measured(t, s, sandbox.Owner{Tenant: "other", User: "eve"}, "hers", 9<<40)
	must(t, s.TouchThread(t.Context(), sandbox.Thread{Owner: ann, ID: "small"}, t0.Add(time.Hour)))
	all := ThreadQuery{Owner: sandbox.Owner{Tenant: ann.Tenant}}
	for _, limit := range []int{1, 2, 3, 100} {
		if got := largestOf(t, s, all, limit); got != "ann/big bob/same ann/same ann/small ann/empty " {
			t.Errorf("pages of %d: %s", limit, got)
		}
		if got := largestOf(t, s, ThreadQuery{Owner: ann, MinDisk: 10}, limit); got != "ann/big ann/same ann/small " {
			t.Errorf("pages of %d of one user, from 10 bytes: %s", limit, got)
		}
		if got := largestOf(t, s, ThreadQuery{Owner: ann, MinDisk: 9 << 40}, limit); got != "" {
			t.Errorf("pages of %d of what there is not: %s", limit, got)
		}
	}
	page, _, err := s.ThreadPage(t.Context(), ThreadQuery{Owner: ann, Largest: true}, "10.small", 1)
	if must(t, err); len(page) != 1 || page[0].ID != "empty" {
		t.Errorf("behind a cursor: %v", page)
	}
	page, _, err = s.ThreadPage(t.Context(), ThreadQuery{Owner: ann, Largest: true}, "500.same", 1)
	if must(t, err); len(page) != 1 || !page[0].LastActiveAt.Equal(t0.Add(time.Hour)) {
		t.Errorf("not active as it was: %v", page)
	}
	_, _, err = s.ThreadPage(t.Context(), ThreadQuery{Owner: ann, Largest: true}, "-1.small", 1)
	wantKind(t, err, sandbox.Invalid)
	_, _, err = s.ThreadPage(t.Context(), ThreadQuery{Largest: true}, "", 1)
	wantKind(t, err, sandbox.Invalid)
}

// TestUsageOfJournal: an embedded state that is opened anew knows what threads used, and lists them by size.
func TestUsageOfJournal(t *testing.T) {
	t.Parallel()
	o := Options{Journal: filepath.Join(t.TempDir(), "state.jsonl")}
	s, err := Open(t.Context(), o)
	must(t, err)
	measured(t, s, ann, "a", 10)
	measured(t, s, bob, "b", 20)
	measured(t, s, bob, "gone", 30)
	makeThread(t, s, ann, main.ID, t0)
	must(t, s.UseThread(t.Context(), main, time.Time{}, ThreadUse{Writer: "w", Batch: 1, Execs: 3, ExecTime: time.Second}))
	must(t, s.DeleteThread(t.Context(), sandbox.Thread{Owner: bob, ID: "gone"}))
	must(t, s.Close())
	s = open(t, o)
	if got := largestOf(t, s, ThreadQuery{Owner: sandbox.Owner{Tenant: ann.Tenant}}, 9); got != "bob/b ann/a " {
		t.Error(got)
	}
	if got := usedBy(t, s, main); got != "3 execs, 1 s" {
		t.Error(got)
	}
	must(t, s.UseThread(t.Context(), main, time.Time{}, ThreadUse{Writer: "w", Batch: 1, Execs: 3})) // what the former process wrote already
	if got := usedBy(t, s, main); got != "3 execs, 1 s" {
		t.Error(got)
	}
}
