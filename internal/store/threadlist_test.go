package store

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store/redistest"
)

// makeThread makes a thread that was last active at a time.
func makeThread(t *testing.T, s *Store, o sandbox.Owner, id string, at time.Time) {
	t.Helper()
	_, err := s.ChangeThread(t.Context(), sandbox.Thread{Owner: o, ID: id}, func(info *sandbox.ThreadInfo, _ bool) error {
		info.CreatedAt, info.LastActiveAt = at, at
		return nil
	})
	must(t, err)
}

// short names a thread in the lists of these tests.
func short(t sandbox.Thread) string { return strings.TrimSuffix(t.User, "@example.org") + "/" + t.ID }

// latestOf lists threads by activity, page by page. between is called after each page.
func latestOf(t *testing.T, s *Store, q ThreadQuery, limit int, between func(page int)) string {
	t.Helper()
	q.Latest = true
	var got []string
	for cursor, n := "", 0; ; n++ {
		page, next, err := s.ThreadPage(t.Context(), q, cursor, limit)
		must(t, err)
		for _, x := range page {
			got = append(got, short(x.Thread))
		}
		if cursor = next; next == "" {
			return strings.Join(got, " ")
		}
		if between(n); n > 1000 {
			t.Fatal("a list without an end")
		}
	}
}

func testLatest(t *testing.T, s *Store) {
	ctx := t.Context()
	same := t0.Add(time.Hour)
	for i, x := range []struct {
		o  sandbox.Owner
		id string
		at time.Time
	}{{ann, "a", t0}, {bob, "b", t0.Add(time.Minute)}, {ann, "c", same}, {ann, "d", same}, {bob, "e", same}, {ann, "f", same.Add(time.Minute)}} {
		makeThread(t, s, x.o, x.id, x.at)
		if n, err := s.ThreadCount(ctx, sandbox.Owner{Tenant: ann.Tenant}); err != nil || int(n) != i+1 {
			t.Errorf("%d threads of the tenant, %v", n, err)
		}
	}
	nothing := func(int) {}
	all := ThreadQuery{Owner: sandbox.Owner{Tenant: ann.Tenant}}
	const want = "ann/f bob/e ann/d ann/c bob/b ann/a"
	for _, limit := range []int{1, 2, 3, 5, 6, 100} {
		if got := latestOf(t, s, all, limit, nothing); got != want {
			t.Errorf("pages of %d: %s", limit, got)
		}
		if got := latestOf(t, s, ThreadQuery{Owner: ann}, limit, nothing); got != "ann/f ann/d ann/c ann/a" {
			t.Errorf("pages of %d of one user: %s", limit, got)
		}
		from, to := all, all
		from.From, to.To = t0.Add(time.Minute), same
		if got := latestOf(t, s, from, limit, nothing); got != "ann/f bob/e ann/d ann/c bob/b" {
			t.Errorf("pages of %d from a time: %s", limit, got)
		}
		if got := latestOf(t, s, to, limit, nothing); got != "bob/e ann/d ann/c bob/b ann/a" {
			t.Errorf("pages of %d to a time: %s", limit, got)
		}
	}
	// A thread that is used while somebody reads on is not seen twice, and no other one is left out.
	for at, id := range []string{"f", "e", "d", "c"} {
		o := ann
		if id == "e" {
			o = bob
		}
		got := latestOf(t, s, all, 1, func(page int) {
			if page == at {
				must(t, s.TouchThread(ctx, sandbox.Thread{Owner: o, ID: id}, same.Add(time.Hour)))
			}
		})
		if got != want {
			t.Errorf("%s is used after it was listed: %s", id, got)
		}
		back := same
		if id == "f" {
			back = same.Add(time.Minute)
		}
		must(t, s.TouchThread(ctx, sandbox.Thread{Owner: o, ID: id}, back))
	}
	got := latestOf(t, s, all, 1, func(page int) {
		if page == 2 {
			must(t, s.DeleteThread(ctx, sandbox.Thread{Owner: ann, ID: "d"}))
		}
	})
	if got != want {
		t.Errorf("deleted after it was listed: %s", got)
	}
	if got := latestOf(t, s, all, 2, nothing); got != "ann/f bob/e ann/c bob/b ann/a" {
		t.Errorf("after that: %s", got)
	}
	// A thread keeps its place when it is changed.
	makeThread(t, s, ann, "a", t0.Add(24*time.Hour))
	if got := latestOf(t, s, ThreadQuery{Owner: ann}, 9, nothing); got != "ann/f ann/c ann/a" {
		t.Errorf("changed: %s", got)
	}
	for _, cursor := range []string{"x", "1", "1.", "-1.ann:a", "1.a b:c", "99999999999999999999.ann:a", "1.ann:" + strings.Repeat("x", 200)} {
		q := all
		q.Latest = true
		_, _, err := s.ThreadPage(ctx, q, cursor, 1)
		wantKind(t, err, sandbox.Invalid)
	}
}

// testLatestAtOnce: threads of one millisecond have an order, and each is in one page.
func testLatestAtOnce(t *testing.T, s *Store) {
	var want []string
	for i := range 70 {
		id := fmt.Sprintf("t%02d", i)
		makeThread(t, s, ann, id, t0)
		want = append(want, "ann/"+id)
	}
	makeThread(t, s, ann, "later", t0.Add(time.Hour))
	makeThread(t, s, ann, "earlier", t0.Add(-time.Hour))
	slices.Reverse(want)
	want = slices.Concat([]string{"ann/later"}, want, []string{"ann/earlier"})
	for _, limit := range []int{1, 7, 30, 71, 72, 100} {
		if got := latestOf(t, s, ThreadQuery{Owner: ann}, limit, func(int) {}); got != strings.Join(want, " ") {
			t.Errorf("pages of %d: %s", limit, got)
		}
	}
}

