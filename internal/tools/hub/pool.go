package hub

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/serverconfig"
)

// pool has the connections to MCP servers: one for each server and scope that was needed.
type pool struct {
	o          *Options
	background *background
	changes    *changes
	dialer     *dialer

	mu     sync.Mutex // taken before that of a conn
	closed bool
	conns  map[connKey]*conn
}

// all returns the connections that there are now.
func (p *pool) all() []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.conns))
}

// find returns the connection for a thread to a server, or nil.
func (p *pool) find(s *serverconfig.Server, t sandbox.Thread) *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conns[connKey{s.Name, serverconfig.ScopeOf(s.Scope, t)}]
}

// close ends all connections, and the goroutines of the hub. It reports false when that was done before.
func (p *pool) close() bool {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return false
	}
	p.closed = true
	conns := p.conns
	p.conns = map[connKey]*conn{}
	p.mu.Unlock()
	p.background.stop()
	var wg sync.WaitGroup
	for _, c := range conns {
		wg.Go(c.close)
	}
	wg.Wait()
	p.background.wg.Wait()
	return true
}

// reconnect ends the connections to a server; the next use makes new ones.
func (p *pool) reconnect(match func(*conn) bool) {
	p.retire(match)
	p.changes.bump(true)
}

// get returns the connection for a thread to a server, made when there is none yet.
func (p *pool) get(s *serverconfig.Server, t sandbox.Thread) (*conn, error) {
	key := connKey{s.Name, serverconfig.ScopeOf(s.Scope, t)}
	p.mu.Lock()
	c := p.conns[key]
	if c != nil && c.cfg.SameDial(s) {
		p.mu.Unlock()
		c.adopt(s)
		return c, nil
	}
	defer p.mu.Unlock()
	if p.closed {
		return nil, errStopping
	}
	if c != nil {
		p.release(c)
	}
	if len(p.conns) >= p.o.MaxConnections && !p.evict() {
		return nil, p.errFull()
	}
	c = newConn(p, key, s)
	p.conns[key] = c
	return c, nil
}

func (p *pool) errFull() error {
	return sandbox.Errorf(sandbox.CapacityExceeded, "all %d connections to MCP servers are in use", p.o.MaxConnections)
}

// release closes a connection in the background. The caller holds p.mu, the hub is not closed, and
// the connection is taken out of the map.
func (p *pool) release(c *conn) {
	p.background.spawn(func() {
		c.drain(p.background.ctx)
		c.close()
	})
}

// evict makes room by closing the connection that was unused for the longest time. The caller holds p.mu.
func (p *pool) evict() bool {
	var oldest *conn
	var when time.Time
	for _, c := range p.conns {
		if used, idle := c.idle(); idle && (oldest == nil || used.Before(when)) {
			oldest, when = c, used
		}
	}
	if oldest == nil {
		return false
	}
	delete(p.conns, oldest.key)
	p.changes.epoch.Add(1)
	p.release(oldest)
	return true
}

// retire closes the connections that match.
func (p *pool) retire(match func(*conn) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	for key, c := range p.conns {
		if match(c) {
			delete(p.conns, key)
			p.changes.epoch.Add(1)
			p.release(c)
		}
	}
}

// retireStale closes the connections to servers whose configuration is not in force any more. Servers whose
// connection settings are unchanged go on under the new terms.
func (p *pool) retireStale(cfg *serverconfig.Set) {
	p.retire(func(c *conn) bool {
		if c.cfg.User != nil {
			return false // its user's configuration decides
		}
		s := cfg.ByName[c.key.server]
		if s == nil || !s.IsEnabled() || s.Err != nil || !c.cfg.SameDial(s) {
			return true
		}
		c.adopt(s)
		return false
	})
}

// maintain takes care of each connection once in a while.
func (p *pool) maintain(now time.Time) {
	var old []*conn
	for _, c := range p.all() {
		if c.maintain(now) {
			old = append(old, c)
		}
	}
	for _, c := range old {
		p.retire(func(other *conn) bool { return other == c })
	}
}

// recheck compares the tools of all connections to a server again; with "", those of which some are quarantined.
func (p *pool) recheck(server string) {
	for _, c := range p.all() {
		if c.key.server != server && server != "" {
			continue
		}
		if tools, _, _ := c.known(); tools == nil || server == "" && len(tools.quarantined) == 0 {
			continue
		}
		c.recheck()
	}
}

// secretsChanged looks at all connections: a connection that would be made with other values now ends after its calls, and
// is made anew when it is needed.
func (p *pool) secretsChanged() {
	p.background.spawn(func() {
		for _, c := range p.all() {
			if c.outdated() {
				p.retire(func(other *conn) bool { return other == c })
			}
		}
	})
}

// connKey names a connection.
type connKey struct {
	server string
	scope  serverconfig.Scope
}

// retireOf closes a user's connections to removed servers of their own.
func (p *pool) retireOf(o sandbox.Owner, cfg *serverconfig.Set) {
	p.retire(func(c *conn) bool {
		if c.cfg.User == nil || c.key.scope != serverconfig.ScopeOf(c.cfg.Scope, sandbox.Thread{Owner: o}) {
			return false
		}
		s := cfg.ByName[c.key.server]
		return s == nil || s.Err != nil || !c.cfg.SameDial(s)
	})
}
