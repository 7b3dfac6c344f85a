package packs

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/packs/manifest"
)

// Pack is one pack: connected here or to another server, or away and expected back. It is what the hub calls.
type Pack struct {
	registry *Registry
	key      packKey
	number   string // of this pack on this server: one that was forgotten and comes back is another one

	mu       sync.Mutex
	manifest *manifest.Manifest
	changed  chan struct{} // closed and replaced when the tools are others
	session  *session      // its stream of this server; nil: there is none
	far      *Far          // what another server has of it; nil: none has
	places   chan struct{} // has a token for each call by the streams of this server
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
	if len(call.Input) > maxInput {
		return nil, sandbox.Errorf(sandbox.Invalid, "the arguments have %d bytes; a pack takes at most %d", len(call.Input), maxInput)
	}
	s, far := p.now()
	raw, err := p.callAt(ctx, s, far, call)
	if sandbox.IsNotStarted(err) && ctx.Err() == nil { // it may be at another server by now
		p.registry.o.Others.Look(ctx)
		if other, there := p.now(); other != s || !far.sameServer(there) {
			raw, err = p.callAt(ctx, other, there, call)
		}
	}
	return raw, err
}

// now returns where calls go: to a stream of this server, or to another server. A stream that stops is the last choice.
func (p *Pack) now() (*session, *Far) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch s, far := p.session, p.far; {
	case s != nil && (far == nil || far.Draining || !s.isDraining()):
		return s, nil
	default:
		return nil, far
	}
}

func (f *Far) sameServer(other *Far) bool {
	return f == nil && other == nil || f != nil && other != nil && f.Server == other.Server
}

func (p *Pack) callAt(ctx context.Context, s *session, far *Far, call sandbox.PackCall) (json.RawMessage, error) {
	switch {
	case s != nil:
		return p.callHere(ctx, s, call)
	case far != nil:
		return far.Call(ctx, call)
	}
	return nil, p.errAway()
}

// callHere makes a call by a stream of this server. Calls of all servers share the places of the pack.
func (p *Pack) callHere(ctx context.Context, s *session, call sandbox.PackCall) (json.RawMessage, error) {
	p.mu.Lock()
	places := p.places
	p.mu.Unlock()
	select {
	case places <- struct{}{}:
		defer func() { <-places }()
	case <-s.ended: // which the call says
	case <-ctx.Done():
		return nil, ctx.Err()
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
	switch s, far := p.now(); {
	case s == nil && far == nil:
		return p.errAway()
	case s != nil && s.isDraining(), far != nil && far.Draining:
		return p.errStopping()
	}
	return nil
}

func (p *Pack) errStopping() error {
	return sandbox.NotStarted(sandbox.Errorf(sandbox.Unavailable, "the pack %q is unavailable: it is stopping, and takes no new calls", p.key.id))
}

// errLost is what the caller of a call is told when its stream has ended. sent: the pack knows of the call.
func (p *Pack) errLost(sent bool, why error) error {
	if sent {
		return sandbox.Errorf(sandbox.Unavailable, "the pack %q went while the call ran, and the call may have had its effect: %s", p.key.id, detailOf(why))
	}
	return sandbox.NotStarted(sandbox.Errorf(sandbox.Unavailable, "the pack %q is unavailable: %s", p.key.id, detailOf(why)))
}

// away reports whether the pack is connected to no server.
func (p *Pack) away() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.session == nil && p.far == nil
}

// own returns the stream of this server; nil: there is none.
func (p *Pack) own() *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.session
}

// isFar reports whether another server has the pack, and this one has not.
func (p *Pack) isFar() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.session == nil && p.far != nil
}

// putFar notes that another server has the pack. It reports whether the tools are others.
func (p *Pack) putFar(far *Far) (other bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.far = far
	p.stay()
	if p.session != nil && !p.session.isDraining() {
		return false
	}
	if p.session == nil {
		p.since = far.Since
	}
	return p.replace(far.Manifest)
}

// goneFar notes that no other server has the pack.
func (p *Pack) goneFar() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.far == nil {
		return
	}
	p.far = nil
	if p.session == nil {
		p.since = time.Now()
		p.expire()
	}
}

// expire has the pack forgotten when it does not come back. The caller holds p.mu.
func (p *Pack) expire() {
	if !p.closed {
		p.gone = time.AfterFunc(p.registry.o.Grace, func() { p.registry.forget(p) })
	}
}

// stay is the end of expire. The caller holds p.mu.
func (p *Pack) stay() {
	if p.gone != nil {
		p.gone.Stop()
		p.gone = nil
	}
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
	p.stay()
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
	if p.manifest == nil || p.manifest.Parallel != m.Parallel {
		p.places = make(chan struct{}, m.Parallel)
	}
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
	p.session = nil
	if p.far == nil {
		p.since = time.Now()
		p.expire()
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
	m, s, far, last, since := p.manifest, p.session, p.far, p.last, p.since
	p.mu.Unlock()
	i := sandbox.PackInfo{
		ID: p.key.id, Tenant: p.key.tenant, Version: m.Version, Description: m.Description, Parallel: m.Parallel, State: sandbox.PackConnected,
		Since: since, Tools: m.Tools, ToolCount: len(m.Tools),
	}
	if last != nil {
		i.Identity, i.Source = last.grant.Identity, last.peer.Source
	}
	switch {
	case s != nil:
		i.Running, i.Calls, i.Late = s.counts()
		if s.isDraining() {
			i.State = sandbox.PackDraining
		}
	case far != nil:
		i.Identity, i.Source, i.Server = far.Identity, far.Source, far.Server
		if far.Draining {
			i.State = sandbox.PackDraining
		}
	default:
		i.State, i.Error = sandbox.PackUnavailable, "the server that had it has ended"
		if last != nil {
			i.Running, i.Calls, i.Late = last.counts()
			i.Error = detailOf(last.why())
		}
	}
	if owner := p.registry.taken(p.key); owner != "" {
		i.Error = "its name is taken by " + owner
	}
	return i
}

var errServerStops = sandbox.Errorf(sandbox.Unavailable, "the server is stopping")
