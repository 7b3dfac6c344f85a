package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Counts are sums of what a server counts.
type Counts struct {
	Execs         uint64 // that ended
	ExecsFailed   uint64 // of those the ones that did not end by themselves: deadline, memory, a lost sandbox, killed
	Nonzero       uint64 // and those that exited with another code than 0
	ToolCalls     uint64
	ToolErrors    uint64 // calls that were not answered well: refused ones as well
	Requests      uint64
	RequestErrors uint64 // answered with 5xx
	Starts        uint64 // of sandboxes
	StartFailures uint64
	Refused       uint64 // requests that met a limit, or found no place
}

// Since is what was counted after before.
func (c Counts) Since(before Counts) Counts {
	return Counts{
		Execs: c.Execs - before.Execs, ExecsFailed: c.ExecsFailed - before.ExecsFailed, Nonzero: c.Nonzero - before.Nonzero,
		ToolCalls: c.ToolCalls - before.ToolCalls, ToolErrors: c.ToolErrors - before.ToolErrors,
		Requests: c.Requests - before.Requests, RequestErrors: c.RequestErrors - before.RequestErrors,
		Starts: c.Starts - before.Starts, StartFailures: c.StartFailures - before.StartFailures, Refused: c.Refused - before.Refused,
	}
}

// Plus is the sum of both.
func (c Counts) Plus(o Counts) Counts {
	return Counts{
		Execs: c.Execs + o.Execs, ExecsFailed: c.ExecsFailed + o.ExecsFailed, Nonzero: c.Nonzero + o.Nonzero,
		ToolCalls: c.ToolCalls + o.ToolCalls, ToolErrors: c.ToolErrors + o.ToolErrors,
		Requests: c.Requests + o.Requests, RequestErrors: c.RequestErrors + o.RequestErrors,
		Starts: c.Starts + o.Starts, StartFailures: c.StartFailures + o.StartFailures, Refused: c.Refused + o.Refused,
	}
}

// outcomeOK is the outcome of a tool call that was answered well.
const outcomeOK = "ok"

// Counts is what was counted so far. It walks over the series, some hundred at most.
func (m *Metrics) Counts() Counts {
	var c Counts
	sum(m.execs, func(n uint64, label func(string) string) {
		c.Execs += n
		if label("status") != string(sandbox.StatusExited) {
			c.ExecsFailed += n
		}
	})
	sum(m.nonzero, func(n uint64, _ func(string) string) { c.Nonzero += n })
	sum(m.tools, func(n uint64, label func(string) string) {
		c.ToolCalls += n
		if label("outcome") != outcomeOK {
			c.ToolErrors += n
		}
	})
	sum(m.requests, func(n uint64, label func(string) string) {
		c.Requests += n
		if label("status") == "5xx" {
			c.RequestErrors += n
		}
	})
	sum(m.starts, func(n uint64, label func(string) string) {
		if label("phase") == "ready" {
			c.Starts += n
		}
	})
	sum(m.failures, func(n uint64, _ func(string) string) { c.StartFailures += n })
	for _, v := range []*prometheus.CounterVec{m.refused, m.limited} {
		sum(v, func(n uint64, _ func(string) string) { c.Refused += n })
	}
	return c
}

// Levels is how full the server is; false: nobody knows yet.
func (m *Metrics) Levels() (Levels, bool) {
	now := m.levels.now.Load()
	if now == nil {
		return Levels{}, false
	}
	return (*now)(), true
}

// sum calls add with the count of each series of a counter or histogram, and with what its labels are.
func sum(v prometheus.Collector, add func(n uint64, label func(string) string)) {
	series := make(chan prometheus.Metric)
	go func() {
		v.Collect(series)
		close(series)
	}()
	for s := range series {
		var out dto.Metric
		if s.Write(&out) != nil {
			continue
		}
		n := out.GetHistogram().GetSampleCount()
		if c := out.GetCounter(); c != nil {
			n = uint64(c.GetValue())
		}
		add(n, func(name string) string {
			for _, l := range out.GetLabel() {
				if l.GetName() == name {
					return l.GetValue()
				}
			}
			return ""
		})
	}
}
