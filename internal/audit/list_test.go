package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
	"github.com/skerry-sandbox/skerry/internal/store/redistest"
)

// onViews runs a test on each view: the files, the embedded state, a real Redis, and a cluster.
func onViews(t *testing.T, test func(t *testing.T, rdb redis.UniversalClient)) {
	t.Run("files", func(t *testing.T) { test(t, nil) })
	t.Run("embedded", func(t *testing.T) { test(t, openStore(t, "").Redis()) })
	t.Run("redis", func(t *testing.T) { test(t, openStore(t, redistest.Start(t).URL()).Redis()) })
	t.Run("cluster", func(t *testing.T) { test(t, openStore(t, redistest.StartCluster(t).URL()).Redis()) })
}

func TestList(t *testing.T) {
	t.Parallel()
	onViews(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		l := openLog(t, Options{Dir: t.TempDir(), Redis: rdb, SegmentBytes: 8 << 10})
		items, next, err := l.List(ctx, Filter{Tenant: "acme"})
		must(t, err)
		if items == nil || len(items) != 0 || next != "" {
			t.Errorf("nothing: %v %q", items, next)
		}
		var middle time.Time
		for i := range 60 {
			r := Record{Tenant: "acme", User: fmt.Sprint("u", i%2), Thread: fmt.Sprint("t", i%3), Exec: fmt.Sprint("e", i), Phase: PhaseResult,
				Action: ActionExec, Subject: fmt.Sprint("s", i), Outcome: "ok"}
			if i%5 == 0 {
				r.Action, r.Subject, r.Outcome = ActionToolCall, "fs__read_file", "error"
			}
			r, err := l.Append(ctx, r)
			must(t, err)
			if i == 30 {
				middle = r.Time
			}
			if i == 29 || i == 30 {
				time.Sleep(3 * time.Millisecond)
			}
		}
		write(t, l, "other", subjects(0, 1))
		must(t, l.Flush(ctx)) // List waits for half a second only
		for name, c := range map[string]struct {
			f    Filter
			want int
		}{
			"all":     {Filter{}, 60},
			"user":    {Filter{User: "u1"}, 30},
			"thread":  {Filter{Thread: "t0"}, 20},
			"exec":    {Filter{Exec: "e7"}, 1},
			"action":  {Filter{Action: ActionToolCall}, 12},
			"tool":    {Filter{Tool: "fs__read_file"}, 12},
			"no tool": {Filter{Tool: "s1"}, 0},
			"outcome": {Filter{Outcome: "error", User: "u0"}, 6},
			"since":   {Filter{Since: middle}, 30},
			"until":   {Filter{Until: middle}, 30},
			"between": {Filter{Since: middle, Until: middle.Add(time.Nanosecond)}, 1},
			"future":  {Filter{Since: middle.Add(time.Hour)}, 0},
		} {
			for _, limit := range []int{0, 1, 7, 60} {
				c.f.Tenant, c.f.Limit, c.f.Cursor = "acme", limit, ""
				var got []Record
				for pages := 0; ; pages++ {
					items, next, err := l.List(ctx, c.f)
					must(t, err)
					got = append(got, items...)
					if c.f.Cursor = next; next == "" || pages > 70 {
						break
					}
				}
				if len(got) != c.want {
					t.Errorf("%s, limit %d: %d records, want %d", name, limit, len(got), c.want)
				}
				if !slices.IsSortedFunc(got, func(a, b Record) int { return int(b.Seq) - int(a.Seq) }) {
					t.Errorf("%s, limit %d: not newest first", name, limit)
				}
			}
		}
		// Places that no record has, as large as a client may send them.
		for _, cursor := range []string{
			"9999999999999999999.9999999999999999999.zz", "9223372036854775807.1.", "0.0.", "18446744073709551615-18446744073709551615",
			"9007199254740992-0", "0-0", "1704067200000-99999", "99999999999999999999-0",
		} {
			items, _, err := l.List(ctx, Filter{Tenant: "acme", Cursor: cursor, User: "u1"})
			if kind := sandbox.KindOf(err); kind != "" && kind != sandbox.Invalid {
				t.Errorf("%s: %v", cursor, err)
			} else if large := cursor[0] != '0' && cursor[:2] != "17"; err == nil && (len(items) == 30) != large {
				t.Errorf("%s: %d records", cursor, len(items))
			}
			stopped, stop := context.WithCancel(ctx)
			stop()
			if kind := sandbox.KindOf(l.Follow(stopped, Filter{Tenant: "acme"}, cursor, func(Record, string) error { return nil })); kind != "" && kind != sandbox.Invalid && kind != sandbox.Unavailable {
				t.Errorf("follow %s: %s", cursor, kind)
			}
		}
		for _, bad := range []Filter{{Tenant: "acme", Limit: 1001}, {Tenant: "acme", Limit: -1}, {Tenant: "acme", Cursor: "x"}, {Tenant: "a}b"}} {
			_, _, err := l.List(ctx, bad)
			wantKind(t, err, sandbox.Invalid)
		}
	})
}

