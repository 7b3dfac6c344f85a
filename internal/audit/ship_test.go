package audit

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/skerry-sandbox/skerry/internal/audit/record"
	"github.com/skerry-sandbox/skerry/internal/audit/segment"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
	"github.com/skerry-sandbox/skerry/internal/store/redistest"
)

func openStore(t testing.TB, url string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), store.Options{URL: url})
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// onBoth runs a test on the embedded state and on a real Redis.
func onBoth(t *testing.T, test func(t *testing.T, s *store.Store)) {
	t.Run("embedded", func(t *testing.T) { test(t, openStore(t, "")) })
	t.Run("redis", func(t *testing.T) { test(t, openStore(t, redistest.Start(t).URL())) })
}

// onAll does the same on a cluster too.
func onAll(t *testing.T, test func(t *testing.T, s *store.Store)) {
	onBoth(t, test)
	t.Run("cluster", func(t *testing.T) { test(t, openStore(t, redistest.StartCluster(t).URL())) })
}

func flush(t testing.TB, l *Log) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	must(t, l.Flush(ctx))
	if l.Lag() != 0 {
		t.Errorf("lag %d after Flush", l.Lag())
	}
}

// wantStream checks that a tenant's stream has these subjects, each once, in order.
func wantStream(t *testing.T, rdb redis.UniversalClient, tenant string, want []string) {
	t.Helper()
	entries, err := rdb.XRange(t.Context(), store.AuditStreamKey(tenant), "-", "+").Result()
	must(t, err)
	var got []string
	for _, e := range entries {
		text, _ := e.Values["r"].(string)
		r, intact := record.Decode([]byte(text))
		if !intact {
			t.Errorf("the copy is not the line of the log: %s", text)
		}
		got = append(got, r.Subject)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("the stream of %q has %d records, want %d\ngot  %.300v\nwant %.300v", tenant, len(got), len(want), got, want)
	}
}

func subjects(from, to int) (out []string) {
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprint("s", i))
	}
	return out
}

