package bridge

import (
	"context"
	"crypto/sha256"
	"slices"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

var errEnded = sandbox.Errorf(sandbox.Unauthorized, "the exec has ended")

// exec is a registered exec with its calls.
type exec struct {
	Exec
	key    [sha256.Size]byte
	limits Limits
	ctx    context.Context // ends with the exec
	cancel context.CancelFunc

	mu       sync.Mutex
	requests int // ever
	parallel int // now
	bytes    int64
	calls    []sandbox.ToolCall
	running  int
	ended    bool
	idle     chan struct{} // closed when the exec has ended and nothing runs
}

func newExec(x Exec, key [sha256.Size]byte, l Limits) *exec {
	ctx, cancel := context.WithCancel(context.Background())
	return &exec{Exec: x, key: key, limits: l, ctx: ctx, cancel: cancel, idle: make(chan struct{})}
}

// admit takes a place for a request; release frees it.
func (e *exec) admit() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.ended:
		return errEnded
	case e.requests >= e.limits.Calls:
		return sandbox.TooManyCalls("this exec has made %d tool calls, which is the limit of one exec", e.limits.Calls)
	case e.bytes >= e.limits.Bytes:
		return errBytes(e.limits)
	case e.parallel >= MaxParallel:
		return sandbox.TooManyCalls("this exec has %d tool calls in flight, which is the limit of one exec", MaxParallel)
	}
	e.requests++
	e.parallel++
	return nil
}

func errBytes(l Limits) error {
	return sandbox.Errorf(sandbox.QuotaExceeded, "the results of this exec's tool calls have more than %d bytes, which is the limit of one exec", l.Bytes)
}

// weigh counts the bytes of a result. A result beyond the limit is withheld; later calls are not made.
func (e *exec) weigh(n int) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.bytes += int64(n)
	if e.bytes > e.limits.Bytes {
		return errBytes(e.limits)
	}
	return nil
}

func (e *exec) release() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.parallel--
}

// start counts a call. What it returns is for finish.
func (e *exec) start(tool string) (call int, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return 0, errEnded
	}
	e.running++
	e.calls = append(e.calls, sandbox.ToolCall{Tool: tool})
	return len(e.calls) - 1, nil
}

func (e *exec) finish(call int, how sandbox.ToolCall) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls[call] = how
	e.running--
	if e.ended && e.running == 0 {
		close(e.idle)
	}
}

func (e *exec) end(wait time.Duration) []sandbox.ToolCall {
	e.mu.Lock()
	e.ended = true
	if e.running == 0 {
		close(e.idle)
	}
	e.mu.Unlock()
	e.cancel()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-e.idle:
	case <-timer.C:
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	calls := slices.Clone(e.calls)
	for i, c := range calls {
		if c.Status == "" {
			calls[i].Status, calls[i].Error = statusError, "the exec ended before the call did"
		}
	}
	return calls
}
