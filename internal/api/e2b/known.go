package e2b

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/platform/keylock"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/service"
)

// What the adapter remembers of a sandbox lies among the labels of its thread, under names that metadata cannot have.
const (
	labelPrefix  = "skerry.e2b/"
	labelMade    = labelPrefix + "sandbox"  // "1": the thread was made here
	labelEnds    = labelPrefix + "ends"     // RFC 3339
	labelPauses  = labelPrefix + "pauses"   // "1": it is paused at its end, not deleted
	labelContext = labelPrefix + "context-" // and a language: the context of code that names none
)

const (
	// believed is how long it is not looked up again whether a sandbox is there, so that a command costs no round trip
	// for it.
	believed = 5 * time.Second
	// endTime bounds the end of a sandbox; endAgain is when it is tried again.
	endTime  = time.Minute
	endAgain = 30 * time.Second
)

// knownSandboxes remembers the sandboxes that clients asked about lately, and the clocks of sandboxes with
// an end. Another server, or this one after a restart, reads all of it from the labels. It does so when a
// client asks about the sandbox or lists it.
type knownSandboxes struct {
	threads   service.Threads
	sandboxes service.Sandboxes
	execs     service.Execs
	log       *slog.Logger
	locks     *keylock.Locks[string] // those of the adapter

	mu     sync.Mutex
	by     map[sandbox.Thread]*known
	busy   map[sandbox.Thread]bool // they are being ended
	dying  map[sandbox.Thread]int  // they are being deleted: how often
	closed bool
	ending sync.WaitGroup
}

type known struct {
	view  sandbox.ThreadView
	seen  time.Time
	clock *time.Timer
	due   time.Time // when clock rings; zero: it is stopped

	signers []signer // those who asked lately, with whose tokens signed URLs are made
	load    measured // the last one
}

// labelLock is the lock of all that reads labels of a sandbox and writes them, or depends on that nobody else does.
func labelLock(t sandbox.Thread) string { return "labels " + t.String() }

func newKnown(o service.Service, log *slog.Logger, locks *keylock.Locks[string]) *knownSandboxes {
	return &knownSandboxes{threads: o.Threads, sandboxes: o.Sandboxes, execs: o.Execs, log: log, locks: locks, by: map[sandbox.Thread]*known{}, busy: map[sandbox.Thread]bool{}, dying: map[sandbox.Thread]int{}}
}

func (k *knownSandboxes) close() {
	k.mu.Lock()
	k.closed = true
	for _, s := range k.by {
		s.clock.Stop()
	}
	clear(k.by)
	k.mu.Unlock()
	k.ending.Wait()
}

func threadOf(q request) sandbox.Thread { return sandbox.Thread{Owner: q.caller.Owner, ID: q.thread} }

// ends is when a sandbox ends by its labels.
func ends(labels map[string]string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, labels[labelEnds])
	if err != nil {
		return time.Time{}
	}
	return t
}

// find returns a sandbox that is there. errNoSandbox: there is no such thread, it is none of E2B's, or its time is over.
// fresh: as it is now, not as it was a moment ago.
func (k *knownSandboxes) find(ctx context.Context, q request, fresh bool) (sandbox.ThreadView, error) {
	t := threadOf(q)
	k.mu.Lock()
	s, dying := k.by[t], k.dying[t] > 0
	k.mu.Unlock()
	if dying {
		return sandbox.ThreadView{}, errNoSandbox
	}
	if s != nil && !fresh && time.Since(s.seen) < believed && !over(s.view) {
		// It may have been deleted otherwise, and a command would make the thread anew. This is known without a round trip.
		if _, err := k.execs.Execs(ctx, q.caller, q.thread); sandbox.KindOf(err) != sandbox.NotFound {
			return s.view, nil
		}
	}
	view, err := k.threads.Thread(ctx, q.caller, q.thread)
	switch {
	case sandbox.KindOf(err) == sandbox.NotFound, err == nil && view.Labels[labelMade] == "":
		k.forget(t)
		return view, errNoSandbox
	case err != nil:
		return view, err
	case over(view):
		k.end(q)
		return view, errNoSandbox
	}
	k.note(q, view)
	return view, nil
}

// over reports whether a sandbox should have been deleted by now.
func over(v sandbox.ThreadView) bool {
	return v.Labels[labelPauses] == "" && time.Now().After(ends(v.Labels))
}

// due returns when something is to be done at the end of a sandbox: zero for one that is to be paused, and is.
func due(v sandbox.ThreadView) time.Time {
	if v.Labels[labelPauses] != "" && state(v) == statePaused {
		return time.Time{}
	}
	return ends(v.Labels)
}