func write(t testing.TB, l *Log, tenant string, list []string) {
	t.Helper()
	for _, s := range list {
		if _, err := l.Append(t.Context(), Record{Tenant: tenant, User: "ann", Phase: PhaseResult, Action: ActionExec, Subject: s}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestShip(t *testing.T) {
	t.Parallel()
	onAll(t, func(t *testing.T, s *store.Store) {
		dir := t.TempDir()
		l := openLog(t, Options{Dir: dir, Redis: s.Redis(), SegmentBytes: 64 << 10})
		flush(t, l)
		write(t, l, "acme", subjects(0, 700))
		write(t, l, "other", subjects(0, 5))
		write(t, l, "", subjects(0, 3))
		flush(t, l)
		// Without Flush too, and without a commit by anybody else.
		write(t, l, "acme", subjects(700, 710))
		for deadline := time.Now().Add(5 * time.Second); l.Lag() > 0 && time.Now().Before(deadline); {
			time.Sleep(5 * time.Millisecond)
		}
		must(t, l.Close())
		// The next process goes on where Redis says.
		l = openLog(t, Options{Dir: dir, Redis: s.Redis(), SegmentBytes: 64 << 10})
		write(t, l, "acme", subjects(710, 720))
		flush(t, l)
		wantStream(t, s.Redis(), "acme", subjects(0, 720))
		wantStream(t, s.Redis(), "other", subjects(0, 5))
		wantStream(t, s.Redis(), "", subjects(0, 3))
	})
}

// TestShipLostCursor: the last word of where the writer is was lost; the streams know themselves.
func TestShipLostCursor(t *testing.T) {
	t.Parallel()
	onAll(t, func(t *testing.T, s *store.Store) {
		dir := t.TempDir()
		l := openLog(t, Options{Dir: dir, Redis: s.Redis()})
		write(t, l, "acme", subjects(0, 30))
		flush(t, l)
		must(t, l.Close())
		must(t, s.Redis().Del(t.Context(), store.AuditWriterKey(l.Writer())).Err())
		l = openLog(t, Options{Dir: dir, Redis: s.Redis()})
		flush(t, l)
		wantStream(t, s.Redis(), "acme", subjects(0, 30))
		// One tenant's stream is lost under a running log.
		must(t, s.Redis().Del(t.Context(), store.AuditStreamKey("acme"), store.AuditCursorKey("acme")).Err())
		write(t, l, "acme", subjects(30, 40))
		flush(t, l)
		wantStream(t, s.Redis(), "acme", subjects(0, 40))
	})
}

// TestShipRedisAway kills Redis while records come, and starts it again: each is there once.
func TestShipRedisAway(t *testing.T) {
	t.Parallel()
	for _, wiped := range []bool{false, true} {
		t.Run(fmt.Sprint("wiped ", wiped), func(t *testing.T) {
			r := redistest.Start(t)
			s := openStore(t, r.URL())
			l := openLog(t, Options{Dir: t.TempDir(), Redis: s.Redis(), SegmentBytes: 32 << 10})
			n := 0
			more := func(count int) {
				write(t, l, "acme", subjects(n, n+count))
				n += count
			}
			for range 3 {
				var wg sync.WaitGroup
				wg.Go(func() {
					for range 60 {
						more(5)
						time.Sleep(time.Millisecond)
					}
				})
				time.Sleep(30 * time.Millisecond)
				r.Kill() // in the middle of it
				wg.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				wantKind(t, l.Flush(ctx), sandbox.Unavailable)
				cancel()
				_, _, err := l.List(t.Context(), Filter{Tenant: "acme"})
				wantKind(t, err, sandbox.Unavailable)
				if wiped {
					r.Wipe()
				}
				r.Restart()
				flush(t, l)
			}
			wantStream(t, s.Redis(), "acme", subjects(0, n))
		})
	}
}

// TestShipRestoredFolder: the folder is an older copy, so numbers are given a second time.
func TestShipRestoredFolder(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *store.Store) {
		dir := t.TempDir()
		l := openLog(t, Options{Dir: dir, Redis: s.Redis()})
		write(t, l, "acme", subjects(0, 10))
		flush(t, l)
		must(t, l.Close())
		path := filepath.Join(dir, l.Writer(), segment.Name(1))
		text, err := os.ReadFile(path)
		must(t, err)
		keep := bytes.Join(bytes.SplitAfter(text, []byte("\n"))[:4], nil)
		must(t, os.WriteFile(path, keep, 0o600))
		var report bytes.Buffer
		l = openLog(t, Options{Dir: dir, Redis: s.Redis(), Log: slog.New(slog.NewTextHandler(&report, nil))})
		write(t, l, "acme", subjects(100, 110))
		flush(t, l)
		must(t, l.Close())
		if !strings.Contains(report.String(), "cut or an old copy restored") {
			t.Errorf("nothing is reported: %s", report.String())
		}
		wantStream(t, s.Redis(), "acme", append(subjects(0, 10), subjects(100, 110)...))
	})
}

// TestShipDamagedLog: a hole in the log on disk does not hide what follows.
func TestShipDamagedLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := openLog(t, Options{Dir: dir})
	write(t, l, "acme", subjects(0, 10))
	must(t, l.Close())
	path := filepath.Join(dir, l.Writer(), segment.Name(1))
	text, err := os.ReadFile(path)
	must(t, err)
	lines := bytes.SplitAfter(text, []byte("\n"))
	lines[3] = []byte("x\n")
	must(t, os.WriteFile(path, bytes.Join(slices.Delete(lines, 6, 8), nil), 0o600))
	s := openStore(t, "")
	l = openLog(t, Options{Dir: dir, Redis: s.Redis()})
	write(t, l, "acme", subjects(10, 12))
	flush(t, l)
	wantStream(t, s.Redis(), "acme", slices.Concat(subjects(0, 3), subjects(4, 6), subjects(8, 12)))
}

// listAll reads all pages: a page may be short where Redis is slow.
func listAll(t *testing.T, l *Log, f Filter) (all []Record) {
	t.Helper()
	for {
		items, next, err := l.List(t.Context(), f)
		must(t, err)
		if all, f.Cursor = append(all, items...), next; next == "" {
			return all
		}
	}
}

func TestTwoWriters(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *store.Store) {
		a := openLog(t, Options{Dir: t.TempDir(), Redis: s.Redis()})
		b := openLog(t, Options{Dir: t.TempDir(), Redis: s.Redis()})
		var wg sync.WaitGroup
		for _, l := range []*Log{a, b} {
			wg.Go(func() { write(t, l, "acme", subjects(0, 300)) })
		}
		wg.Wait()
		flush(t, a)
		flush(t, b)
		items := listAll(t, a, Filter{Tenant: "acme", Limit: 1000})
		by := map[string]uint64{}
		for _, r := range slices.Backward(items) {
			if by[r.Writer]++; r.Seq != by[r.Writer] {
				t.Fatalf("record %d of %s comes as its %dth", r.Seq, r.Writer, by[r.Writer])
			}
		}
		if len(items) != 600 || len(by) != 2 {
			t.Errorf("%d records of %d writers", len(items), len(by))
		}
	})
}

func BenchmarkShip(b *testing.B) {
	for _, kind := range []string{"embedded", "redis"} {
		b.Run(kind, func(b *testing.B) {
			url := ""
			if kind == "redis" {
				url = redistest.Start(b).URL()
			}
			s := openStore(b, url)
			l := openLog(b, Options{Dir: b.TempDir(), Redis: s.Redis()})
			begin := time.Now()
			rec := benchRecord()
			for range b.N {
				if _, err := l.Append(b.Context(), rec); err != nil {
					b.Fatal(err)
				}
			}
			if err := l.Flush(b.Context()); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/time.Since(begin).Seconds(), "records/s")
		})
	}
}
