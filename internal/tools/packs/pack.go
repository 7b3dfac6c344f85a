package packs

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/packs/manifest"
)

// Pack is one pack: connected, or away and expected back. It is what the hub calls.
type Pack struct {
	registry *Registry
	key      packKey
	number   string // of this pack on this server: one that was forgotten and comes back is another one

	mu       sync.Mutex
	manifest *manifest.Manifest
	changed  chan struct{} // closed and replaced when the tools are others
	session  *session      // nil while it is away
	last     *session      // the newest, for people
	since    time.Time     // when it connected or went
	gone     *time.Timer   // forgets it; nil while it is there
	closed   bool
}

var _ sandbox.ToolPack = (*Pack)(nil)

// Manifest is the one in force.
func (p *Pack) Manifest() *manifest.Manifest {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.manifest
}

// List implements sandbox.ToolPack.
func (p *Pack) List() (json.RawMessage, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.manifest.List, p.changed
}

// Call implements sandbox.ToolPack.
func (p *Pack) Call(ctx context.Context, call sandbox.PackCall) (json.RawMessage, error) {
	p.mu.Lock()
	s := p.session
	p.mu.Unlock()
	if s == nil {
		return nil, p.errAway()
	}
	return s.call(ctx, call)
}

func (p *Pack) errAway() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return sandbox.NotStarted(sandbox.Errorf(sandbox.Unavailable, "the pack %q is unavailable: it has not been connected since %s", p.key.id, p.since.UTC().Format(time.RFC3339)))
}

// Away implements sandbox.ToolPack.
func (p *Pack) Away() error {
	p.mu.Lock()
	s := p.session
	p.mu.Unlock()
	switch {
	case s == nil:
		return p.errAway()
	case s.isDraining():
		return p.errStopping()
	}
	return nil
}

func (p *Pack) errStopping() error {
	return sandbox.NotStarted(sandbox.Errorf(sandbox.Unavailable, "the pack %q is unavailable: it is stopping, and takes no new calls", p.key.id))
}

// away reports whether the pack has no session.
func (p *Pack) away() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.session == nil
}

// take gives the pack a session. other says that its tools are not those that it had. A second stream is refused, unless
// the first one is stopping, or belongs to the same run of the same program.
func (p *Pack) take(s *session, m *manifest.Manifest) (other bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false, errServerStops
	}
	if old := p.session; old != nil {
		same := s.instance != "" && old.instance == s.instance && old.grant.Identity == s.grant.Identity
		if !same && !old.isDraining() {
			return false, sandbox.Errorf(sandbox.Conflict, "the pack %q is connected already: %s provides it since %s, from %s", p.key.id, old.grant.Identity, p.since.UTC().Format(time.RFC3339), old.peer.Source)
		}
		if same {
			old.end(sandbox.Errorf(sandbox.Unavailable, "the pack %q has opened another stream", p.key.id))
		}
	}
	if p.gone != nil {
		p.gone.Stop()
		p.gone = nil
	}
	p.session, p.last, p.since = s, s, time.Now()
	s.pack = p
	return p.replace(m), nil
}

// put puts a manifest in force. It reports whether the tools are others.
func (p *Pack) put(m *manifest.Manifest) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.replace(m)
}

func (p *Pack) replace(m *manifest.Manifest) (other bool) {
	other = !m.Same(p.manifest)
	p.manifest = m
	if other {
		close(p.changed)
		p.changed = make(chan struct{})
	}
	return other
}

// left notes that a session has ended.
func (p *Pack) left(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session != s {
		return
	}
	p.session, p.since = nil, time.Now()
	if !p.closed {
		p.gone = time.AfterFunc(p.registry.o.Grace, func() { p.registry.forget(p) })
	}
}

// close ends the session for good.
func (p *Pack) close() {
	p.mu.Lock()
	p.closed = true
	s := p.session
	if p.gone != nil {
		p.gone.Stop()
	}
	p.mu.Unlock()
	if s != nil {
		s.end(errServerStops)
	}
}

// info is the pack as administrators see it.
func (p *Pack) info() sandbox.PackInfo {
	p.mu.Lock()
	m, s, last, since := p.manifest, p.session, p.last, p.since
	p.mu.Unlock()
	i := sandbox.PackInfo{
		ID: p.key.id, Tenant: p.key.tenant, Version: m.Version, Description: m.Description, Parallel: m.Parallel, State: sandbox.PackConnected,
		Identity: last.grant.Identity, Source: last.peer.Source, Since: since, Tools: m.Tools, ToolCount: len(m.Tools),
	}
	i.Running, i.Calls, i.Late = last.counts()
	switch {
	case s == nil:
		i.State = sandbox.PackUnavailable
		i.Error = detailOf(last.why())
	case s.isDraining():
		i.State = sandbox.PackDraining
	}
	if owner := p.registry.taken(p.key); owner != "" {
		i.Error = "its name is taken by " + owner
	}
	return i
}

var errServerStops = sandbox.Errorf(sandbox.Unavailable, "the server is stopping")
