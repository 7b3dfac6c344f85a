package audit

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/skerry-sandbox/skerry/internal/audit/summary"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// counted is what a summary of these records has to be.
func counted(f Filter, all []Record) Summary {
	c := summary.New(f.Since, f.Until, MaxBuckets, time.Now())
	for _, r := range all {
		if r.Tenant == f.Tenant && f.matches(r) {
			countRecord(c, r)
		}
	}
	return c.Summary(0)
}

func sameFacet(t *testing.T, what string, got, want summary.Facet) {
	t.Helper()
	if got.Other != want.Other || !slices.Equal(got.Values, want.Values) {
		t.Errorf("%s: %+v\nwant %+v", what, got, want)
	}
}

func wantSummary(t *testing.T, what string, got, want Summary) {
	t.Helper()
	if got.Tally != want.Tally || got.Partial {
		t.Errorf("%s: %+v, partial %v, want %+v", what, got.Tally, got.Partial, want.Tally)
	}
	sameFacet(t, what+": users", got.Users, want.Users)
	sameFacet(t, what+": actions", got.Actions, want.Actions)
	sameFacet(t, what+": tools", got.Tools, want.Tools)
	sameFacet(t, what+": outcomes", got.Outcomes, want.Outcomes)
	var sum summary.Tally
	for i, b := range got.Buckets {
		sum.Add(b.Tally)
		if at := got.From.Add(time.Duration(i) * time.Duration(got.BucketS) * time.Second); !b.Start.Equal(at) {
			t.Errorf("%s: bucket %d begins at %s, want %s", what, i, b.Start, at)
		}
	}
	if sum != got.Tally {
		t.Errorf("%s: the buckets have %+v of %+v", what, sum, got.Tally)
	}
}

// TestSummarizeAgainstAll compares summaries with a count of all records, for random filters, while records arrive, the log
// is opened anew, and its index is made anew.
func TestSummarizeAgainstAll(t *testing.T) {
	t.Parallel()
	onViews(t, func(t *testing.T, rdb redis.UniversalClient) {
		rng := rand.New(rand.NewPCG(3, 5))
		pick := func(prefix string, n int) string { return fmt.Sprint(prefix, rng.IntN(n)) }
		o := Options{Dir: t.TempDir(), Redis: rdb, SegmentBytes: 16 << 10}
		l := openLog(t, o)
		var all []Record
		more := func(n int) {
			for range n {
				r := Record{
					Tenant: pick("tenant", 2), User: pick("u", 3), Thread: pick("t", 4), Exec: pick("e", 20), Phase: PhaseResult,
					Action: ActionExec, Subject: pick("Command ", 50), Outcome: []string{"ok", "exited", "oom", ""}[rng.IntN(4)],
				}
				if rng.IntN(2) == 0 {
					r.Action, r.Subject, r.Outcome = ActionToolCall, pick("fs__tool", 40), []string{"ok", "denied", "error", ""}[rng.IntN(4)]
				}
				if rng.IntN(20) == 0 {
					r.User, r.Thread, r.Exec = "", "", ""
				}
				r, err := l.Append(t.Context(), r)
				must(t, err)
				all = append(all, r)
				if rng.IntN(50) == 0 {
					time.Sleep(2 * time.Millisecond)
				}
			}
		}
		more(400)
		for round := range 60 {
			if round == 20 || round == 40 {
				must(t, l.Close())
				if l = openLog(t, o); round == 40 {
					must(t, os.RemoveAll(filepath.Join(o.Dir, rowsFolder)))
				}
			}
			flush(t, l)
			f := Filter{Tenant: pick("tenant", 3)}
			for _, set := range []func(){
				func() { f.User = pick("u", 4) }, func() { f.Thread = pick("t", 4) }, func() { f.Exec = pick("e", 20) },
				func() { f.Action = ActionToolCall }, func() { f.Tool = pick("fs__tool", 41) }, func() { f.Outcome = []string{"denied", "error", "ok"}[rng.IntN(3)] },
				func() { f.Since = all[rng.IntN(len(all))].Time }, func() { f.Until = all[rng.IntN(len(all))].Time },
				func() { f.Text = []string{"COMMAND 1", "fs__", "nowhere"}[rng.IntN(3)] },
			} {
				if rng.IntN(6) == 0 {
					set()
				}
			}
			got, err := summarize(t.Context(), l, f, 1+rng.IntN(MaxBuckets), time.Minute)
			must(t, err)
			wantSummary(t, fmt.Sprintf("round %d, %+v", round, f), got, counted(f, all))
			more(rng.IntN(20))
		}
		for _, buckets := range []int{-1, MaxBuckets + 1} {
			_, err := l.Summarize(t.Context(), Filter{Tenant: "tenant0"}, buckets)
			wantKind(t, err, sandbox.Invalid)
		}
		_, err := l.Summarize(t.Context(), Filter{Tenant: "a}b"}, 0)
		wantKind(t, err, sandbox.Invalid)
	})
}

// These have the same hash.
var clashing = [][2]string{{"costarring", "liquid"}, {"declinate", "macallums"}, {"altarage", "zinke"}}

