package held

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	// OfCaller bounds the bytes of a caller at once. The largest body of an adapter, DeerFlow's, fits once with its copies.
	OfCaller = 320 << 20
	// InAll bounds those of all callers.
	InAll = 1 << 30
	// Copies is how often a body is in memory while it is decoded: as it came, in the decoder's buffer, which grows by
	// doubling, and as a value.
	Copies = 4
	// Short is an answer that is not counted: most are, and a caller who holds all its bytes can still look and delete.
	Short = 64 << 10
	wait  = 5 * time.Second
)

// Bytes are those of a server: of its API and its adapters.
type Bytes struct {
	// Wait is how long a request waits for others to end.
	Wait time.Duration

	all *semaphore.Weighted
	mu  sync.Mutex
	by  map[string]*share
}

// share is that of a caller who holds bytes, or waits for them.
type share struct {
	bytes    *semaphore.Weighted
	requests int
}

// New returns Bytes of which nothing is held.
func New() *Bytes {
	return &Bytes{Wait: wait, all: semaphore.NewWeighted(InAll), by: map[string]*share{}}
}

// Request is what one request holds. The zero value holds nothing and cannot take anything. It is for one goroutine.
type Request struct {
	bytes  *Bytes
	caller string
	share  *share
	n      int64
	answer int64 // of n: for an answer
}

// CallerOf names whose bytes are counted: those of a credential's own user, for whomever it acts.
func CallerOf(c sandbox.Caller) string { return c.Tenant + "\x00" + c.Actor }

// Of begins a request of a caller. Its end is End.
func (b *Bytes) Of(caller string) *Request { return &Request{bytes: b, caller: caller} }

// Take holds n more bytes, at most OfCaller. An error says that others held them for too long.
func (r *Request) Take(ctx context.Context, n int64) error {
	n = min(max(n, 0), OfCaller)
	if n == 0 {
		return nil
	}
	r.enter()
	waiting, cancel := context.WithTimeout(ctx, r.bytes.Wait)
	defer cancel()
	if !acquire(waiting, r.share.bytes, n) {
		return full(ctx, "the other requests of this caller hold %d MiB of bodies and files, the most: send fewer at once", OfCaller>>20)
	}
	if !acquire(waiting, r.bytes.all, n) {
		r.share.bytes.Release(n)
		return full(ctx, "the requests of all callers hold %d MiB of bodies and files, the most: try again", InAll>>20)
	}
	r.n += n
	return nil
}

// acquire takes what is free at once, even when the time to wait has passed on a busy machine: only a wait has an end.
func acquire(waiting context.Context, bytes *semaphore.Weighted, n int64) bool {
	return bytes.TryAcquire(n) || bytes.Acquire(waiting, n) == nil
}

// TakeBody holds what a body of a length may take, with its copies. One that does not say its length, or one beyond the most,
// counts as the longest.
func (r *Request) TakeBody(ctx context.Context, length, most int64) error {
	if length < 0 || length > most {
		length = most
	}
	return r.Take(ctx, Copies*length)
}

// KeepBody frees what a body did not need that has arrived.
func (r *Request) KeepBody(length int) { r.Keep(Copies * int64(length)) }

// Answer returns what is told how large an answer of the API has become, and holds that with its copies. Answers of one request come
// one after the other, so the longest counts; it is held until the request ends.
func (r *Request) Answer(ctx context.Context) func(bytes int64) error {
	return func(bytes int64) error {
		want := min(Copies*bytes, OfCaller)
		if bytes <= Short || want <= r.answer {
			return nil
		}
		err := r.Take(ctx, want-r.answer)
		if err == nil {
			r.answer = want
		}
		return err
	}
}

// full is the error of bytes that were not free in time. One whose client is gone is not the fault of others.
func full(ctx context.Context, format string, mib int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return sandbox.TooManyCalls(format, mib)
}

// Keep frees what is more than n bytes.
func (r *Request) Keep(n int64) {
	if free := r.n - max(n, 0); free > 0 {
		r.n -= free
		r.bytes.all.Release(free)
		r.share.bytes.Release(free)
	}
}

// End frees all. It may be called twice.
func (r *Request) End() {
	r.Keep(0)
	if r.share == nil {
		return
	}
	r.bytes.mu.Lock()
	defer r.bytes.mu.Unlock()
	if r.share.requests--; r.share.requests == 0 {
		delete(r.bytes.by, r.caller)
	}
	r.share = nil
}

// enter counts the request with its caller.
func (r *Request) enter() {
	if r.share != nil {
		return
	}
	r.bytes.mu.Lock()
	defer r.bytes.mu.Unlock()
	s := r.bytes.by[r.caller]
	if s == nil {
		s = &share{bytes: semaphore.NewWeighted(OfCaller)}
		r.bytes.by[r.caller] = s
	}
	s.requests++
	r.share = s
}
