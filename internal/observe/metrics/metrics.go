// Package metrics is the numbers of a server for Prometheus: how long sandboxes take to start, how
// execs end, how full the server is. docs/metrics.md lists their names; those and their labels are part of
// what a server promises. No label holds a tenant, a user, a thread or anything else that a caller chose.
package metrics

import (
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Metrics counts and times. Make it with New; its methods may be called concurrently.
type Metrics struct {
	registry *prometheus.Registry
	starts   *prometheus.HistogramVec
	failures *prometheus.CounterVec
	execs    *prometheus.HistogramVec
	nonzero  *prometheus.CounterVec
	changes  *prometheus.CounterVec
	refused  *prometheus.CounterVec
	tools    *prometheus.HistogramVec
	answered *prometheus.CounterVec
	returned *prometheus.CounterVec
	prompts  *prometheus.CounterVec
	limited  *prometheus.CounterVec
	requests *prometheus.HistogramVec
	kept     *prometheus.HistogramVec
	sent     prometheus.Counter
	restored *prometheus.HistogramVec
	levels   levels
}

// Buckets, in seconds. A start takes 1 ms from a pool, 30 ms with runc and seconds on a machine under
// load; an exec takes 2 ms or an hour.
var (
	startBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	execBuckets  = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600}
	// There are many routes: few buckets.
	requestBuckets = []float64{.001, .005, .025, .1, .5, 2.5, 10, 60}
	// A snapshot of one file takes some requests to a bucket, one of gigabytes minutes.
	snapshotBuckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	toolBuckets     = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
)

// New makes metrics with a registry of their own, which also has those of the Go runtime and the process.
func New(version string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		starts: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "skerry_sandbox_start_seconds", Buckets: startBuckets,
			Help: "Time that sandboxes took to start, by phase: queue (waiting for a place, or for the sandbox before to be gone), create (the container), ready (until sandboxd answers), first_exec (from the request for the sandbox until its first exec runs).",
		}, []string{"phase", "start", "driver", "runtime", "template"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skerry_sandbox_start_failures_total", Help: "Sandboxes that did not start, by the code of the error.",
		}, []string{"code", "driver", "runtime", "template"}),
		execs: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "skerry_exec_duration_seconds", Buckets: execBuckets,
			Help: "Time from the start of an exec to its durable end, by what it was (exec, execute_code, skill_run) and how it ended.",
		}, []string{"action", "status"}),
		nonzero: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skerry_exec_nonzero_total", Help: "Execs that exited with another code than 0, by what they were: a program of an agent that failed is one.",
		}, []string{"action"}),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skerry_sandbox_changes_total", Help: "Changes in the life of sandboxes after their start, by the action of their audit record and its reason.",
		}, []string{"change", "reason"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skerry_queue_refused_total", Help: "Requests for a sandbox that got no place: their queue was full, they waited for too long, or the client was gone.",
		}, []string{"reason"}),
		tools: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "skerry_tool_call_duration_seconds", Buckets: toolBuckets,
			Help: "Time of tool calls, by where they came from (bridge: code in a sandbox; api: an agent) and their outcome.",
		}, []string{"via", "outcome"}),
		answered: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skerry_tool_result_bytes_total", Help: "Bytes of what tools answered, by where the calls came from (bridge: code in a sandbox; api: an agent).",
		}, []string{"via"}),
		returned: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skerry_tool_returned_bytes_total", Help: "Bytes of what callers got of the answers of tools: the output of execs that called tools (bridge), or the answers to direct calls (api).",
		}, []string{"via"}),
		prompts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skerry_prompts_total", Help: "Prompts that were made for agents, by the mode in which these get their tools.",
		}, []string{"mode"}),
		limited: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skerry_limit_refused_total", Help: "Calls that met a limit of their tenant, user or key, by the limit and whose it was.",
		}, []string{"limit", "scope"}),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "skerry_http_request_duration_seconds", Buckets: requestBuckets,
			Help: "Time of requests with a credential, streams and waiting included, by the route as the API has it, its method and the class of the status (2xx, 4xx …).",
		}, []string{"route", "method", "status"}),
		kept: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "skerry_snapshot_seconds", Buckets: snapshotBuckets,
			Help: "Time that snapshots of threads' files took, when something had changed, by their outcome.",
		}, []string{"outcome"}),
		sent: prometheus.NewCounter(prometheus.CounterOpts{Name: "skerry_snapshot_sent_bytes_total", Help: "Bytes of files that were sent for snapshots, compressed."}),
		restored: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "skerry_restore_seconds", Buckets: snapshotBuckets,
			Help: "Time that it took to restore threads from their snapshots, by the outcome.",
		}, []string{"outcome"}),
	}
	m.registry.MustRegister(m.starts, m.failures, m.execs, m.nonzero, m.changes, m.refused, m.tools, m.answered, m.returned, m.prompts, m.limited, m.requests, m.kept, m.sent, m.restored, &m.levels,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "skerry_build_info", Help: "1, with the version of the server."}, []string{"version"})
	info.WithLabelValues(version).Set(1)
	m.registry.MustRegister(info)
	return m
}