// TestSummarizeClash: names that were chosen to have another's hash neither show nor count what is another's.
func TestSummarizeClash(t *testing.T) {
	t.Parallel()
	for _, c := range clashing {
		if short(c[0]) != short(c[1]) {
			t.Fatalf("%v have different hashes", c)
		}
	}
	o := Options{Dir: t.TempDir(), SegmentBytes: 4 << 10}
	l := openLog(t, o)
	var all []Record
	add := func(tenant, user, tool, outcome string) {
		r, err := l.Append(t.Context(), Record{Tenant: tenant, User: user, Phase: PhaseResult, Action: ActionToolCall, Subject: tool, Outcome: outcome})
		must(t, err)
		all = append(all, r)
	}
	for i := range 40 {
		add("costarring", "declinate", "altarage", "ok")
		add("liquid", "macallums", "zinke", "denied")
		if i >= 20 { // in the same segments, and in some of their own
			add("costarring", "macallums", "zinke", "error")
			add("costarring", "ann", "fs__read", "ok")
		}
	}
	flush(t, l)
	for range 2 {
		for _, f := range []Filter{
			{Tenant: "costarring"}, {Tenant: "liquid"}, {Tenant: "costarring", User: "declinate"}, {Tenant: "costarring", User: "macallums"},
			{Tenant: "liquid", User: "declinate"}, {Tenant: "costarring", Tool: "zinke"}, {Tenant: "liquid", Tool: "altarage"},
		} {
			got, err := summarize(t.Context(), l, f, 0, time.Minute)
			must(t, err)
			wantSummary(t, fmt.Sprintf("%+v", f), got, counted(f, all))
		}
		must(t, l.Close()) // once more with what the files of the index have
		l = openLog(t, o)
		flush(t, l)
	}
}

// TestSummarizeManyNames: more values than an index takes of a segment are counted, if not all by name.
func TestSummarizeManyNames(t *testing.T) {
	t.Parallel()
	n := newRowNames()
	for i := range maxRowNames + 10 {
		n.add([]rowName{{nameTool, uint32(i + 1), fmt.Sprint("tool", i)}})
	}
	if !n.full[nameTool] || len(n.values[nameTool]) != maxRowNames || n.clash {
		t.Errorf("full %v with %d names", n.full[nameTool], len(n.values[nameTool]))
	}
	n.add([]rowName{{nameTool, 1, "another"}})
	if !n.clash {
		t.Error("no clash with a value that is there")
	}
	l := openLog(t, Options{Dir: t.TempDir()})
	var all []Record
	for i := range 300 {
		r, err := l.Append(t.Context(), Record{Tenant: "acme", User: fmt.Sprint("u", i%5), Phase: PhaseResult, Action: ActionToolCall, Subject: fmt.Sprint("tool", i), Outcome: "ok"})
		must(t, err)
		all = append(all, r)
	}
	flush(t, l)
	x := l.view().(*rowIndex)
	x.mu.Lock()
	names := x.writers[0].files[0].names
	for hash, name := range names.values[nameTool] {
		if name != "tool7" {
			delete(names.values[nameTool], hash)
		}
	}
	names.full[nameTool] = true
	x.mu.Unlock()
	for _, f := range []Filter{{Tenant: "acme", Tool: "tool7"}, {Tenant: "acme", Tool: "tool8"}, {Tenant: "acme", Tool: "nowhere"}} {
		got, err := summarize(t.Context(), l, f, 0, time.Minute)
		must(t, err)
		wantSummary(t, fmt.Sprintf("%+v", f), got, counted(f, all))
	}
	got, err := summarize(t.Context(), l, Filter{Tenant: "acme"}, 0, time.Minute)
	must(t, err)
	if got.Count != 300 || len(got.Tools.Values) != 1 || got.Tools.Values[0].Value != "tool7" || got.Tools.Other != 299 {
		t.Errorf("%d records, tools %+v", got.Count, got.Tools)
	}
}

// TestSummarizeStops: a summary that stops at its bound says so, and has counted all records from then on.
func TestSummarizeStops(t *testing.T) {
	t.Parallel()
	onViews(t, func(t *testing.T, rdb redis.UniversalClient) {
		l := openLog(t, Options{Dir: t.TempDir(), Redis: rdb, SegmentBytes: 1 << 20})
		var all []Record
		n := int64(1_000)
		if rdb == nil {
			n = countedRows + countedRows/2 // it counts a step of them before it looks at the clock
		}
		for i := range n {
			r, err := l.Append(t.Context(), Record{Tenant: "acme", User: "ann", Thread: "t", Action: ActionExec, Subject: fmt.Sprint("s", i), Outcome: "ok"})
			must(t, err)
			all = append(all, r)
			if i%500 == 0 {
				time.Sleep(2 * time.Millisecond)
			}
		}
		flush(t, l)
		for _, f := range []Filter{{Tenant: "acme"}, {Tenant: "acme", User: "ann"}, {Tenant: "acme", Thread: "t"}} {
			s, err := summarize(t.Context(), l, f, 0, 0)
			must(t, err)
			if !s.Partial || s.CountedSince == nil || s.Count >= n {
				t.Fatalf("%+v: %d records, partial %v", f, s.Count, s.Partial)
			}
			since, newer := s.CountedSince.UnixMilli(), int64(0)
			for _, r := range all {
				if r.Time.UnixMilli() >= since {
					newer++
				}
			}
			if s.Count < newer {
				t.Errorf("%+v: counted %d since %s, where %d are", f, s.Count, s.CountedSince, newer)
			}
			s, err = summarize(t.Context(), l, f, 0, time.Minute)
			must(t, err)
			if s.Partial || s.Count != n {
				t.Errorf("%+v: %d records with more time, partial %v", f, s.Count, s.Partial)
			}
		}
	})
}
