package series

import (
	"context"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/observe/metrics"
	"github.com/skerry-sandbox/skerry/internal/platform/every"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Windows: the last hour in steps of ten seconds, and the last day in steps of five minutes.
const (
	Fine       = 10 * time.Second
	Coarse     = 5 * time.Minute
	fineKept   = int(time.Hour / Fine)
	coarseKept = int(24 * time.Hour / Coarse)
)

// Point is one step of a server's time: what was counted in it, and the most of each level.
type Point struct {
	At     time.Time // its end
	Levels Levels
	Counts metrics.Counts
}

// Levels is how full a server was.
type Levels struct {
	Starting, Running, Paused, Stopping int // sandboxes
	Execs                               int // that ran
	Queue                               int // requests that waited for a place
	Pool                                int // sandboxes that waited for a thread
	AuditLag                            int // audit records that were not yet in Redis
}

func levelsOf(l metrics.Levels) Levels {
	v := Levels{
		Starting: l.Sandboxes[sandbox.Starting], Running: l.Sandboxes[sandbox.Running], Paused: l.Sandboxes[sandbox.Paused], Stopping: l.Sandboxes[sandbox.Stopping],
		Execs: l.Execs, Queue: l.Waiting, AuditLag: l.AuditLag,
	}
	for _, p := range l.Pools {
		v.Pool += p.Waiting
	}
	return v
}

// most is the most of each level.
func (l Levels) most(o Levels) Levels {
	return Levels{
		Starting: max(l.Starting, o.Starting), Running: max(l.Running, o.Running), Paused: max(l.Paused, o.Paused), Stopping: max(l.Stopping, o.Stopping),
		Execs: max(l.Execs, o.Execs), Queue: max(l.Queue, o.Queue), Pool: max(l.Pool, o.Pool), AuditLag: max(l.AuditLag, o.AuditLag),
	}
}

// Source is where a Recorder reads.
type Source interface {
	// Levels is how full the server is; false: it is not known yet.
	Levels() (metrics.Levels, bool)
	// Counts is what the server has counted since its start.
	Counts() metrics.Counts
}

// Recorder keeps the points of a server.
type Recorder struct {
	source Source
	began  time.Time

	mu     sync.Mutex
	before metrics.Counts // at the last look
	next   Point          // the coarse point that grows
	fine   []Point        // the oldest first
	coarse []Point
}

// New returns a recorder that has seen nothing yet.
func New(source Source) *Recorder {
	return &Recorder{source: source, began: time.Now(), before: source.Counts()}
}

// Run looks every ten seconds, until ctx ends.
func (r *Recorder) Run(ctx context.Context) {
	for at := range every.Tick(ctx, Fine) {
		r.look(at)
	}
}

func (r *Recorder) look(at time.Time) {
	levels, ok := r.source.Levels()
	if !ok {
		return
	}
	now := r.source.Counts()
	r.mu.Lock()
	defer r.mu.Unlock()
	p := Point{At: at, Levels: levelsOf(levels), Counts: now.Since(r.before)}
	r.before = now
	r.fine = keep(r.fine, p, fineKept)
	r.next.Levels = r.next.Levels.most(p.Levels)
	r.next.Counts = r.next.Counts.Plus(p.Counts)
	if end := at.Truncate(Coarse); r.next.At.IsZero() {
		r.next.At = end.Add(Coarse)
	}
	if !at.Before(r.next.At) {
		r.coarse = keep(r.coarse, r.next, coarseKept)
		r.next = Point{}
	}
}

// keep adds a point, and drops the oldest ones of more than n.
func keep(points []Point, p Point, n int) []Point {
	if len(points) >= n {
		copy(points, points[len(points)-n+1:])
		points = points[:n-1]
	}
	return append(points, p)
}

// Points returns the steps of a length, the oldest first, and since when the server counts. The newest coarse step is not
// over yet.
func (r *Recorder) Points(step time.Duration) (points []Point, since time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if step == Fine {
		return append([]Point(nil), r.fine...), r.began
	}
	points = append(points, r.coarse...)
	if len(r.fine) > 0 && !r.next.At.IsZero() {
		p := r.next
		p.At = r.fine[len(r.fine)-1].At
		points = append(points, p)
	}
	return points, r.began
}

// Levels is how full the server is now; false: it is not known yet.
func (r *Recorder) Levels() (metrics.Levels, bool) { return r.source.Levels() }
