package elsewhere

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
	"github.com/skerry-sandbox/skerry/internal/tools/packs"
	"github.com/skerry-sandbox/skerry/internal/tools/packs/manifest"
)

const (
	// every is how often a server looks, and says that it lives.
	every = 500 * time.Millisecond
	// lease is how long a server may say nothing. A look without answers of other servers takes less.
	lease = 4 * time.Second
	// fresh is how long a server that has said that it lives is believed without a look at its process: that reads files
	// which may be on a network.
	fresh = time.Second
	// claimed is how long a name may be taken before its stream is registered.
	claimed = 3 * time.Second
	// nudgeTime bounds how long a stream waits until another server knows of it.
	nudgeTime = time.Second
	// lookTime bounds the look of a call that found its pack gone, and the last look.
	lookTime = 3 * time.Second
)

// Records are those of streams in the state that servers share.
type Records interface {
	ClaimPack(ctx context.Context, p store.PackStream, gone string, ttl time.Duration) (from string, other store.PackStream, err error)
	PutPack(ctx context.Context, p store.PackStream) error
	RemovePack(ctx context.Context, p store.PackStream) error
	ReadPacks(ctx context.Context, replica, epoch string, was store.PackView) (store.PackView, error)
	LeavePacks(ctx context.Context, replica string) error
}

// Servers are the others, and how they are reached.
type Servers interface {
	// ID names this server.
	ID() string
	// Alive reports whether a server's process is there.
	Alive(id string) bool
	// Transport sends a request to the server that the host of its URL names.
	Transport() http.RoundTripper
}

// name tells streams apart: a stream without what changes.
type name struct {
	tenant, id, channel string
	thread              sandbox.Thread
}

func nameOf(s sandbox.PackStream) name { return name{s.Tenant, s.ID, s.Channel, s.Thread} }

// written is what this server has written down of a stream of its own.
type written struct {
	stream sandbox.PackStream
	// until is when the claim of a stream that is not registered ends; zero: it is, or was.
	until time.Time
}

// Packs keeps what servers know of each other's packs. Make one with New, and Start it.
type Packs struct {
	records Records
	servers Servers
	log     *slog.Logger
	own     packs.Elsewhere
	epoch   string
	wake    chan struct{}
	stop    context.CancelFunc
	ended   chan struct{}

	rounds sync.Mutex
	view   store.PackView
	began  time.Time // the last look
	failed bool      // it got no answer
	// settled is until when what was known before an outage counts beside what is read.
	settled   time.Time
	manifests map[string]*manifest.Manifest // by digest, of the last look

	mu      sync.Mutex
	written map[name]written
	known   map[name]store.PackStream // of other servers
}

var _ packs.Others = (*Packs)(nil)

// New returns the packs of a server that knows no other yet.
func New(r Records, s Servers, log *slog.Logger) *Packs {
	var epoch [16]byte
	rand.Read(epoch[:]) //nolint:errcheck // never fails (crypto/rand)
	return &Packs{
		records: r, servers: s, log: log, epoch: hex.EncodeToString(epoch[:]), wake: make(chan struct{}, 1), ended: make(chan struct{}),
		manifests: map[string]*manifest.Manifest{}, written: map[name]written{}, known: map[name]store.PackStream{},
	}
}

// Start has a registry know the packs of other servers, and they know its packs, until Close.
func (p *Packs) Start(r *packs.Registry) {
	p.own = packs.NewElsewhere(r)
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	go p.run(ctx)
}

// Close says that the streams of this server are gone. No stream begins any more.
func (p *Packs) Close() error {
	if p.stop == nil {
		return nil // it was not started
	}
	p.stop()
	<-p.ended
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	err := p.records.LeavePacks(ctx, p.servers.ID())
	if sandbox.KindOf(err) == sandbox.Unavailable {
		return nil // the lease ends by itself
	}
	return err
}

