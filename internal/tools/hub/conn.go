package hub

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/breaker"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/login"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/serverconfig"
)

// Times of a connection's life.
const (
	backoffFirst = time.Second
	backoffMost  = time.Minute
	// shortLife: a process that ends sooner counts as a failed attempt.
	shortLife = 5 * time.Second
	// retryFor is how long after its last use a failed server is tried again by itself.
	retryFor = 10 * time.Minute
	// forgetAfter is when an unused connection's tools are forgotten too.
	forgetAfter = 24 * time.Hour
	// drainTime is how long calls may go on in a connection whose configuration changed.
	drainTime = 10 * time.Second
)

// conn is the connection of one scope to one server: there or not. It lives as long as the part of the
// server's configuration stays the same that says how to connect.
type conn struct {
	o          *Options
	background *background
	changes    *changes
	dialer     *dialer

	key   connKey
	cfg   *serverconfig.Server  // by which it is connected
	terms atomic.Pointer[terms] // by which it is used
	calls atomic.Int32          // in progress or waiting for a place

	mu       sync.Mutex
	link     *link    // nil while there is none
	attempt  *attempt // in progress
	tools    *toolList
	tried    bool
	err      error // of the last attempt, or why the link ended
	failures int
	retryAt  time.Time
	used     time.Time
	retired  bool
	breaker  breaker.Breaker
}

func newConn(p *pool, key connKey, s *serverconfig.Server) *conn {
	c := &conn{o: p.o, background: p.background, changes: p.changes, dialer: p.dialer, key: key, cfg: s, used: time.Now()}
	c.terms.Store(newTerms(s, p.o.MaxParallel))
	return c
}

// dial returns what connects to the server.
func (c *conn) dial() *dial {
	return &dial{dialer: c.dialer, key: c.key, cfg: c.cfg, current: c.current}
}

// current is the configuration that is in force.
func (c *conn) current() *serverconfig.Server { return c.terms.Load().cfg }

// attempt is one attempt to connect. link and err are set when done is closed.
type attempt struct {
	began time.Time
	done  chan struct{}
	link  *link
	err   error
}

// adopt puts new terms in force. Calls in progress end under the old ones.
func (c *conn) adopt(s *serverconfig.Server) {
	if c.terms.Load().are(s) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.terms.Load().cfg.Drift != s.Drift {
		c.background.spawn(c.recheck)
	}
	c.terms.Store(newTerms(s, c.o.MaxParallel))
	if c.tools != nil {
		c.tools = c.tools.under(s)
	}
	c.changes.epoch.Add(1)
}

func (c *conn) maintain(now time.Time) (forget bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	unused := now.Sub(c.used)
	if l := c.link; l != nil && l.process != nil && l.process.Stuck(c.o.DripTime) && c.calls.Load() > 0 {
		l.drips.Store(true)
		c.link = nil // the next call starts the server anew
		c.changes.epoch.Add(1)
		c.background.spawn(l.close)
		c.o.Log.Warn("MCP server: started anew, one message came in too slowly", "server", c.key.server)
		return false
	}
	switch {
	case c.retired || c.attempt != nil || c.calls.Load() > 0:
	case c.link != nil && unused > c.o.IdleTimeout && c.cfg.Type != serverconfig.TransportPack:
		l := c.link
		c.link = nil
		c.changes.epoch.Add(1)
		c.background.spawn(l.close)
	case c.link == nil && unused > forgetAfter:
		return true
	case c.link == nil && c.err != nil && unused < retryFor && now.After(c.retryAt):
		c.begin()
	}
	return false
}

// idle reports when the connection was last used, and whether it is unused now.
func (c *conn) idle() (used time.Time, idle bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used, c.attempt == nil && c.calls.Load() == 0
}

func (c *conn) touch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used = time.Now()
}

// begin starts an attempt to connect, or joins the one in progress. The caller holds c.mu.
func (c *conn) begin() *attempt {
	if c.attempt == nil {
		a := &attempt{began: time.Now(), done: make(chan struct{})}
		c.attempt = a
		ok := c.background.spawn(func() {
			ctx, cancel := context.WithTimeout(c.background.ctx, c.o.ConnectTimeout)
			defer cancel()
			l, tools, err := c.dial().connect(ctx)
			c.settle(a, l, tools, err)
		})
		if !ok {
			c.attempt, a.err = nil, errStopping
			close(a.done)
			return a
		}
	}
	return c.attempt
}