// testThreadsByText: a list for a text leaves out what cannot have it, and nothing that has it, however it is written in a record.
func testThreadsByText(t *testing.T, s *Store) {
	texts := map[string]string{"plain": "Sales", "quoted": `say "hi"`, "tags": "<b>&", "folded": "ÄRGER", "lines": "a\nb", "back": `c:\dir`}
	for id, text := range texts {
		_, err := s.ChangeThread(t.Context(), sandbox.Thread{Owner: ann, ID: id}, func(info *sandbox.ThreadInfo, _ bool) error {
			info.Labels, info.LastActiveAt = map[string]string{"for": text}, t0
			return nil
		})
		must(t, err)
	}
	for id, text := range texts {
		for _, want := range []string{id, text, strings.ToUpper(text), strings.ToLower(text)} {
			got := latestOf(t, s, ThreadQuery{Owner: ann, Text: want}, 10, func(int) {})
			if !strings.Contains(got, "ann/"+id) {
				t.Errorf("%q: %s", want, got)
			}
		}
	}
	for want, ids := range map[string]string{"sALEs": "ann/plain", "nowhere": "", "ärger": "ann/folded"} {
		if got := latestOf(t, s, ThreadQuery{Owner: ann, Text: want}, 10, func(int) {}); got != ids {
			t.Errorf("%q: %q, want %q", want, got, ids)
		}
	}
	if got := latestOf(t, s, ThreadQuery{Owner: sandbox.Owner{Tenant: ann.Tenant}, Text: "sales"}, 1, func(int) {}); got != "ann/plain" {
		t.Errorf("of the tenant, in pages of one: %s", got)
	}
}

// TestActivityOfOlderThreads: a list by activity has the threads that an older server made, also beside those of a newer one.
func TestActivityOfOlderThreads(t *testing.T) {
	t.Parallel()
	for kind, start := range map[string]func(testing.TB) *redistest.Server{"redis": redistest.Start, "cluster": redistest.StartCluster} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := open(t, Options{URL: start(t).URL()})
			var want []string
			for i := range 1200 {
				o := []sandbox.Owner{ann, bob}[i%2]
				info := sandbox.ThreadInfo{Thread: sandbox.Thread{Owner: o, ID: fmt.Sprint("t", i)}, LastActiveAt: t0.Add(time.Duration(i) * time.Second)}
				must(t, s.PutThread(t.Context(), info))
				want = append(want, short(info.Thread))
			}
			must(t, s.TouchThread(t.Context(), sandbox.Thread{Owner: ann, ID: "t0"}, t0.Add(time.Hour)))
			want = append(want[1:], want[0])
			slices.Reverse(want)
			if got := latestOf(t, s, ThreadQuery{Owner: sandbox.Owner{Tenant: ann.Tenant}}, 500, func(int) {}); got != strings.Join(want, " ") {
				t.Errorf("%.200s…", got)
			}
			if n, err := s.ThreadCount(t.Context(), sandbox.Owner{Tenant: ann.Tenant}); err != nil || n != 1200 {
				t.Errorf("%d threads, %v", n, err)
			}
		})
	}
}

// TestActivityOfJournal: a list by activity has the threads of an embedded state that was opened anew.
func TestActivityOfJournal(t *testing.T) {
	t.Parallel()
	o := Options{Journal: filepath.Join(t.TempDir(), "state.jsonl")}
	s, err := Open(t.Context(), o)
	must(t, err)
	makeThread(t, s, ann, "old", t0)
	makeThread(t, s, bob, "new", t0.Add(time.Hour))
	makeThread(t, s, bob, "gone", t0)
	must(t, s.DeleteThread(t.Context(), sandbox.Thread{Owner: bob, ID: "gone"}))
	must(t, s.Close())
	s = open(t, o)
	if got := latestOf(t, s, ThreadQuery{Owner: sandbox.Owner{Tenant: ann.Tenant}}, 500, func(int) {}); got != "bob/new ann/old" {
		t.Error(got)
	}
}

// BenchmarkLatest lists the first page of 100,000 threads by activity, and one in their middle.
func BenchmarkLatest(b *testing.B) {
	for kind, url := range map[string]string{"embedded": "", "redis": redistest.Start(b).URL()} {
		s, err := Open(b.Context(), Options{URL: url})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = s.Close() })
		const many = 100_000
		for i := range many {
			info := sandbox.ThreadInfo{Thread: sandbox.Thread{Owner: sandbox.Owner{Tenant: "acme", User: fmt.Sprint("u", i%500)}, ID: fmt.Sprint("t", i)}, LastActiveAt: t0.Add(time.Duration(i) * time.Second)}
			text, err := json.Marshal(info)
			if err != nil {
				b.Fatal(err)
			}
			if err := s.rdb.HSet(b.Context(), threadsKey(info.Owner), info.ID, text).Err(); err != nil {
				b.Fatal(err)
			}
			if err := s.noteActivity(b.Context(), info.Thread, info.LastActiveAt, true); err != nil {
				b.Fatal(err)
			}
		}
		q := ThreadQuery{Owner: sandbox.Owner{Tenant: "acme"}, Latest: true}
		for name, cursor := range map[string]string{"first": "", "middle": fmt.Sprint(t0.Add(many/2*time.Second).UnixMilli(), ".u0:t", many/2)} {
			b.Run(kind+"/"+name, func(b *testing.B) {
				for b.Loop() {
					if page, _, err := s.ThreadPage(b.Context(), q, cursor, 100); err != nil || len(page) != 100 {
						b.Fatal(len(page), err)
					}
				}
			})
		}
	}
}