// TestListAgainstAll compares pages with a walk over all records, for random filters, while records arrive and the log is
// opened anew. No caller sees a record of another tenant.
func TestListAgainstAll(t *testing.T) {
	t.Parallel()
	onViews(t, func(t *testing.T, rdb redis.UniversalClient) {
		rng := rand.New(rand.NewPCG(7, 7))
		pick := func(prefix string, n int) string { return fmt.Sprint(prefix, rng.IntN(n)) }
		o := Options{Dir: t.TempDir(), Redis: rdb, SegmentBytes: 16 << 10}
		l := openLog(t, o)
		var all []Record // oldest first
		more := func(n int) {
			for range n {
				r := Record{
					Tenant: pick("tenant", 2), User: pick("u", 3), Thread: pick("t", 4), Exec: pick("e", 20), Phase: PhaseResult,
					Action: ActionExec, Subject: pick("Command ", 50), Outcome: "ok", Detail: `<a> "quoted" & Größe`,
				}
				if rng.IntN(3) == 0 {
					r.Action, r.Subject, r.Outcome = ActionToolCall, pick("fs__tool", 3), pick("error", 2)
				}
				if rng.IntN(20) == 0 {
					r.User, r.Thread, r.Exec, r.Outcome = "", "", "", ""
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
			f := Filter{Tenant: pick("tenant", 2), Limit: 1 + rng.IntN(40)}
			for _, set := range []func(){
				func() { f.User = pick("u", 4) }, func() { f.Thread = pick("t", 4) }, func() { f.Exec = pick("e", 20) },
				func() { f.Action = ActionToolCall }, func() { f.Tool = pick("fs__tool", 3) }, func() { f.Outcome = pick("error", 2) },
				func() { f.Since = all[rng.IntN(len(all))].Time }, func() { f.Until = all[rng.IntN(len(all))].Time },
				func() { f.Text = []string{"COMMAND 1", "größe", `"quoted"`, "<a>", "nowhere"}[rng.IntN(5)] },
			} {
				if rng.IntN(5) == 0 {
					set()
				}
			}
			var want, got []string
			for _, r := range slices.Backward(all) {
				if r.Tenant == f.Tenant && f.matches(r) {
					want = append(want, r.ID)
				}
			}
			for pages := 0; ; pages++ {
				items, next, err := l.List(t.Context(), f)
				must(t, err)
				for _, r := range items {
					if r.Tenant != f.Tenant {
						t.Fatalf("%+v sees %+v", f, r)
					}
					got = append(got, r.ID)
				}
				if f.Cursor = next; next == "" || pages > 1000 {
					break
				}
				more(rng.IntN(3)) // they are newer than all pages
			}
			if !slices.Equal(got, want) {
				t.Fatalf("round %d, %+v: %d records, want %d", round, f, len(got), len(want))
			}
		}
	})
}

// TestKeep: the oldest records leave Redis by number, bytes and age, and their entries with them.
func TestKeep(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *store.Store) {
		rdb, ctx := s.Redis(), t.Context()
		l := openLog(t, Options{Dir: t.TempDir(), Redis: rdb, Keep: Keep{Records: 300}})
		for i := range 2000 {
			_, err := l.Append(ctx, Record{Tenant: "acme", User: "ann", Thread: fmt.Sprint("t", i/10), Action: ActionExec, Subject: fmt.Sprint("s", i), Outcome: "ok"})
			must(t, err)
		}
		flush(t, l)
		if n := rdb.XLen(ctx, store.AuditStreamKey("acme")).Val(); n > 300+keepSlack {
			t.Errorf("%d records before anybody looks", n)
		}
		must(t, l.copies.ship.keep.all(ctx))
		wantStream(t, rdb, "acme", subjects(1700, 2000))
		keys := rdb.Keys(ctx, store.AuditStreamKey("acme")+":thread:*").Val()
		if len(keys) != 30 {
			t.Errorf("%d lists of threads, want 30", len(keys))
		}
		if items := listAll(t, l, Filter{Tenant: "acme", User: "ann", Limit: 1000}); len(items) != 300 {
			t.Errorf("ann has %d records", len(items))
		}

		size, _ := rdb.HGet(ctx, store.AuditCursorKey("acme"), "bytes").Int64()
		l.copies.ship.keep.keep.Bytes = size / 3
		must(t, l.copies.ship.keep.all(ctx))
		if n := rdb.XLen(ctx, store.AuditStreamKey("acme")).Val(); n < 95 || n > 105 {
			t.Errorf("%d records in a third of the bytes", n)
		}
		time.Sleep(20 * time.Millisecond)
		l.copies.ship.keep.keep.Age = 10 * time.Millisecond
		must(t, l.copies.ship.keep.all(ctx))
		wantStream(t, rdb, "acme", nil)
		if keys := rdb.Keys(ctx, store.AuditStreamKey("acme")+":*:*").Val(); len(keys) != 0 {
			t.Errorf("left: %v", keys)
		}
		if left, _ := rdb.HGet(ctx, store.AuditCursorKey("acme"), "bytes").Int64(); left != 0 {
			t.Errorf("%d bytes are left", left)
		}
		write(t, l, "acme", []string{"again"})
		flush(t, l)
		wantStream(t, rdb, "acme", []string{"again"})
	})
}

