package e2b

import (
	"context"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// metricStep is how far apart the metrics of E2B lie: one of ours stands for so long.
const metricStep = 5 * time.Second

// measured is what a sandbox had computed at a time.
type measured struct {
	at  time.Time
	cpu time.Duration
}

// metric is SandboxMetric of E2B's API.
type metric struct {
	Time      time.Time `json:"timestamp"`
	Unix      int64     `json:"timestampUnix"`
	CPU       int       `json:"cpuCount"`
	CPUUsed   float64   `json:"cpuUsedPct"`
	MemUsed   int64     `json:"memUsed"`
	MemTotal  int64     `json:"memTotal"`
	MemCache  int64     `json:"memCache"`
	DiskUsed  int64     `json:"diskUsed"`
	DiskTotal int64     `json:"diskTotal"`
}

// metrics says what a sandbox uses now, and nothing of what it used before: nobody has looked then.
func (a control) metrics(w http.ResponseWriter, r *http.Request, q request) error {
	now := time.Now()
	wanted, err := metricsAt(r.URL.Query(), now)
	if err != nil {
		return err
	}
	v, err := a.found(r.Context(), q)
	if err != nil {
		return err
	}
	out := []metric{}
	if wanted && state(v) == stateRunning {
		m, err := a.measure(r.Context(), q, v, now)
		if err != nil {
			return err
		}
		out = append(out, m)
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// metricsAt reports whether the times that are asked for have this one.
func metricsAt(v url.Values, now time.Time) (bool, error) {
	limit := func(name string, otherwise int64) (int64, error) {
		if !v.Has(name) {
			return otherwise, nil
		}
		n, err := strconv.ParseInt(v.Get(name), 10, 64)
		if err != nil || n < 0 {
			return 0, sandbox.Errorf(sandbox.Invalid, "%s: want seconds since 1970", name)
		}
		return n, nil
	}
	from, err := limit("start", 0)
	if err != nil {
		return false, err
	}
	to, err := limit("end", math.MaxInt64)
	if err == nil && to < from {
		err = sandbox.Errorf(sandbox.Invalid, "end: want one after start")
	}
	at := now.Truncate(metricStep).Unix()
	return at+int64(metricStep/time.Second) > from && at <= to, err
}

func (a control) measure(ctx context.Context, q request, v sandbox.ThreadView, now time.Time) (metric, error) {
	load, err := a.o.Sandboxes.SandboxLoad(ctx, q.caller, q.thread)
	if err != nil {
		return metric{}, err
	}
	s := a.describe(v)
	at := now.Truncate(metricStep).UTC()
	m := metric{
		Time: at, Unix: at.Unix(), CPU: s.CPU, CPUUsed: a.known.computed(q, v, measured{now, load.CPU}) / float64(s.CPU),
		MemUsed: load.Memory, MemTotal: s.MemoryMB << 20, DiskTotal: s.DiskMB << 20,
	}
	err = a.o.Files.ReadFiles(ctx, q.caller, q.thread, func(files *paths.FS) error {
		used, err := files.Usage(ctx)
		m.DiskUsed = used.Bytes
		return err
	})
	return m, err
}

// computed is how much of one processor a sandbox used since it was measured before, or since it was made, in percent. E2B
// means all that the sandbox has.
func (k *knownSandboxes) computed(q request, v sandbox.ThreadView, now measured) float64 {
	before := measured{at: v.Sandbox.CreatedAt}
	k.mu.Lock()
	defer k.mu.Unlock()
	if s := k.by[threadOf(q)]; s != nil {
		if s.load.at.After(before.at) && s.load.cpu <= now.cpu {
			before = s.load
		}
		if now.at.Sub(s.load.at) >= time.Second { // two that ask at once share a look
			s.load = now
		}
	}
	passed := now.at.Sub(before.at)
	if passed <= 0 {
		return 0
	}
	return math.Round(10000*float64(now.cpu-before.cpu)/float64(passed)) / 100
}
