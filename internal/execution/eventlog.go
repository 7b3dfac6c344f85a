package execution

import (
	"context"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// eventLog is the events of an exec as they came, the output in them, and the one end. Any number of callers wait for
// what comes next.
type eventLog struct {
	mu        sync.Mutex
	changed   chan struct{} // closed and replaced at each event
	events    []sandbox.Event
	approvals int   // of them, those about calls that wait
	bytes     int64 // of output in events
	more      int64 // bytes of what else is kept: a result
	live      int64 // Spec.Live
	stdout    []byte
	stderr    []byte

	result   *sandbox.Result // nil while it runs
	err      error           // the result cannot be vouched for: its record is not durable
	startErr error           // why it could not be started; Wait returns it instead of the result
	why      string          // this server ended the exec, for this reason
}

// begin makes the log ready for events.
func (l *eventLog) begin(live int64) { l.changed, l.live = make(chan struct{}), live }

// add appends an event. The numbers come from sandboxd, which is hostile ground: they are ours here.
func (l *eventLog) add(ev sandbox.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addLocked(ev)
}

func (l *eventLog) addLocked(ev sandbox.Event) {
	ev.N = 1
	if n := len(l.events); n > 0 {
		ev.N = l.events[n-1].N + 1
	}
	l.events = append(l.events, ev)
	l.bytes += int64(len(ev.Data))
	switch ev.Type {
	case sandbox.EventStdout:
		if l.live == 0 || int64(len(l.stdout)) <= l.live {
			l.stdout = append(l.stdout, ev.Data...)
		}
	case sandbox.EventStderr:
		if l.live == 0 || int64(len(l.stderr)) <= l.live {
			l.stderr = append(l.stderr, ev.Data...)
		}
	}
	l.trim()
	l.notify()
}

// notify wakes the waiting goroutines. The caller holds mu.
func (l *eventLog) notify() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// addApproval adds an event about a call that waits, unless the exec has ended or has too many of them.
func (l *eventLog) addApproval(ev sandbox.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended() || l.approvals >= maxApprovalEvents {
		return
	}
	l.approvals++
	l.addLocked(ev)
}

// finish is the one end.
func (l *eventLog) finish(res sandbox.Result, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stdout, l.stderr = nil, nil
	if err != nil {
		l.err = err
		l.notify()
		return
	}
	l.result = &res
	l.more += resultCost(&res)
	l.addLocked(sandbox.Event{Type: sandbox.EventExit, Time: time.Now().UTC(), Result: &res})
}

// ended reports whether the end has come. Called with mu held.
func (l *eventLog) ended() bool { return l.result != nil || l.err != nil }

// begun reports whether sandboxd knows the exec, or never will. Called with mu held.
func (l *eventLog) begun() bool { return len(l.events) > 0 || l.err != nil }

// wait returns once is reports true. It asks again at each event. An error is that of ctx.
func (l *eventLog) wait(ctx context.Context, is func(*eventLog) bool) error {
	for {
		l.mu.Lock()
		done, changed := is(l), l.changed
		l.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// follow emits each event after number after, as they come, up to and with the exit.
func (l *eventLog) follow(ctx context.Context, after uint64, emit func(sandbox.Event) error) error {
	for {
		l.mu.Lock()
		var fresh []sandbox.Event
		for i := len(l.events); i > 0 && l.events[i-1].N > after; i-- {
			fresh = l.events[i-1:]
		}
		done, changed, err := l.ended(), l.changed, l.err
		l.mu.Unlock()
		for _, ev := range fresh {
			if err := emit(ev); err != nil {
				return err
			}
			after = ev.N
		}
		if err != nil {
			return err
		}
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// output returns both streams as they are now.
func (l *eventLog) output() (stdout, stderr []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stdout, l.stderr
}

// outcome returns the result, nil while the exec runs.
func (l *eventLog) outcome() *sandbox.Result {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.result
}

// eventCost is what an event takes besides its output, in bytes.
const eventCost = 128

// cost is the memory that the log takes, about. Called with mu held.
func (l *eventLog) cost() int64 {
	return l.bytes + l.more + int64(len(l.events))*eventCost
}

// maxLive bounds the events that are kept of a terminal: a person who types makes small ones.
const maxLive = 32 << 10

// trim lets go of the oldest events of a terminal. Who follows more slowly misses them, and sees it by
// their numbers. Called with mu held.
func (l *eventLog) trim() {
	if l.live == 0 {
		return
	}
	for len(l.events) > maxLive || l.bytes > l.live && len(l.events) > 1 {
		l.bytes -= int64(len(l.events[0].Data))
		l.events = l.events[1:] // append moves the rest to another array, and this one goes
	}
}
