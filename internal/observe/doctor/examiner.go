package doctor

import (
	"cmp"
	"context"
	"sync"
	"time"
)

// Examiner runs checks when a caller asks for them, and keeps what they said for a while. One run at a time is under way, for all
// who ask. It is safe for concurrent use; make it by NewExaminer.
type Examiner struct {
	checks  []Check
	keep    time.Duration
	ctx     context.Context // ends with Close
	end     context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	lines  []Line
	at     time.Time     // when lines came; zero: none have
	flight chan struct{} // closed when the run under way has ended; nil: none is
}

// NewExaminer returns an examiner whose lines are good for keep.
func NewExaminer(keep time.Duration, checks []Check) *Examiner {
	e := &Examiner{checks: checks, keep: keep}
	e.ctx, e.end = context.WithCancel(context.Background())
	return e
}

// Lines returns what the checks said, and when. It waits for a run until ctx ends, and then returns the lines of the run before.
// The error is that of ctx, when there was none before.
func (e *Examiner) Lines(ctx context.Context) ([]Line, time.Time, error) {
	e.mu.Lock()
	if e.flight == nil && e.ctx.Err() == nil && (e.at.IsZero() || time.Since(e.at) >= e.keep) {
		e.start()
	}
	flight := e.flight
	e.mu.Unlock()
	if flight != nil {
		select {
		case <-flight:
		case <-ctx.Done():
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.at.IsZero() {
		return nil, e.at, cmp.Or(context.Cause(ctx), context.Canceled)
	}
	return e.lines, e.at, nil
}

// start begins a run. e.mu is held.
func (e *Examiner) start() {
	flight := make(chan struct{})
	e.flight = flight
	e.running.Go(func() {
		lines := Run(e.ctx, e.checks, Output{})
		e.mu.Lock()
		defer e.mu.Unlock()
		e.lines, e.at, e.flight = lines, time.Now(), nil
		close(flight)
	})
}

// Close ends the run that is under way, and waits for it.
func (e *Examiner) Close() error {
	e.end()
	e.running.Wait()
	return nil
}
