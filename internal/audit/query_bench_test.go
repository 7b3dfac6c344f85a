package audit

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/skerry-sandbox/skerry/internal/audit/record"
	"github.com/skerry-sandbox/skerry/internal/audit/segment"
	"github.com/skerry-sandbox/skerry/internal/store/redistest"
)

// history is a log of ten days as an agent backend makes it: execs of two records with three tool calls of two each, by 500
// users with 20,000 threads. A few do most.
type history struct {
	rng   *rand.Rand
	n     int
	of    string // tenant
	at    time.Time
	step  time.Duration
	queue []Record
}

var historyTools = []string{"filesystem__read_file", "filesystem__write_file", "github__search_issues", "github__get_issue", "slack__post_message", "jira__list", "crm__find", "mail__send"}

func newHistory(n int) *history {
	return &history{rng: rand.New(rand.NewPCG(1, 2)), n: n, of: "acme", at: time.Now().Add(-240 * time.Hour).UTC(), step: 239 * time.Hour / time.Duration(n)}
}

// uuid7 is an id of that time.
func (h *history) uuid7() string {
	var id uuid.UUID
	ms := h.at.UnixMilli()
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	for i := 6; i < 16; i++ {
		id[i] = byte(h.rng.Uint32())
	}
	id[6], id[8] = id[6]&0x0F|0x70, id[8]&0x3F|0x80
	return id.String()
}

func (h *history) next() Record {
	if len(h.queue) == 0 {
		user := int(500 * h.rng.Float64() * h.rng.Float64() * h.rng.Float64())
		base := Record{
			Tenant: h.of, User: fmt.Sprintf("user-%03d", user), Thread: fmt.Sprintf("thread-%03d-%02d", user, h.rng.IntN(40)), Exec: h.uuid7(),
			Sandbox: h.uuid7(), KeyID: "key-1", RequestID: h.uuid7(), Source: "10.1.2.3", UserAgent: "langgraph/1.2",
		}
		add := func(action, subject, args string) {
			r := base
			r.Action, r.Subject, r.Phase = action, subject, PhaseAttempt
			r.Args, r.ArgsHash = json.RawMessage(args), strings.Repeat("a1b2", 16)
			h.queue = append(h.queue, r)
			r.Phase, r.Args, r.Outcome, r.Millis, r.BytesOut, r.OutHash = PhaseResult, nil, "ok", 12, 345, strings.Repeat("c3d4", 16)
			switch n := h.rng.IntN(10_000); {
			case n == 0:
				r.Outcome, r.Detail = "denied", "a rule forbids it"
			case n < 300:
				r.Outcome, r.Detail = "error", "no such file"
			}
			h.queue = append(h.queue, r)
		}
		add(ActionCode, "python", `{"code_bytes":812,"language":"python","timeout":30}`)
		for range 3 {
			tool := historyTools[int(float64(len(historyTools))*h.rng.Float64()*h.rng.Float64())]
			add(ActionToolCall, tool, fmt.Sprintf(`{"path":"/mnt/user-data/report-%d.md","limit":100}`, h.rng.IntN(100_000)))
		}
	}
	r := h.queue[0]
	h.queue = h.queue[1:]
	h.at = h.at.Add(h.step)
	r.ID, r.Time = h.uuid7(), h.at
	return r
}

// write makes the segments of a writer's log.
func (h *history) write(tb testing.TB, dir string) {
	const writer = "whistory"
	must(tb, os.MkdirAll(filepath.Join(dir, writer), 0o700))
	must(tb, os.WriteFile(filepath.Join(dir, "writer"), []byte(writer+"\n"), 0o600))
	var f *os.File
	var w *bufio.Writer
	prev, size := "", 0
	for seq := 1; seq <= h.n; seq++ {
		r := h.next()
		r.Writer, r.Seq, r.Prev = writer, uint64(seq), prev
		line, err := record.Encode(&r)
		must(tb, err)
		if f == nil || size+len(line) > DefaultSegmentBytes {
			if f != nil {
				must(tb, w.Flush())
				must(tb, f.Close())
			}
			f, err = os.Create(filepath.Join(dir, writer, segment.Name(uint64(seq))))
			must(tb, err)
			w, size = bufio.NewWriterSize(f, 1<<20), 0
		}
		_, err = w.Write(line)
		must(tb, err)
		prev, size = r.Hash, size+len(line)
	}
	must(tb, w.Flush())
	must(tb, f.Close())
}

// records is how many a benchmark has.
func records() int {
	n, err := strconv.Atoi(os.Getenv("SKERRY_BENCH_RECORDS"))
	if err != nil {
		return 1_000_000
	}
	return n
}

// BenchmarkHistory writes the log of the default tenant into SKERRY_BENCH_DIR: console/test/many.sh starts a server with it.
func BenchmarkHistory(b *testing.B) {
	dir := cmp.Or(os.Getenv("SKERRY_BENCH_DIR"), b.TempDir())
	for b.Loop() {
		h := newHistory(records())
		h.of = "default"
		h.write(b, dir)
	}
}