// TestFollow: each record once and in order, from the cursor on, over a new start of the log; none of another tenant.
func TestFollow(t *testing.T) {
	t.Parallel()
	onViews(t, func(t *testing.T, rdb redis.UniversalClient) {
		o := Options{Dir: t.TempDir(), Redis: rdb, SegmentBytes: 8 << 10}
		l := openLog(t, o)
		write(t, l, "acme", subjects(0, 5))
		flush(t, l)
		enough := errors.New("enough")
		var got []string
		cursor := ""
		follow := func(from string, n int) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			err := l.Follow(ctx, Filter{Tenant: "acme", User: "ann"}, from, func(r Record, c string) error {
				if r.Tenant != "acme" {
					t.Errorf("sees %+v", r)
				}
				got, cursor = append(got, r.Subject), c
				if n--; n == 0 {
					return enough
				}
				return nil
			})
			if !errors.Is(err, enough) {
				t.Fatalf("followed %d: %v", len(got), err)
			}
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			time.Sleep(100 * time.Millisecond) // the follower begins at what is there by then
			for i := range 600 {
				write(t, l, "acme", subjects(5+i, 6+i))
				write(t, l, "other", subjects(0, 1))
			}
		})
		follow("", 1)
		first := got[0]
		follow(cursor, 300-len(got))
		wg.Wait()
		must(t, l.Close())
		l = openLog(t, o)
		write(t, l, "acme", subjects(605, 610))
		var n int
		_, err := fmt.Sscanf(first, "s%d", &n)
		must(t, err)
		follow(cursor, 610-n-len(got))
		if !slices.Equal(got, subjects(n, 610)) {
			t.Errorf("followed from %s: %v", first, got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		must(t, l.Follow(ctx, Filter{Tenant: "acme"}, cursor, func(Record, string) error { return nil }))
		wantKind(t, l.Follow(t.Context(), Filter{Tenant: "acme"}, "x", nil), sandbox.Invalid)
	})
}

// TestFoundTextIsNotHeldBack: a page of a rare text ends soon after its first record, any other when it is full or took long.
func TestFoundTextIsNotHeldBack(t *testing.T) {
	t.Parallel()
	text, user := &rowQuery{selector: newSelector(Filter{Text: "x"})}, &rowQuery{selector: newSelector(Filter{User: "u"})}
	for _, c := range []struct {
		q     *rowQuery
		spent time.Duration
		items int
		want  bool
	}{{text, foundTimeout / 2, 1, false}, {text, 2 * foundTimeout, 1, true}, {text, 2 * foundTimeout, 0, false}, {text, listTimeout + 1, 0, true}, {user, 2 * foundTimeout, 1, false}} {
		if got := c.q.late(time.Now().Add(-c.spent), c.items); got != c.want {
			t.Errorf("%q after %v with %d: %v", c.q.f.Text, c.spent, c.items, got)
		}
	}
}

// TestBlock: a line is what stands at its place, in whatever order lines are wanted.
func TestBlock(t *testing.T) {
	t.Parallel()
	text := make([]byte, 5*blockBytes)
	for i := range text {
		text[i] = byte(i * 2654435761 >> 16)
	}
	path := filepath.Join(t.TempDir(), "segment")
	must(t, os.WriteFile(path, text, 0o600))
	file, err := os.Open(path)
	must(t, err)
	defer file.Close()
	other, err := os.Open(path)
	must(t, err)
	defer other.Close()
	var b block
	want := func(f *os.File, at, size int) {
		t.Helper()
		if got, err := b.line(f, int64(at), size); err != nil || !bytes.Equal(got, text[at:at+size]) {
			t.Fatalf("%d bytes at %d: %v", size, at, err)
		}
	}
	for at := len(text) - 300; at >= 0; at -= 300 { // backwards, as a search does
		want(file, at, 300)
	}
	for at := 0; at+700 < len(text); at += 700 {
		want(file, at, 700)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		at := rng.IntN(len(text))
		want([]*os.File{file, other}[rng.IntN(2)], at, rng.IntN(min(len(text)-at, 2*blockBytes)))
	}
	for _, at := range []int64{-1, 1 << 62, 1<<63 - 1, int64(len(text))} {
		if _, err := b.line(file, at, 300); err == nil {
			t.Errorf("a line at %d", at)
		}
	}
}
