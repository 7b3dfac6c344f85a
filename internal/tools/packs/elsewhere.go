package packs

import (
	"context"
	"encoding/json"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/packs/manifest"
)

// Others are the other servers of the installation, as a registry needs them.
type Others interface {
	// Claim takes the name of a pack, before its stream is registered here. Conflict: another server has it, and the
	// error names the owner. Unavailable: the state does not answer.
	Claim(ctx context.Context, s sandbox.PackStream) error
	// Joined is told that a stream of this server is registered. When it returns, the server that has the stream's skill
	// knows of it.
	Joined(ctx context.Context, s sandbox.PackStream)
	// Changed is told that a stream of this server has ended, or has other tools. It does not wait.
	Changed()
	// Look brings what is known of the others up to date.
	Look(ctx context.Context)
}

// alone is the Others of a server that has none.
type alone struct{}

func (alone) Claim(context.Context, sandbox.PackStream) error { return nil }

func (alone) Joined(context.Context, sandbox.PackStream) {}

func (alone) Changed() {}

func (alone) Look(context.Context) {}

// Far is a pack that is connected to another server.
type Far struct {
	Server string // that has it
	sandbox.PackStream
	Manifest *manifest.Manifest
	// Call makes a call there. An error that is NotStarted comes before the pack has had the call.
	Call func(ctx context.Context, call sandbox.PackCall) (json.RawMessage, error)
}

// Elsewhere is the side of a registry that other servers see, and where it is told of their packs.
type Elsewhere struct{ r *Registry }

// NewElsewhere returns that of a registry.
func NewElsewhere(r *Registry) Elsewhere { return Elsewhere{r} }

func keyOf(s sandbox.PackStream) packKey { return packKey{s.Tenant, s.ID, s.Thread, s.Channel} }

// streamOf is a session as other servers see it. The caller holds no lock.
func streamOf(s *session, m *manifest.Manifest, since time.Time) sandbox.PackStream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return sandbox.PackStream{
		ID: m.ID, Tenant: s.grant.Tenant, Thread: s.grant.Thread, Channel: s.grant.Channel, Home: s.grant.Server, Instance: s.instance,
		Identity: s.grant.Identity, Source: s.peer.Source, Since: since.UTC().Truncate(time.Millisecond), Digest: m.Digest, Draining: s.draining || s.leaving,
	}
}

// Own are the streams of this server.
func (e Elsewhere) Own() (list []sandbox.PackStream) {
	for _, p := range e.r.all() {
		p.mu.Lock()
		s, m, since := p.session, p.manifest, p.since
		p.mu.Unlock()
		if s != nil {
			list = append(list, streamOf(s, m, since))
		}
	}
	return list
}

// find returns the pack of a stream; nil: there is none.
func (e Elsewhere) find(s sandbox.PackStream) *Pack {
	e.r.mu.Lock()
	defer e.r.mu.Unlock()
	return e.r.packs[keyOf(s)]
}

// Manifest returns the manifest of a stream if this server has it; nil: it does not.
func (e Elsewhere) Manifest(s sandbox.PackStream) *manifest.Manifest {
	p := e.find(s)
	if p == nil {
		return nil
	}
	if m := p.Manifest(); m.Digest == s.Digest {
		return m
	}
	return nil
}

// Call makes a call of another server, by a stream that this one has.
func (e Elsewhere) Call(ctx context.Context, s sandbox.PackStream, call sandbox.PackCall) (json.RawMessage, error) {
	if p := e.find(s); p != nil {
		if own := p.own(); own != nil {
			return p.callHere(ctx, own, call)
		}
	}
	return nil, sandbox.NotStarted(sandbox.Errorf(sandbox.Unavailable, "the pack %q is unavailable: it is not connected to this server any more", s.ID))
}

// Set says which packs other servers have. Those of the call before that are not among them have gone from there.
func (e Elsewhere) Set(list []Far) {
	var notify []func()
	defer func() {
		for _, f := range notify {
			f()
		}
	}()
	e.r.mu.Lock()
	defer e.r.mu.Unlock()
	there := make(map[packKey]*Far, len(list))
	for i := range list {
		there[keyOf(list[i].PackStream)] = &list[i]
	}
	for key, p := range e.r.packs {
		if there[key] == nil {
			p.goneFar()
		}
	}
	told := false
	for key, far := range there {
		p := e.r.packs[key]
		fresh := p == nil
		if fresh {
			p = e.r.newPack(key)
			e.r.packs[key] = p
		}
		if other := p.putFar(far); !other && !fresh {
			continue
		}
		tell := e.r.stale(key)
		if key.ofSkill() || !told { // the listener of packs looks at all of them
			notify = append(notify, tell)
		}
		told = told || !key.ofSkill()
	}
}

// Yield ends the stream of this server in favour of one that another server has.
func (e Elsewhere) Yield(s sandbox.PackStream) {
	p := e.find(s)
	if p == nil {
		return
	}
	if own := p.own(); own != nil && own.instance == s.Instance {
		own.end(sandbox.Errorf(sandbox.Conflict, "the pack %q is connected to another server", s.ID))
	}
}

// Leave tells packs that the server stops and others go on: they connect there, and end the calls of their streams here. No
// new stream is taken from now on.
func (e Elsewhere) Leave() {
	e.r.mu.Lock()
	e.r.leaving = true
	e.r.mu.Unlock()
	for _, p := range e.r.all() {
		if own := p.own(); own != nil {
			own.leave()
		}
	}
	e.r.o.Others.Changed()
}

// quietLook is how often Quiet looks.
const quietLook = 20 * time.Millisecond

// Quiet waits until the streams of this server have no calls under way, or ctx ends.
func (e Elsewhere) Quiet(ctx context.Context) {
	look := time.NewTicker(quietLook)
	defer look.Stop()
	for e.running() > 0 {
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

func (e Elsewhere) running() (n int) {
	for _, p := range e.r.all() {
		if own := p.own(); own != nil {
			running, _, _ := own.counts()
			n += running
		}
	}
	return n
}