// BenchmarkQuery asks a million records (SKERRY_BENCH_RECORDS) on a real Redis and in files.
func BenchmarkQuery(b *testing.B) {
	n := records()
	dir := b.TempDir()
	h := newHistory(n)
	h.write(b, dir)
	for _, kind := range []string{"files", "redis"} {
		b.Run(kind, func(b *testing.B) {
			var rdb redis.UniversalClient
			if kind == "redis" {
				rdb = openStore(b, redistest.Start(b).URL()).Redis()
				must(b, rdb.ConfigSet(b.Context(), "appendonly", "no").Err())
			}
			l, err := Open(Options{Dir: dir, Redis: rdb, Keep: Keep{Records: int64(n)}})
			must(b, err)
			defer l.Close()
			begin := time.Now()
			ctx, cancel := context.WithTimeout(b.Context(), 20*time.Minute)
			defer cancel()
			for l.Flush(ctx) != nil && ctx.Err() == nil {
				time.Sleep(100 * time.Millisecond)
			}
			must(b, ctx.Err())
			fmt.Printf("%s: %d records can be queried after %s\n", kind, n, time.Since(begin).Round(time.Millisecond))
			if rdb != nil {
				info, err := rdb.InfoMap(b.Context(), "memory").Result()
				must(b, err)
				fmt.Printf("Redis: %s bytes of memory, %s keys\n", info["Memory"]["used_memory"], fmt.Sprint(rdb.DBSize(b.Context()).Val()))
			}
			benchQueries(b, l, h)
			benchSummaries(b, l, h)
		})
	}
}

func benchQueries(b *testing.B, l *Log, h *history) {
	any, _, err := l.List(b.Context(), Filter{Tenant: "acme", Action: ActionToolCall, Outcome: "ok", Until: h.at.Add(-100 * time.Hour), Limit: 1})
	must(b, err)
	if len(any) == 0 {
		b.Fatal("nothing there")
	}
	r, middle := any[0], h.at.Add(-120*time.Hour)
	for _, c := range []struct {
		name string
		f    Filter
	}{
		{"none", Filter{}},
		{"thread", Filter{Thread: r.Thread}},
		{"user", Filter{User: r.User}},
		{"busiest user", Filter{User: "user-000"}},
		{"exec", Filter{Exec: r.Exec}},
		{"action", Filter{Action: ActionToolCall}},
		{"action that is not there", Filter{Action: ActionKeyCreate}},
		{"tool", Filter{Tool: "mail__send"}},
		{"outcome", Filter{Outcome: "error"}},
		{"rare outcome", Filter{Outcome: "denied"}},
		{"until", Filter{Until: middle}},
		{"since and until", Filter{Since: middle.Add(-time.Minute), Until: middle}},
		{"user and outcome", Filter{User: "user-001", Outcome: "error"}},
		{"user and rare outcome", Filter{User: "user-001", Outcome: "denied"}},
		{"action and outcome, none", Filter{Action: ActionCode, Outcome: "timeout"}},
		{"user, action, outcome, time", Filter{User: "user-000", Action: ActionCode, Outcome: "error", Until: middle}},
		{"user and tool", Filter{User: "user-000", Tool: historyTools[0], Outcome: "denied"}},
		{"text", Filter{Text: "REPORT-777"}},
		{"text that is not there", Filter{Text: "nowhere to be found"}},
		{"thread and text", Filter{Thread: r.Thread, Text: "report"}},
	} {
		c.f.Tenant = "acme"
		for _, depth := range []int{0, 40} {
			if depth > 0 {
				for range depth {
					f := c.f
					f.Limit = MaxListed
					_, next, err := l.List(b.Context(), f)
					must(b, err)
					if next == "" {
						break
					}
					c.f.Cursor = next
				}
				if c.f.Cursor == "" {
					continue // one page has all
				}
			}
			b.Run(fmt.Sprintf("%s/page %d", c.name, depth), func(b *testing.B) {
				var times []time.Duration
				found, partial := 0, 0.0
				for b.Loop() {
					begin := time.Now()
					items, next, err := l.List(b.Context(), c.f)
					times = append(times, time.Since(begin))
					must(b, err)
					if found = len(items); next != "" && found < DefaultListed {
						partial = 1
					}
				}
				slices.Sort(times)
				b.ReportMetric(float64(times[len(times)*99/100].Microseconds())/1000, "p99-ms")
				b.ReportMetric(float64(found), "found")
				b.ReportMetric(partial, "partial")
			})
		}
	}
}

// benchSummaries counts. Each answer is to be there within about half a second, and to say when it is not of all records.
func benchSummaries(b *testing.B, l *Log, h *history) {
	for _, c := range []struct {
		name string
		f    Filter
	}{
		{"all", Filter{}},
		{"a day", Filter{Since: h.at.Add(-24 * time.Hour)}},
		{"busiest user", Filter{User: "user-000"}},
		{"tool", Filter{Tool: "mail__send"}},
		{"rare outcome", Filter{Outcome: "denied"}},
		{"user and rare outcome", Filter{User: "user-001", Outcome: "denied"}},
		{"text", Filter{Text: "REPORT-777"}},
	} {
		c.f.Tenant = "acme"
		b.Run("summary/"+c.name, func(b *testing.B) {
			var times []time.Duration
			counted, partial := int64(0), 0.0
			for b.Loop() {
				begin := time.Now()
				s, err := l.Summarize(b.Context(), c.f, 0)
				times = append(times, time.Since(begin))
				must(b, err)
				if counted = s.Count; s.Partial {
					partial = 1
				}
			}
			slices.Sort(times)
			b.ReportMetric(float64(times[len(times)*99/100].Microseconds())/1000, "p99-ms")
			b.ReportMetric(float64(counted), "counted")
			b.ReportMetric(partial, "partial")
		})
	}
}
