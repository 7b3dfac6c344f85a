package series

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skerry-sandbox/skerry/internal/observe/metrics"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// counted is a server that ends one exec a second, and has as many sandboxes as it is told.
type counted struct {
	from    time.Time
	running atomic.Int64
}

func (c *counted) Levels() (metrics.Levels, bool) {
	return metrics.Levels{Sandboxes: map[sandbox.State]int{sandbox.Running: int(c.running.Load())}, Pools: []metrics.Pool{{Waiting: 2}, {Waiting: 3}}}, true
}

func (c *counted) Counts() metrics.Counts {
	return metrics.Counts{Execs: uint64(time.Since(c.from) / time.Second)} //nolint:gosec // not negative
}

// TestADay: of two days the last hour is there in steps of ten seconds, and the last day in steps of five minutes, with
// the most of each level and the sum of what was counted.
func TestADay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &counted{from: time.Now()}
		c.running.Store(1)
		began := time.Now()
		r := New(c)
		go r.Run(t.Context())
		if fine, _ := r.Points(Fine); len(fine) != 0 {
			t.Errorf("%d steps before the first look", len(fine))
		}
		time.Sleep(25 * time.Second)
		fine, since := r.Points(Fine)
		if len(fine) != 2 || fine[1].Counts.Execs != 10 || fine[1].Levels.Running != 1 || fine[1].Levels.Pool != 5 || !since.Equal(began) {
			t.Errorf("after 25 s: %+v since %v", fine, since)
		}
		if coarse, _ := r.Points(Coarse); len(coarse) != 1 || coarse[0].Counts.Execs != 20 {
			t.Errorf("after 25 s, coarse: %+v", coarse)
		}
		time.Sleep(48*time.Hour - 30*time.Second) // between two looks: at the time of one, which is first is open
		c.running.Store(9)
		time.Sleep(10 * time.Second)
		c.running.Store(4)
		time.Sleep(5 * time.Minute)
		fine, _ = r.Points(Fine)
		coarse, _ := r.Points(Coarse)
		if len(fine) != 360 || len(coarse) < 288 || len(coarse) > 289 {
			t.Fatalf("%d fine steps and %d coarse ones", len(fine), len(coarse))
		}
		if d := fine[359].At.Sub(fine[0].At); d != time.Hour-Fine {
			t.Errorf("the fine ones last %v", d)
		}
		if d := coarse[280].At.Sub(coarse[0].At); d != 280*Coarse {
			t.Errorf("280 coarse ones last %v", d)
		}
		most := 0
		for _, p := range coarse[:len(coarse)-1] {
			most = max(most, p.Levels.Running)
			if p.Counts.Execs != 300 {
				t.Errorf("%v: %d execs in five minutes of one a second", p.At, p.Counts.Execs)
			}
		}
		if most != 9 {
			t.Errorf("the most sandboxes were %d", most)
		}
	})
}