// note remembers a sandbox as it is, and sets its clock.
func (k *knownSandboxes) note(q request, view sandbox.ThreadView) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return
	}
	s := k.by[threadOf(q)]
	if s == nil {
		s = &known{clock: time.AfterFunc(time.Hour, func() { k.end(q) })}
		s.clock.Stop()
		k.by[threadOf(q)] = s
	}
	switch at := due(view); {
	case at.Equal(s.due):
	case at.IsZero():
		s.clock.Stop()
		s.due = at
	default:
		s.clock.Reset(time.Until(at))
		s.due = at
	}
	s.view, s.seen = view, time.Now()
	s.remember(q)
}

func (k *knownSandboxes) forget(t sandbox.Thread) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s := k.by[t]; s != nil {
		s.clock.Stop()
		delete(k.by, t)
	}
}

// end deletes a sandbox whose time is over, or pauses it; one whose time was made longer by another server goes on.
func (k *knownSandboxes) end(q request) {
	t := threadOf(q)
	k.mu.Lock()
	if k.closed || k.busy[t] { // its clock, a list and a request may all find that its time is over
		k.mu.Unlock()
		return
	}
	k.busy[t] = true
	k.ending.Add(1)
	k.mu.Unlock()
	defer k.ending.Done()
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.busy, t)
	}()
	ctx, cancel := context.WithTimeout(context.Background(), endTime)
	defer cancel()
	view, err := k.threads.Thread(ctx, q.caller, q.thread)
	switch {
	case err != nil:
	case view.Labels[labelMade] == "":
		err = errNoSandbox
	case time.Now().Before(ends(view.Labels)):
		k.note(q, view)
		return
	case view.Labels[labelPauses] != "":
		var later bool
		if later, err = k.pauseAtEnd(ctx, q); later {
			return
		}
	default:
		err = k.delete(ctx, q)
	}
	if kind := sandbox.KindOf(err); err == nil || kind == sandbox.NotFound || err == errNoSandbox { //nolint:errorlint // it is that very value
		k.forget(t)
		return
	}
	k.log.Warn("a sandbox of E2B could not be ended; it is tried again", "thread", t.String(), "error", err)
	k.mu.Lock()
	defer k.mu.Unlock()
	if s := k.by[t]; s != nil && !k.closed {
		s.clock.Reset(endAgain)
	}
}

// delete deletes a sandbox, which is not there from now on: what runs in it ends before its thread does, and clients
// ask then whether it is there.
func (k *knownSandboxes) delete(ctx context.Context, q request) error {
	t := threadOf(q)
	count := func(n int) {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.dying[t] += n; k.dying[t] == 0 {
			delete(k.dying, t)
		}
	}
	count(1)
	defer count(-1)
	return k.threads.DeleteThread(ctx, q.caller, q.thread)
}

// pauseAtEnd pauses a sandbox whose time is over. later: a client gave it more time meanwhile.
func (k *knownSandboxes) pauseAtEnd(ctx context.Context, q request) (later bool, err error) {
	unlock, err := k.locks.Lock(ctx, labelLock(threadOf(q)))
	if err != nil {
		return false, err
	}
	defer unlock()
	view, err := k.threads.Thread(ctx, q.caller, q.thread)
	switch {
	case err != nil:
		return false, err
	case time.Now().Before(ends(view.Labels)):
		k.note(q, view)
		return true, nil
	case state(view) != statePaused:
		_, err = k.sandboxes.Pause(ctx, q.caller, q.thread)
	}
	return false, err
}

// relabel changes labels of a sandbox that runs, or starts it: labels go with a sandbox that is asked for.
func (a *Adapter) relabel(ctx context.Context, q request, change map[string]string) (sandbox.ThreadView, error) {
	unlock, err := a.locks.Lock(ctx, labelLock(threadOf(q)))
	if err != nil {
		return sandbox.ThreadView{}, err
	}
	defer unlock()
	return a.relabelLocked(ctx, q, change)
}

// relabelLocked is relabel for a caller that has the lock of the labels.
func (a *Adapter) relabelLocked(ctx context.Context, q request, change map[string]string) (sandbox.ThreadView, error) {
	view, err := a.known.find(ctx, q, true)
	if err != nil {
		return view, err
	}
	labels := maps.Clone(view.Labels)
	maps.Copy(labels, change)
	info, err := a.o.Sandboxes.Acquire(ctx, q.caller, q.thread, sandbox.AcquireOptions{Labels: labels, Wait: startTime})
	if err != nil {
		return view, err
	}
	view.Labels, view.Sandbox = labels, &info
	a.known.note(q, view)
	return view, nil
}
