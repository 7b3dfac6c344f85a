package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/skerry-sandbox/skerry/internal/store"
	"github.com/skerry-sandbox/skerry/internal/store/redistest"
)

// redisAway is how long Redis is away in TestRedisAway. `make redis-away` makes it ten minutes, and -short a third.
var redisAway = flag.Duration("redis-away", 20*time.Second, "how long Redis is away in TestRedisAway")

// awayGrowth bounds the extra memory of the server while Redis is away and while the server catches up. It
// does not depend on how long Redis is away, because records wait on the disk. Most of it is garbage, and
// what the server remembers of ended execs.
const awayGrowth = 128 << 20

// TestRedisAway: Redis is away while execs run, because it hangs, was killed, or was killed and lost its
// data. Execs of threads that have a sandbox go on, and the server's memory stays within a bound. When Redis
// is back, it has every record once, in the order of the log on disk.
func TestRedisAway(t *testing.T) {
	type away struct {
		name       string
		begin, end func(r *redistest.Server)
	}
	for _, c := range first(
		away{"empty", func(r *redistest.Server) { r.Kill(); r.Wipe() }, (*redistest.Server).Restart},
		away{"hangs", (*redistest.Server).Stop, (*redistest.Server).Continue},
		away{"killed", (*redistest.Server).Kill, (*redistest.Server).Restart},
	) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			awayUnderLoad(t, c.begin, c.end)
		})
	}
}

func awayUnderLoad(t *testing.T, away, back func(*redistest.Server)) {
	outage := *redisAway
	if testing.Short() {
		outage /= 3
	}
	r := redistest.Start(t)
	s := start(t, options{args: []string{"--redis", r.URL()}, env: []string{"SKERRY_AUDIT_REDIS_RECORDS=10000000"}})
	load := s.load("one", "two", "three")
	phase := func(what string, d time.Duration) int64 {
		from, most := load.count(), int64(0)
		for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			most = max(most, s.rss())
		}
		t.Logf("%s: %d execs, at most %d MiB", what, load.count()-from, most>>20)
		return most
	}
	before := phase("before", 5*time.Second)
	away(r)
	slowest := load.slowest.Swap(0)
	from, began := load.counts(), time.Now()
	// A thread without a sandbox needs Redis, and is told so.
	refused, err := s.request("POST", "/api/threads/new/exec", map[string]any{"command": "true"})
	must(t, err)
	if refused.status != http.StatusServiceUnavailable || refused.code() != "unavailable" {
		t.Errorf("a new thread without Redis: %d %s", refused.status, refused.body)
	}
	t.Logf("a new thread is refused after %s", time.Since(began).Round(time.Millisecond))
	var most int64
	for i := range 4 { // to see whether it grows
		most = max(most, phase(fmt.Sprintf("away, quarter %d", i+1), (outage-time.Since(began))/time.Duration(4-i)))
	}
	for i, n := range load.counts() {
		if n == from[i] {
			t.Errorf("no exec of the thread %s went on", load.threads[i])
		}
	}
	t.Logf("the slowest exec took %s with Redis, %s without", time.Duration(slowest).Round(time.Millisecond), time.Duration(load.slowest.Load()).Round(time.Millisecond))
	var onDisk auditLine // the last one when Redis comes back
	bytes := 0
	for line := range s.segmentLines(t) {
		onDisk, bytes = line, bytes+len(line.text)
	}
	rdb := r.Client()
	still, cancel := context.WithTimeout(t.Context(), time.Second)
	if rdb.Ping(still).Err() == nil {
		t.Error("Redis was not away to the end")
	}
	cancel()
	back(r)
	began = time.Now()
	for wait := began.Add(time.Minute + outage); ; time.Sleep(50 * time.Millisecond) {
		most = max(most, s.rss())
		at, err := rdb.Get(t.Context(), store.AuditWriterKey(onDisk.Writer)).Uint64()
		if err == nil && at >= onDisk.Seq {
			break
		}
		if time.Now().After(wait) {
			t.Fatalf("Redis has %d of %d records %s after it is back: %v", at, onDisk.Seq, time.Since(began), err)
		}
	}
	caughtUp := time.Since(began)
	most = max(most, phase("back", 3*time.Second))
	t.Logf("Redis had all %d records (%d MiB) of the outage's end %s after it was back, execs going on; the server used at most %d MiB, %d MiB before",
		onDisk.Seq, bytes>>20, caughtUp.Round(100*time.Millisecond), most>>20, before>>20)
	if most > before+awayGrowth {
		t.Errorf("the server used %d MiB, before %d MiB: more than %d MiB beyond it", most>>20, before>>20, awayGrowth>>20)
	}
	acknowledged := load.end()
	eventually(t, "what the last execs left is in Redis", func() bool {
		var last auditLine
		for line := range s.segmentLines(t) {
			last = line
		}
		at, err := rdb.Get(t.Context(), store.AuditWriterKey(last.Writer)).Uint64()
		return err == nil && at >= last.Seq
	})
	s.sameInRedis(t, rdb, acknowledged)
	s.ok("new", "true")
}