// settle ends an attempt.
func (c *conn) settle(a *attempt, l *link, tools *toolList, err error) {
	c.mu.Lock()
	if c.retired && err == nil {
		err = errRetired
	}
	if err == nil {
		tools = tools.under(c.terms.Load().cfg)
	}
	changed := err == nil && !tools.same(c.tools)
	again := c.err != nil && err != nil && c.err.Error() == err.Error()
	if err == nil {
		c.link, c.tools, c.err = l, tools, nil
	} else {
		c.fail(err)
	}
	c.attempt, c.tried = nil, true
	a.link, a.err = l, err
	if err != nil {
		a.link = nil
	}
	c.mu.Unlock()
	if l != nil && (err != nil || !c.background.spawn(func() { c.watch(l) })) {
		l.close()
	}
	if err != nil && !again && !errors.Is(err, errRetired) && !errors.Is(err, errStopping) {
		c.o.Log.Warn("MCP server: no connection", "server", c.key.server, "error", err)
	}
	c.changes.bump(changed)
	close(a.done)
}

var errStopping = sandbox.Errorf(sandbox.Unavailable, "the server is stopping")

var errRetired = sandbox.Errorf(sandbox.Unavailable, "the configuration of the MCP server has changed; try again")

// fail notes a failure and when to try again. The caller holds c.mu.
func (c *conn) fail(err error) {
	c.err = err
	c.retryAt = time.Now().Add(min(backoffFirst<<min(c.failures, 10), backoffMost))
	c.failures++
}

