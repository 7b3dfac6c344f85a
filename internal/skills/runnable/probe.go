package runnable

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// probeScript prints what a sandbox has, for parseProfile. sh runs it.
//
//go:embed probe.sh
var probeScript string

// probeTimeout bounds one probe, the start of its sandbox included.
const probeTimeout = 2 * time.Minute

// waitForProbe is for how long after its begin questions wait for a probe: a list of skills, which asks for
// each of them, must not wait for a slow image.
const waitForProbe = 3 * time.Second

// probeAgain is how long a failed probe is not tried again.
const probeAgain = time.Minute

// Sandboxes is what a probe needs of who starts sandboxes.
type Sandboxes interface {
	// Image identifies what the sandboxes of a template are made of: it changes when the template's image
	// does. An error is NotFound: no such template.
	Image(ctx context.Context, template string) (string, error)
	// Probe runs a script with sh in a sandbox of the template that holds nothing else, and returns what it
	// printed, whatever its exit code.
	Probe(ctx context.Context, template, script string) ([]byte, error)
}

// Prober says which skills can run in which templates. It probes each image once. Make one with NewProber.
type Prober struct {
	sandboxes Sandboxes
	log       *slog.Logger
	ctx       context.Context // ends with Close; owns every probe
	stop      context.CancelFunc
	wg        sync.WaitGroup

	mu       sync.Mutex
	profiles map[string]*probed // by image
	needs    map[string]Needs   // by digest of a skill, whose files never change
}

// probed is a probe that is under way or done.
type probed struct {
	began   time.Time
	done    chan struct{} // closed when the rest is set
	profile Profile
	err     error
	at      time.Time
}

// Bounds of what is remembered; beyond them it is forgotten and read again.
const (
	maxProfiles = 64
	maxNeeds    = 20_000
)

// NewProber makes a Prober. Close it.
func NewProber(s Sandboxes, log *slog.Logger) *Prober {
	ctx, stop := context.WithCancel(context.Background())
	return &Prober{sandboxes: s, log: log, ctx: ctx, stop: stop, profiles: map[string]*probed{}, needs: map[string]Needs{}}
}

// Close ends the probes that are under way.
func (p *Prober) Close() {
	p.stop()
	p.wg.Wait()
}

// Of says whether a skill can run in a template. digest is that of all its files, and open
// opens its folder, when they were not read before. A skill that cannot be read, and a template that was not
// probed yet, or cannot be, is "unknown" with the reason.
func (p *Prober) Of(ctx context.Context, template, digest string, open func() (*os.Root, error)) sandbox.Runnable {
	needs, err := p.needsOf(ctx, digest, open)
	if err != nil {
		return unknown("the skill cannot be read")
	}
	if len(needs.List) == 0 { // most skills are pure instructions: no template lacks what they need
		return Profile{}.Check(needs)
	}
	profile, err := p.Profile(ctx, template)
	if err != nil {
		var e *sandbox.Error
		if errors.As(err, &e) {
			return unknown(e.Detail)
		}
		return unknown("what the template has could not be found out")
	}
	return profile.Check(needs)
}

func unknown(why string) sandbox.Runnable {
	return sandbox.Runnable{Template: sandbox.RunnableUnknown, Missing: []string{}, Unsure: []string{why}}
}

func (p *Prober) needsOf(ctx context.Context, digest string, open func() (*os.Root, error)) (Needs, error) {
	p.mu.Lock()
	n, ok := p.needs[digest]
	p.mu.Unlock()
	if ok {
		return n, nil
	}
	root, err := open()
	if err != nil {
		return n, err
	}
	defer root.Close() //nolint:errcheck // only read
	if n, err = readHostile(ctx, root); err != nil {
		p.log.Warn("needs of a skill not read", "digest", digest, "error", err)
		return n, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.needs) >= maxNeeds {
		clear(p.needs)
	}
	p.needs[digest] = n
	return n, nil
}

// Profile returns what a template has, probing it when that was not done before. It waits a few seconds at
// most. An error is NotFound for no such template, or Unavailable: without a cause the probe is still under way, with
// one it failed.
func (p *Prober) Profile(ctx context.Context, template string) (Profile, error) {
	image, err := p.sandboxes.Image(ctx, template)
	if err != nil {
		return Profile{}, err
	}
	pr := p.begin(template, image)
	if !pr.wait(ctx) {
		return Profile{}, sandbox.Errorf(sandbox.Unavailable, "the template %q is still being looked at", template)
	}
	if pr.err != nil {
		return Profile{}, sandbox.Wrap(sandbox.Unavailable, pr.err, "what the template %q has could not be found out", template)
	}
	return pr.profile, nil
}

// wait waits for a probe until ctx ends, or the time is over, and reports whether it is done. A finished probe counts,
// however long ago it began.
func (pr *probed) wait(ctx context.Context) bool {
	late := time.NewTimer(time.Until(pr.began.Add(waitForProbe)))
	defer late.Stop()
	select {
	case <-pr.done:
	case <-ctx.Done():
	case <-late.C:
	}
	return pr.isDone() // select takes any of the ready channels
}

func (pr *probed) isDone() bool {
	select {
	case <-pr.done:
		return true
	default:
		return false
	}
}

// begin returns the probe of an image, which it starts when there is none.
func (p *Prober) begin(template, image string) *probed {
	p.mu.Lock()
	defer p.mu.Unlock()
	pr := p.profiles[image]
	if pr != nil && !pr.stale() {
		return pr
	}
	if len(p.profiles) >= maxProfiles {
		clear(p.profiles)
	}
	pr = &probed{began: time.Now(), done: make(chan struct{})}
	p.profiles[image] = pr
	p.wg.Go(func() {
		ctx, cancel := context.WithTimeout(p.ctx, probeTimeout)
		defer cancel()
		defer close(pr.done)
		pr.profile, pr.err = p.probe(ctx, template)
		pr.at = time.Now()
		if pr.err != nil {
			p.log.Warn("template not probed", "template", template, "error", pr.err)
		}
	})
	return pr
}

// stale reports whether a probe failed long enough ago to be tried again.
func (pr *probed) stale() bool {
	return pr.isDone() && pr.err != nil && time.Since(pr.at) > probeAgain
}

func (p *Prober) probe(ctx context.Context, template string) (Profile, error) {
	out, err := p.sandboxes.Probe(ctx, template, probeScript)
	if err != nil {
		return Profile{}, fmt.Errorf("probe of template %q: %w", template, err)
	}
	return parseProfile(out)
}