// Handler answers a scrape.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry, MaxRequestsInFlight: 4, Timeout: 10 * time.Second})
}

// Start says which kind of sandbox started.
type Start struct {
	Driver, Runtime, Template string
	Warm                      bool // it was there before it was asked for
}

// StartOf returns what of a sandbox its start is counted by.
func StartOf(i sandbox.Info) Start {
	return Start{Driver: i.Driver, Runtime: i.Runtime, Template: i.Template, Warm: i.Warm}
}

func (s Start) observer(v *prometheus.HistogramVec, phase string) prometheus.Observer {
	start := "cold"
	if s.Warm {
		start = "warm"
	}
	return v.WithLabelValues(phase, start, s.Driver, s.Runtime, s.Template)
}

// Started times the phases of a start that went well.
func (m *Metrics) Started(s Start, queue, create, ready time.Duration) {
	s.observer(m.starts, "queue").Observe(queue.Seconds())
	s.observer(m.starts, "create").Observe(create.Seconds())
	s.observer(m.starts, "ready").Observe(ready.Seconds())
}

// FirstExec times a sandbox from the request for it until its first exec runs.
func (m *Metrics) FirstExec(s Start, d time.Duration) {
	s.observer(m.starts, "first_exec").Observe(d.Seconds())
}

// StartFailed counts a start that failed.
func (m *Metrics) StartFailed(s Start, code sandbox.Kind) {
	m.failures.WithLabelValues(string(code), s.Driver, s.Runtime, s.Template).Inc()
}

// Exec times an exec that ended. exit is its exit code; nil: it has none.
func (m *Metrics) Exec(action string, status sandbox.Status, exit *int, d time.Duration) {
	m.execs.WithLabelValues(action, string(status)).Observe(d.Seconds())
	if exit != nil && *exit != 0 {
		m.nonzero.WithLabelValues(action).Inc()
	}
}

// Changed counts a change in the life of a sandbox: change is the action of its audit record.
func (m *Metrics) Changed(change, reason string) { m.changes.WithLabelValues(change, reason).Inc() }

// Refused counts a request that got no place: "full", "late" or "gone".
func (m *Metrics) Refused(reason string) { m.refused.WithLabelValues(reason).Inc() }

// ToolCall times a tool call that came via "bridge" or "api".
func (m *Metrics) ToolCall(via, outcome string, d time.Duration) {
	m.tools.WithLabelValues(via, outcome).Observe(d.Seconds())
}

// ToolResult counts what a tool answered to a call that came via "bridge" or "api".
func (m *Metrics) ToolResult(via string, bytes int64) {
	m.answered.WithLabelValues(via).Add(float64(bytes))
}

// Returned counts what a caller got of the answers of tools: via "bridge", the output of an exec that called them.
func (m *Metrics) Returned(via string, bytes int64) {
	m.returned.WithLabelValues(via).Add(float64(bytes))
}

// Prompt counts a prompt for an agent that gets its tools in a mode.
func (m *Metrics) Prompt(mode string) { m.prompts.WithLabelValues(mode).Inc() }

// Request times a request: its route as registered, not as it was asked for.
func (m *Metrics) Request(route, method string, status int, d time.Duration) {
	m.requests.WithLabelValues(route, method, strconv.Itoa(status/100)+"xx").Observe(d.Seconds())
}

// Limited counts a call that met a limit, by its name and whose it is: "tenant", "user" or "key".
func (m *Metrics) Limited(limit, scope string) { m.limited.WithLabelValues(limit, scope).Inc() }

// Kept times a snapshot that was written, or could not be, and counts what was sent for it.
func (m *Metrics) Kept(err error, d time.Duration, bytes int64) {
	m.kept.WithLabelValues(outcomeOf(err)).Observe(d.Seconds())
	m.sent.Add(float64(bytes))
}

// Restored times a thread that was restored, or could not be.
func (m *Metrics) Restored(err error, d time.Duration) {
	m.restored.WithLabelValues(outcomeOf(err)).Observe(d.Seconds())
}

// outcomeOf is "ok" or the code of an error.
func outcomeOf(err error) string {
	if err == nil {
		return "ok"
	}
	return string(sandbox.KindOf(err))
}