// ensure returns the link, connecting when there is none. While the server is failing it says so at once.
func (c *conn) ensure(ctx context.Context) (*link, error) {
	c.mu.Lock()
	if c.link != nil {
		l := c.link
		c.mu.Unlock()
		return l, nil
	}
	if c.retired {
		c.mu.Unlock()
		return nil, errRetired
	}
	if c.attempt == nil && c.err != nil && time.Now().Before(c.retryAt) {
		err := c.err
		c.mu.Unlock()
		return nil, err
	}
	a := c.begin()
	c.mu.Unlock()
	select {
	case <-a.done:
		return a.link, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// firstContact waits for the first attempt to connect, but not longer than wait after its beginning. What came
// of it is in the conn.
func (c *conn) firstContact(ctx context.Context, wait time.Duration) {
	c.mu.Lock()
	c.used = time.Now()
	if c.tried || c.retired || c.link != nil {
		c.mu.Unlock()
		return
	}
	a := c.begin()
	c.mu.Unlock()
	t := time.NewTimer(time.Until(a.began.Add(wait)))
	defer t.Stop()
	select {
	case <-a.done:
	case <-t.C:
	case <-ctx.Done():
	}
}

// watch sees a link to its end, and lists the tools again when the server says that they changed.
func (c *conn) watch(l *link) {
	for {
		stale, stop := c.staleness(l)
		select {
		case <-l.dead:
			stop()
			c.lost(l)
			l.close()
			return
		case <-l.changed:
			stop()
			c.relist(l)
		case <-l.others[sandbox.UpstreamPrompts]:
			stop()
			c.changes.upstream.notify(sandbox.UpstreamPrompts)
		case <-l.others[sandbox.UpstreamResources]:
			stop()
			c.changes.upstream.notify(sandbox.UpstreamResources)
		case <-stale:
			c.relist(l)
		}
		if l.ctx.Err() == nil {
			// A server that cries all the time is not heard all the time.
			select {
			case <-l.dead:
			case <-time.After(relistPause):
			}
		}
	}
}

const relistPause = 200 * time.Millisecond

// staleness fires when the tools that were listed on a link are as old as the server allows.
func (c *conn) staleness(l *link) (fires <-chan time.Time, stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link != l || c.tools == nil || c.tools.ttl == 0 {
		return nil, func() {}
	}
	t := time.NewTimer(c.tools.ttl)
	return t.C, func() { t.Stop() }
}

func (c *conn) relist(l *link) {
	ctx, cancel := context.WithTimeout(l.ctx, c.o.ConnectTimeout)
	defer cancel()
	tools, err := c.dial().list(ctx, l)
	if err != nil {
		c.o.Log.Warn("MCP server: tools not listed", "server", c.key.server, "error", err)
		return
	}
	c.mu.Lock()
	tools = tools.under(c.terms.Load().cfg)
	changed := c.link == l && !tools.same(c.tools)
	if c.link == l {
		c.tools = tools
	}
	c.mu.Unlock()
	if changed {
		c.changes.bump(true)
	}
}

// lost notes that a link has ended by itself. A link that lived for a while is replaced at once when it is
// needed.
func (c *conn) lost(l *link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link != l {
		return
	}
	c.link = nil
	c.changes.epoch.Add(1)
	if l.process != nil && time.Since(l.born) < shortLife {
		c.fail(sandbox.Errorf(sandbox.Unavailable, "the MCP server %q ended right after it was connected", c.key.server))
	} else {
		c.failures, c.err = 0, nil
	}
	c.o.Log.Info("MCP server: connection ended", "server", c.key.server, "says", l.lastWords())
}

// drop abandons a link that is of no use any more.
func (c *conn) drop(l *link) {
	c.mu.Lock()
	if c.link == l {
		c.link = nil
		if time.Since(l.born) >= shortLife {
			c.failures = 0
		}
	}
	c.mu.Unlock()
	c.changes.epoch.Add(1)
	if !c.background.spawn(l.close) {
		l.close()
	}
}

// wait notes what the server waits for, when no goroutine connects to it anew already.
func (c *conn) wait(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link == nil && c.attempt == nil {
		c.fail(err)
	}
}

// drain waits for the calls in progress, for a while.
func (c *conn) drain(ctx context.Context) {
	deadline := time.NewTimer(drainTime)
	defer deadline.Stop()
	t := time.NewTicker(20 * time.Millisecond)
	defer t.Stop()
	for c.calls.Load() > 0 {
		select {
		case <-ctx.Done():
			return
		case <-deadline.C:
			return
		case <-t.C:
		}
	}
}

// close ends the connection for good and returns when nothing of it is left.
func (c *conn) close() {
	c.mu.Lock()
	c.retired = true
	a, l := c.attempt, c.link
	c.link = nil
	c.mu.Unlock()
	if l != nil {
		l.close()
	}
	if a != nil {
		<-a.done
	}
}

// known returns the tools that were listed last, and the state for people.
func (c *conn) known() (tools *toolList, state string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.link != nil:
		state = "ready"
	case c.err != nil:
		state, err = stateFailed, c.err
		if errors.Is(err, login.ErrNeeded) {
			state = stateNeedsLogin
		}
	default:
		state = "idle"
	}
	return c.tools, state, err
}

// outdated reports whether the connection has, or waits with an error for, other values than there are now.
func (c *conn) outdated() bool {
	if !c.cfg.NamesSecrets() && c.cfg.User == nil {
		return false
	}
	c.mu.Lock()
	l, err := c.link, c.err
	c.mu.Unlock()
	if l == nil {
		return err != nil // what was missing may be there now
	}
	t, err := c.dial().target(c.background.ctx)
	return sandbox.KindOf(err) != sandbox.Unavailable && (err != nil || t.Sum() != l.made)
}

// recheck compares the tools that a connection knows again: something was approved, or the policy is another.
func (c *conn) recheck() {
	c.mu.Lock()
	tools := c.tools
	c.mu.Unlock()
	if tools == nil {
		return
	}
	away, err := c.dialer.pins.check(c.background.ctx, c.key, c.current(), tools.listed)
	if err != nil || maps.Equal(away, tools.quarantined) {
		return
	}
	c.mu.Lock()
	same := c.tools == tools
	if same {
		again := *tools
		again.quarantined = away
		c.tools = again.under(c.terms.Load().cfg)
	}
	c.mu.Unlock()
	if same {
		c.changes.bump(true)
	}
}
