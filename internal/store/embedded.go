package store

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/skerry-sandbox/skerry/internal/store/journal"
	"github.com/skerry-sandbox/skerry/internal/store/socketpair"
)

const (
	// tick is how often the clock of the embedded state moves: the granularity of its TTLs. (ClockTTL
	// would walk over all keys at every command instead.) A tick walks over all keys once, with
	// all other calls waiting; with so many that it takes long, ticks become rarer: a hundredth of
	// the time at most goes there.
	tick      = 250 * time.Millisecond
	tickShare = 100
	// maxAnswers bounds the memory of the idempotent answers, in bytes: those of a day could be any
	// number. (A Redis of its own has maxmemory.)
	maxAnswers = 128 << 20
)

// embedded is miniredis in this process. It listens nowhere: each connection is a socket pair, so
// that no other process of the host can reach the state.
type embedded struct {
	mini *miniredis.Miniredis
	stop chan struct{}
	wg   sync.WaitGroup

	mu          sync.Mutex
	srv         *server.Server // nil when closed
	answers     []answer       // oldest first
	answerBytes int
}

// answer is a kept answer of an idempotent request.
type answer struct {
	key  string
	size int
}

func startEmbedded() (*embedded, error) {
	e := &embedded{mini: miniredis.NewMiniRedis(), stop: make(chan struct{})}
	// A first connection starts the server; the others are socket pairs.
	first, err := e.mini.Dial()
	if err != nil {
		return nil, err
	}
	if err := first.Close(); err != nil {
		return nil, err
	}
	e.srv = e.mini.Server()
	e.wg.Go(e.clock)
	return e, nil
}

// clock moves the time on: miniredis expires nothing by itself.
func (e *embedded) clock() {
	t := time.NewTimer(tick)
	defer t.Stop()
	last := time.Now()
	for {
		select {
		case <-e.stop:
			return
		case <-t.C:
		}
		now := time.Now()
		e.mini.FastForward(now.Sub(last))
		last = now
		t.Reset(max(tick, tickShare*time.Since(now)))
	}
}

// remember counts an answer, and returns the keys of the oldest ones that must go for it.
func (e *embedded) remember(key string, size int) (gone []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.answers = append(e.answers, answer{key, size})
	e.answerBytes += size
	for e.answerBytes > maxAnswers || len(e.answers) > maxAnswers/(4<<10) {
		gone = append(gone, e.answers[0].key)
		e.answerBytes -= e.answers[0].size
		e.answers = e.answers[1:]
	}
	return gone
}

func (e *embedded) close() {
	close(e.stop)
	e.wg.Wait()
	e.mu.Lock()
	e.srv = nil
	e.mu.Unlock()
	e.mini.Close()
}

func (e *embedded) client() *redis.Client {
	o := &redis.Options{
		Addr:   "embedded",
		Dialer: func(context.Context, string, string) (net.Conn, error) { return e.dial() },
		// The name of the client library is of no interest here, and miniredis does not take it.
		DisableIdentity: true,
	}
	tuneClient(o)
	return redis.NewClient(o)
}

func (e *embedded) dial() (net.Conn, error) {
	client, served, err := socketpair.New()
	if err != nil {
		return nil, err
	}
	if err := e.serve(served); err != nil {
		_ = errors.Join(client.Close(), served.Close())
		return nil, err
	}
	return client, nil
}

func (e *embedded) serve(c net.Conn) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.srv == nil {
		return redis.ErrClosed
	}
	e.srv.ServeConn(c)
	return nil
}

// load puts a record of the journal in place.
func (e *embedded) load(en journal.Entry) {
	e.mini.HSet(en.Key, en.Field, string(en.Value))
	if en.Index != "" {
		_, _ = e.mini.ZAdd(en.Index, 0, en.Field) // fails only on a key of another type
		e.loadActivity(en)
		return
	}
	e.loadDisk(en)
}