func (p *Packs) run(ctx context.Context) {
	defer close(p.ended)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		p.rounds.Lock()
		p.round(ctx)
		p.rounds.Unlock()
		select {
		case <-tick.C:
		case <-p.wake:
		case <-ctx.Done():
			return
		}
	}
}

// Joined implements packs.Others.
func (p *Packs) Joined(ctx context.Context, s sandbox.PackStream) {
	p.Changed()
	if s.Home != "" && s.Home != p.servers.ID() && p.servers.Alive(s.Home) {
		p.nudge(ctx, s.Home, s.ID)
	}
}

// Changed implements packs.Others.
func (p *Packs) Changed() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Look implements packs.Others. A look that began later than this call serves it, too. Without a state there is nothing
// to look at.
func (p *Packs) Look(ctx context.Context) {
	asked := time.Now()
	p.rounds.Lock()
	defer p.rounds.Unlock()
	if p.failed || p.began.After(asked) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	p.round(ctx)
}

// Claim implements packs.Others. The server that a pack leaves knows of it when Claim returns.
func (p *Packs) Claim(ctx context.Context, s sandbox.PackStream) error {
	rec := store.PackStream{Replica: p.servers.ID(), PackStream: s}
	from, other, err := p.records.ClaimPack(ctx, rec, "", lease)
	if sandbox.KindOf(err) == sandbox.Conflict && other.Replica != "" && !p.servers.Alive(other.Replica) {
		from, other, err = p.records.ClaimPack(ctx, rec, other.Replica, lease)
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	if _, has := p.written[nameOf(s)]; !has {
		p.written[nameOf(s)] = written{s, time.Now().Add(claimed)}
	}
	p.mu.Unlock()
	if from != "" && p.servers.Alive(from) {
		p.nudge(ctx, from, s.ID)
	}
	return nil
}

// round looks once. The caller holds p.rounds.
func (p *Packs) round(ctx context.Context) {
	p.began = time.Now()
	epoch := p.view.Epoch
	view, err := p.records.ReadPacks(ctx, p.servers.ID(), p.epoch, p.view)
	if ctx.Err() != nil {
		return
	}
	switch {
	case err != nil && !p.failed:
		p.log.Warn("packs: where those of other servers are is as it was known last", "error", err)
	case err == nil && p.failed:
		p.settled = time.Now().Add(lease)
	}
	p.failed = err != nil
	if err == nil {
		p.view = view
	}
	lives := p.living()
	if err == nil {
		if epoch != "" && epoch != view.Epoch {
			p.settled = time.Now().Add(lease)
		}
		p.tell(ctx, epoch != view.Epoch)
		p.clean(ctx, lives)
	}
	p.follow(ctx, lives)
}

// living returns what tells for one look whether the process of a server is there. The caller holds p.rounds.
func (p *Packs) living() func(server string) bool {
	known := map[string]bool{p.servers.ID(): true}
	for server, silent := range p.view.Silent {
		if !p.failed && silent < fresh {
			known[server] = true
		}
	}
	return func(server string) bool {
		alive, asked := known[server]
		if !asked {
			alive = p.servers.Alive(server)
			known[server] = alive
		}
		return alive
	}
}

// tell writes down the streams of this server that are not written yet, all when the state lost them, and removes those that
// are gone.
func (p *Packs) tell(ctx context.Context, all bool) {
	own := map[name]sandbox.PackStream{}
	for _, s := range p.own.Own() {
		own[nameOf(s)] = s
	}
	there := map[name]store.PackStream{}
	for _, s := range p.view.Streams {
		there[nameOf(s.PackStream)] = s
	}
	p.mu.Lock()
	was := maps.Clone(p.written)
	p.mu.Unlock()
	me := p.servers.ID()
	for n, s := range own {
		rec, seen := there[n]
		moved := seen && rec.Replica != me
		visible := s.Channel == "" || s.Home == me
		if w := was[n]; !moved && !all && w.stream == s && (seen || !visible) {
			continue
		}
		err := error(nil)
		if !moved {
			err = p.records.PutPack(ctx, store.PackStream{Replica: me, PackStream: s})
		}
		switch {
		case moved || sandbox.KindOf(err) == sandbox.Conflict:
			p.moved(n, s)
		case err == nil:
			p.mu.Lock()
			p.written[n] = written{stream: s}
			p.mu.Unlock()
		default:
			p.log.Warn("pack: not told to other servers", "pack", s.ID, "error", err)
		}
	}
	for n, w := range was {
		if _, has := own[n]; has || time.Now().Before(w.until) {
			continue
		}
		if err := p.records.RemovePack(ctx, store.PackStream{Replica: me, PackStream: w.stream}); err == nil {
			p.mu.Lock()
			delete(p.written, n)
			p.mu.Unlock()
		}
	}
}

// moved notes that another server has a stream of this one. A stream that stops ends by itself.
func (p *Packs) moved(n name, s sandbox.PackStream) {
	p.mu.Lock()
	delete(p.written, n)
	p.mu.Unlock()
	if !s.Draining {
		p.own.Yield(s)
	}
}

// clean removes the records of servers whose processes have ended.
func (p *Packs) clean(ctx context.Context, lives func(string) bool) {
	for _, s := range p.view.Streams {
		if !lives(s.Replica) {
			_ = p.records.RemovePack(ctx, s) // the next look tries again
		}
	}
}

// follow puts the packs of other servers in force.
func (p *Packs) follow(ctx context.Context, lives func(string) bool) {
	now := map[name]store.PackStream{}
	if p.failed || time.Now().Before(p.settled) {
		p.mu.Lock()
		for n, s := range p.known {
			if lives(s.Replica) {
				now[n] = s
			}
		}
		p.mu.Unlock()
	}
	if !p.failed {
		for _, s := range p.view.Streams {
			n := nameOf(s.PackStream)
			silent, said := p.view.Silent[s.Replica]
			switch {
			case s.Replica == p.servers.ID():
				delete(now, n)
			case lives(s.Replica) && (said && silent < lease || time.Now().Before(p.settled)):
				now[n] = s
			}
		}
	}
	p.mu.Lock()
	p.known = now
	p.mu.Unlock()
	p.fetch(ctx, now)
	list := make([]packs.Far, 0, len(now))
	kept := make(map[string]*manifest.Manifest, len(now))
	for _, s := range now {
		m := p.manifests[s.Digest]
		if m == nil {
			continue // the next look gets it
		}
		kept[s.Digest] = m
		list = append(list, packs.Far{Server: s.Replica, PackStream: s.PackStream, Manifest: m, Call: func(ctx context.Context, call sandbox.PackCall) (json.RawMessage, error) {
			return p.call(ctx, s, call)
		}})
	}
	p.manifests = kept
	p.own.Set(list)
}

// fetchTime bounds how long one look waits for manifests.
const fetchTime = time.Second

// fetch gets the manifests that are missing, of all servers at once and of each one after another. What is not there in
// time comes with a later look.
func (p *Packs) fetch(ctx context.Context, now map[name]store.PackStream) {
	missing := map[string][]store.PackStream{}
	for _, s := range now {
		if p.manifests[s.Digest] != nil {
			continue
		}
		if m := p.own.Manifest(s.PackStream); m != nil {
			p.manifests[s.Digest] = m
			continue
		}
		missing[s.Replica] = append(missing[s.Replica], s)
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for server, streams := range missing {
		wg.Go(func() {
			for _, s := range streams {
				m, err := p.manifestOf(ctx, s)
				if err == nil {
					mu.Lock()
					p.manifests[m.Digest] = m
					mu.Unlock()
					continue
				}
				if !errors.Is(err, errNotHere) {
					p.log.Warn("pack: what it offers is not known yet", "pack", s.ID, "server", server, "error", err)
					return
				}
			}
		})
	}
	wg.Wait()
}
