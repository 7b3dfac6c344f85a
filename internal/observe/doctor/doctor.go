package doctor

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// State is how something is.
type State string

// States of a Line.
const (
	OK      State = "ok"
	Warning State = "warning" // a server serves, but something that is configured or usual does not work
	Problem State = "problem" // a server would not start, or could not run anything
)

// Line is one answer.
type Line struct {
	Check  string `json:"check"`          // what was looked at: "runtimes"
	Name   string `json:"name,omitempty"` // which of several: "runsc"
	State  State  `json:"state"`
	Detail string `json:"detail"`        // what is the case, and what that means
	Fix    string `json:"fix,omitempty"` // what to do; "" when there is nothing to do
}

// Check is one thing to look at.
type Check struct {
	Name      string        // goes into each of its lines
	Within    time.Duration // its deadline, from the start of Run
	OnTimeout Line          // what is said when it has not come to an end: State and Fix; its Detail says how long it took
	// Run looks. Its context ends with the deadline. What it adds before is shown, however it ends.
	Run func(ctx context.Context, r *Report)
}

// Report takes the lines of one check. All methods may be called at the same time.
type Report struct {
	check string

	mu    sync.Mutex
	over  bool // its results are not read any more
	lines []Line
}

// OK adds what is as it should be. name is which of several, or "".
func (r *Report) OK(name, format string, args ...any) {
	r.Add(Line{Name: name, State: OK, Detail: fmt.Sprintf(format, args...)})
}

// Warn adds what does not keep a server from serving, and what to do about it.
func (r *Report) Warn(name, fix, format string, args ...any) {
	r.Add(Line{Name: name, State: Warning, Detail: fmt.Sprintf(format, args...), Fix: fix})
}

// Problem adds what keeps a server from serving, and what to do about it.
func (r *Report) Problem(name, fix, format string, args ...any) {
	r.Add(Line{Name: name, State: Problem, Detail: fmt.Sprintf(format, args...), Fix: fix})
}

// Add adds a line; its Check is filled in. After the check's deadline it does nothing.
func (r *Report) Add(l Line) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.over {
		l.Check = r.check
		r.lines = append(r.lines, l)
	}
}

// end returns all lines, and takes none after that.
func (r *Report) end() []Line {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	return r.lines
}

// Output is told how a run goes on, in the order of the checks. Both may be nil.
type Output struct {
	Lines   func(lines []Line)                      // of one check that has ended; not empty
	Waiting func(check string, since time.Duration) // each WaitEvery, for the check that comes next
}

const (
	// WaitEvery is how often Output.Waiting is called.
	WaitEvery = 200 * time.Millisecond
	// settle is what a check has after its deadline to say in its own words what took so long.
	settle = 2 * time.Second
	// leave is what checks that are too late have at the end to clear away what they started.
	leave = 20 * time.Second
)

// Run runs all checks side by side and returns all their lines, in the order of the checks. It ends when all
// have ended, or some seconds after the last deadline: a check that ignores its context is left behind.
func Run(ctx context.Context, checks []Check, out Output) []Line {
	began := time.Now()
	running := make([]*running, len(checks))
	for i, c := range checks {
		running[i] = start(ctx, c)
	}
	var all []Line
	for _, r := range running {
		lines := r.wait(began, out)
		if out.Lines != nil && len(lines) > 0 {
			out.Lines(lines)
		}
		all = append(all, lines...)
	}
	last := time.NewTimer(leave)
	defer last.Stop()
	for _, r := range running {
		select {
		case <-r.done:
		case <-last.C:
			return all
		}
	}
	return all
}

// running is a check that was started.
type running struct {
	Check
	report *Report
	done   chan struct{}
	over   <-chan struct{} // closed at the deadline
}

func start(ctx context.Context, c Check) *running {
	ctx, cancel := context.WithTimeout(ctx, c.Within)
	r := &running{Check: c, report: &Report{check: c.Name}, done: make(chan struct{}), over: ctx.Done()}
	go func() { // ends when the check heeds its context; else with the process
		defer close(r.done)
		defer cancel()
		c.Run(ctx, r.report)
	}()
	return r
}

// wait returns the lines of a check when it has ended, or when its time is over.
func (r *running) wait(began time.Time, out Output) []Line {
	tick := time.NewTicker(WaitEvery)
	defer tick.Stop()
	over, end := r.over, (<-chan time.Time)(nil)
	for {
		select {
		case <-r.done:
			return r.report.end()
		case <-over:
			t := time.NewTimer(settle)
			defer t.Stop() // once: over is nil from here on
			over, end = nil, t.C
		case <-end:
			late := r.OnTimeout
			late.Detail = fmt.Sprintf("did not come to an end within %s", r.Within)
			if late.State == "" {
				late.State = Problem
			}
			r.report.Add(late)
			return r.report.end()
		case <-tick.C:
			if out.Waiting != nil {
				out.Waiting(r.Name, time.Since(began))
			}
		}
	}
}

// Serves reports whether a server could serve: no line is a problem.
func Serves(lines []Line) bool { return Count(lines, Problem) == 0 }

// Count counts the lines of a state.
func Count(lines []Line, s State) int {
	n := 0
	for _, l := range lines {
		if l.State == s {
			n++
		}
	}
	return n
}