// load is execs that run one after the other in each of some threads.
type load struct {
	t       *testing.T
	threads []string
	done    []atomic.Int64
	slowest atomic.Int64
	stop    func()
	wg      sync.WaitGroup
	acked   [][]string
}

func (s *server) load(threads ...string) *load {
	l := &load{t: s.t, threads: threads, done: make([]atomic.Int64, len(threads)), acked: make([][]string, len(threads))}
	for _, thread := range threads {
		s.ok(thread, "true")
	}
	ended := make(chan struct{})
	l.stop = sync.OnceFunc(func() { close(ended); l.wg.Wait() })
	s.t.Cleanup(l.stop)
	for i, thread := range threads {
		l.wg.Go(func() {
			for {
				select {
				case <-ended:
					return
				case <-time.After(5 * time.Millisecond):
				}
				began := time.Now()
				a, err := s.request("POST", "/api/threads/"+thread+"/exec", map[string]any{"command": "true"})
				var r result
				if err != nil || a.status != http.StatusOK || json.Unmarshal(a.body, &r) != nil {
					s.t.Errorf("an exec of %s: %v, %d %s", thread, err, a.status, a.body)
					return
				}
				took := int64(time.Since(began))
				for was := l.slowest.Load(); took > was && !l.slowest.CompareAndSwap(was, took); was = l.slowest.Load() {
				}
				l.acked[i] = append(l.acked[i], r.ExecID)
				l.done[i].Add(1)
			}
		})
	}
	return l
}

func (l *load) counts() []int64 {
	n := make([]int64, len(l.done))
	for i := range l.done {
		n[i] = l.done[i].Load()
	}
	return n
}

func (l *load) count() (n int64) {
	for _, c := range l.counts() {
		n += c
	}
	return n
}

// end stops the load and returns the execs that were answered, of each thread in their order.
func (l *load) end() map[string][]string {
	l.stop()
	m := map[string][]string{}
	for i, thread := range l.threads {
		m[thread] = l.acked[i]
	}
	return m
}

// rss is the memory of the server's process.
func (s *server) rss() int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", s.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	pages, _ := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

// auditLine is a record of the log on disk.
type auditLine struct {
	Writer, Tenant, Thread, Action, Phase, Exec string
	Seq                                         uint64
	text                                        string
}

// segmentLines are the records of the log on disk, in their order. There is one writer.
func (s *server) segmentLines(t *testing.T) iter.Seq[auditLine] {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(s.data, "audit", "*", "*.jsonl"))
	must(t, err)
	if len(files) == 0 {
		t.Fatal("no segment of the audit log")
	}
	slices.Sort(files)
	return func(yield func(auditLine) bool) {
		for _, file := range files {
			f, err := os.Open(file)
			must(t, err)
			defer f.Close()
			lines := bufio.NewScanner(f)
			lines.Buffer(nil, 1<<20)
			for lines.Scan() {
				l := auditLine{text: lines.Text()}
				if json.Unmarshal(lines.Bytes(), &l) != nil {
					return // the last line is being written
				}
				if !yield(l) {
					return
				}
			}
		}
	}
}

// sameInRedis checks that the tenant's stream has all its records of the log on disk, in their order and
// each once. All execs that were answered must be among them, in the order of each thread.
func (s *server) sameInRedis(t *testing.T, rdb *redis.Client, acknowledged map[string][]string) {
	t.Helper()
	onDisk, stop := iter.Pull(s.segmentLines(t))
	defer stop()
	n, seen := 0, map[string]map[string][]string{"attempt": {}, "result": {}}
	for after := "-"; ; {
		items, err := rdb.XRangeN(t.Context(), store.AuditStreamKey("default"), after, "+", 1000).Result()
		must(t, err)
		if len(items) == 0 {
			break
		}
		for _, it := range items {
			line, ok := onDisk()
			for ok && line.Tenant != "default" {
				line, ok = onDisk()
			}
			if got := it.Values["r"]; !ok || got != line.text {
				t.Fatalf("record %d of the stream is %v, on disk it is %s", n+1, got, line.text)
			}
			n++
			if line.Action == "exec" && seen[line.Phase] != nil {
				seen[line.Phase][line.Thread] = append(seen[line.Phase][line.Thread], line.Exec)
			}
		}
		after = "(" + items[len(items)-1].ID
	}
	execs := 0
	for thread, ids := range acknowledged {
		for phase, in := range seen {
			if got := in[thread][1:]; !slices.Equal(got, ids) { // the first one made the sandbox
				t.Errorf("the thread %s has %d execs that were answered, and %d records of the phase %s, or in another order", thread, len(ids), len(got), phase)
			}
		}
		execs += len(ids)
	}
	t.Logf("all %d records of the tenant are in Redis, once and in order, with the attempt and the result of %d answered execs", n, execs)
}