// Levels is how full a server is at a moment.
type Levels struct {
	Sandboxes  map[sandbox.State]int
	Execs      int // that run
	Places     int // sandboxes that there may be
	Waiting    int // requests that wait for a place
	AuditLag   int // records that are not yet in Redis
	Audit      AuditLevels
	Sinks      map[string]int // records that a sink of the audit log does not have
	Unarchived int            // full segments of the audit log that the archive does not have
	Pools      []Pool
}

// AuditLevels is how the audit log is.
type AuditLevels struct {
	Failing  int // 1: something cannot be recorded, or soon will not be
	Room     int // bytes of records for which there is room on any disk
	Missed   int // records that were not written since the start (on_failure: open)
	Unsigned int // records behind the last signature
}

// Pool is how many sandboxes of a template wait for threads on a server.
type Pool struct {
	Template          string
	Waiting, Starting int
	Target            int // of all servers together
}

// Watch says who knows the levels. They are asked for at each scrape.
func (m *Metrics) Watch(now func() Levels) { m.levels.now.Store(&now) }

// levels is the collector of Levels.
type levels struct{ now atomic.Pointer[func() Levels] }

var (
	sandboxesDesc = prometheus.NewDesc("skerry_sandboxes", "Sandboxes of this server, by state.", []string{"state"}, nil)
	execsDesc     = prometheus.NewDesc("skerry_execs_running", "Execs that run.", nil, nil)
	placesDesc    = prometheus.NewDesc("skerry_sandboxes_max", "Sandboxes that there may be (max_sandboxes).", nil, nil)
	waitingDesc   = prometheus.NewDesc("skerry_queue_waiting", "Requests for a sandbox that wait for a place.", nil, nil)
	poolDesc      = prometheus.NewDesc("skerry_pool_sandboxes", "Sandboxes of this server that wait for a thread, or are started to, by template and state.", []string{"template", "state"}, nil)
	poolMaxDesc   = prometheus.NewDesc("skerry_pool_target", "Sandboxes that are to wait for threads on all servers together, by template.", []string{"template"}, nil)
	lagDesc       = prometheus.NewDesc("skerry_audit_lag_records", "Audit records that are on the disk and not yet in Redis.", nil, nil)
	archiveDesc   = prometheus.NewDesc("skerry_audit_archive_behind_segments", "Full segments of the audit log that its archive does not have yet.", nil, nil)
	sinkDesc      = prometheus.NewDesc("skerry_audit_sink_behind_records", "Audit records that a sink does not have yet.", []string{"sink"}, nil)
)

// Of AuditLevels.
var (
	auditFailingDesc  = prometheus.NewDesc("skerry_audit_failing", "1 when the audit log cannot be written or its disk is full.", nil, nil)
	auditRoomDesc     = prometheus.NewDesc("skerry_audit_room_bytes", "Bytes of audit records for which room was made ahead.", nil, nil)
	auditMissedDesc   = prometheus.NewDesc("skerry_audit_missed_records", "Audit records that were not written since the start (audit.on_failure: open).", nil, nil)
	auditUnsignedDesc = prometheus.NewDesc("skerry_audit_unsigned_records", "Audit records behind the last signature.", nil, nil)
)

// states are always shown, so that a series does not come and go.
var states = []sandbox.State{sandbox.Starting, sandbox.Running, sandbox.Paused, sandbox.Stopping}

// Describe implements prometheus.Collector.
func (*levels) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{sandboxesDesc, execsDesc, placesDesc, waitingDesc, lagDesc, archiveDesc, sinkDesc, poolDesc, poolMaxDesc, auditFailingDesc, auditRoomDesc, auditMissedDesc, auditUnsignedDesc} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (l *levels) Collect(to chan<- prometheus.Metric) {
	now := l.now.Load()
	if now == nil {
		return
	}
	v := (*now)()
	gauge := func(d *prometheus.Desc, n int, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	for _, s := range states {
		gauge(sandboxesDesc, v.Sandboxes[s], string(s))
	}
	gauge(execsDesc, v.Execs)
	gauge(placesDesc, v.Places)
	gauge(waitingDesc, v.Waiting)
	gauge(lagDesc, v.AuditLag)
	gauge(archiveDesc, v.Unarchived)
	gauge(auditFailingDesc, v.Audit.Failing)
	gauge(auditRoomDesc, v.Audit.Room)
	gauge(auditMissedDesc, v.Audit.Missed)
	gauge(auditUnsignedDesc, v.Audit.Unsigned)
	for name, behind := range v.Sinks {
		gauge(sinkDesc, behind, name)
	}
	for _, p := range v.Pools {
		gauge(poolDesc, p.Waiting, p.Template, "waiting")
		gauge(poolDesc, p.Starting, p.Template, string(sandbox.Starting))
		gauge(poolMaxDesc, p.Target, p.Template)
	}
}
