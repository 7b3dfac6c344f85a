package contents

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/template/sbom"
)

const (
	// goodFor is how long a list is shown: an image may be made anew under the same name.
	goodFor = time.Hour
	// again is how long a failed look is not tried again.
	again = 10 * time.Second
	// lookTimeout bounds one look, the start of its sandbox included.
	lookTimeout = 2 * time.Minute
	// maxLists bounds what is remembered; beyond it all is forgotten.
	maxLists = 64
)

// Sandboxes run scripts in sandboxes of templates.
type Sandboxes interface {
	// Image identifies what the sandboxes of a template are made of. NotFound: there is no such template.
	Image(ctx context.Context, template string) (string, error)
	// Probe runs a script with sh in a sandbox of the template that holds nothing else, and returns what it printed.
	Probe(ctx context.Context, template, script string) ([]byte, error)
}

// Contents knows what images are made of. Make one with New; all methods may be called at the same time.
type Contents struct {
	sandboxes Sandboxes
	version   string // of this program, which writes the lists
	log       *slog.Logger
	ctx       context.Context // ends with Close; owns every look
	stop      context.CancelFunc
	wg        sync.WaitGroup

	mu    sync.Mutex
	lists map[string]*look // by image
}

// look is one look into an image, under way or done.
type look struct {
	done chan struct{} // closed when the rest is set
	text []byte
	err  error
	at   time.Time
}

// New returns Contents that know nothing yet. Close them.
func New(s Sandboxes, version string, log *slog.Logger) *Contents {
	ctx, stop := context.WithCancel(context.Background())
	return &Contents{sandboxes: s, version: version, log: log, ctx: ctx, stop: stop, lists: map[string]*look{}}
}

// Close ends the looks that are under way.
func (c *Contents) Close() error {
	c.stop()
	c.wg.Wait()
	return nil
}

// SBOM returns the list of a template's image as CycloneDX JSON. It waits for the look into the image, which goes on when
// ctx ends. NotFound: there is no such template; Unavailable: the image does not tell, or its sandbox does not start.
func (c *Contents) SBOM(ctx context.Context, template string) ([]byte, error) {
	image, err := c.sandboxes.Image(ctx, template)
	if err != nil {
		return nil, err
	}
	l := c.begin(template, image)
	select {
	case <-l.done:
		return l.text, l.err
	case <-ctx.Done():
		return nil, sandbox.Wrap(sandbox.Unavailable, context.Cause(ctx), "the image of template %q is still being looked at", template)
	}
}

// begin returns the look into an image, which it starts when there is none that counts.
func (c *Contents) begin(template, image string) *look {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.lists[image]; l != nil && l.counts() {
		return l
	}
	if len(c.lists) >= maxLists {
		clear(c.lists)
	}
	l := &look{done: make(chan struct{})}
	c.lists[image] = l
	c.wg.Go(func() {
		ctx, cancel := context.WithTimeout(c.ctx, lookTimeout)
		defer cancel()
		defer close(l.done)
		l.text, l.err = c.read(ctx, template)
		l.at = time.Now()
		if l.err != nil {
			c.log.Warn("image not looked at", "template", template, "error", l.err)
		}
	})
	return l
}

// counts reports whether a look goes on, or is new enough.
func (l *look) counts() bool {
	select {
	case <-l.done:
	default:
		return true
	}
	age := goodFor
	if l.err != nil {
		age = again
	}
	return time.Since(l.at) < age
}

func (c *Contents) read(ctx context.Context, template string) ([]byte, error) {
	out, err := c.sandboxes.Probe(ctx, template, sbom.Script)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Unavailable, err, "the image of template %q cannot be looked at now", template)
	}
	list, err := sbom.Parse(bytes.NewReader(out))
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Unavailable, err, "the image of template %q does not tell what it is made of: it has to have sh, sed and awk", template)
	}
	var text bytes.Buffer
	if err := list.Write(&text, sbom.Subject{Name: "skerry/" + template, Tool: c.version, Time: time.Now()}); err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "the list cannot be written")
	}
	return text.Bytes(), nil
}
