package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/events"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/tunnels"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sidecar"
	"github.com/skerry-sandbox/skerry/internal/sidecar/pki"
)

// Name is the driver's name in records.
const Name = "remote"

// runtimeName is what the service's own way to run sandboxes is called, whatever it is.
const runtimeName = "runc"

// Options of New.
type Options struct {
	// URL is that of the service's API, without a slash at its end; SandboxURL that of the daemons of all sandboxes, or "":
	// then each has a host of its own in Domain. Required: URL, and one of the two.
	URL, SandboxURL, Domain string
	// Key is the API key. It is sent to no host but those of the URLs.
	Key string
	// Authority signs the certificates of sandboxes. Its fingerprint tells the sandboxes of this installation from others of
	// the same key. Required.
	Authority *pki.Authority
	// Bridge is the static program skerry-bridge on this host. Required.
	Bridge string
	// Root is a folder of the driver's own, which is made. All servers of the installation share it. Required.
	Root string
	// Lifetime is how long the service keeps a sandbox of which no server says that it is in use. 0 = 10 minutes.
	Lifetime time.Duration
	// LookEvery is how often the driver asks which sandboxes there are. 0 = 2 seconds.
	LookEvery time.Duration
	// Log is told of what does not reach a caller. Nil: nothing is logged.
	Log *slog.Logger
}

const (
	lifetime  = 10 * time.Minute
	lookEvery = 2 * time.Second
)

// Driver implements driver.Driver, driver.Remote and driver.Describer.
type Driver struct {
	o       Options
	service *service
	records records
	boxes   boxes
	tunnel  tunnels.Set
	feed    events.Feed
	digests *sidecar.Digests

	probed  sync.Mutex
	caps    *driver.Capabilities
	looking sync.Once

	closing context.Context    // ends with Close
	close   context.CancelFunc // ends closing
	running sync.WaitGroup     // goroutines of the driver
}

var (
	_ driver.Driver    = (*Driver)(nil)
	_ driver.Remote    = (*Driver)(nil)
	_ driver.Describer = (*Driver)(nil)
)

// New makes a driver. It asks the service nothing yet.
func New(o Options) (*Driver, error) {
	switch {
	case o.URL == "" || o.SandboxURL == "" && o.Domain == "":
		return nil, errors.New("driver remote: name the URL of the service, and that of its sandboxes or their domain")
	case o.Authority == nil || o.Root == "":
		return nil, errors.New("driver remote: it needs an authority and a folder")
	}
	if info, err := os.Stat(o.Bridge); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("driver remote: %q is not the program skerry-bridge; build it with `make build`, or say where it is (SKERRY_REMOTE_BRIDGE)", o.Bridge)
	}
	if err := os.MkdirAll(o.Root, 0o700); err != nil {
		return nil, fmt.Errorf("driver remote: %w", err)
	}
	if o.Lifetime == 0 {
		o.Lifetime = lifetime
	}
	if o.LookEvery == 0 {
		o.LookEvery = lookEvery
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	d := &Driver{o: o, service: newService(o), records: records{o.Authority.Fingerprint(), o.Root}, digests: sidecar.NewDigests()}
	d.closing, d.close = context.WithCancel(context.Background())
	return d, nil
}

// Close ends the driver's watches, tunnels and connections. Sandboxes go on running, as long as the service keeps them.
func (d *Driver) Close() error {
	err := d.tunnel.Close()
	d.close()
	d.running.Wait()
	d.service.http.CloseIdleConnections()
	return err
}

// Unkept are the promises that are the service's to keep. None of them is shown.
func unkept() map[driver.Promise]string {
	out := map[driver.Promise]string{
		driver.LooseFilter:  "the service's own filter holds, too",
		driver.EngineLimits: "memory, CPU time and processes are those of the service's template",
		driver.OwnCgroup:    "the service decides what a sandbox sees of control groups",
		driver.MaskedPaths:  "the service decides what a sandbox sees of /proc and /sys",
		driver.Terminals:    "the service decides how many there are",
	}
	return out
}

// Capabilities implements driver.Driver: it asks the service for a list, which shows that the key is good.
func (d *Driver) Capabilities(ctx context.Context) (driver.Capabilities, error) {
	d.probed.Lock()
	caps := d.caps
	d.probed.Unlock()
	if caps != nil {
		return *caps, nil
	}
	if _, err := d.service.page(ctx, nil, "", 1); err != nil {
		return driver.Capabilities{}, err
	}
	caps = &driver.Capabilities{
		Name: Name, Runtimes: []string{runtimeName},
		RuntimeProblems: map[string]string{"runsc": "the service decides what isolates its sandboxes: here a template has the runtime runc"},
		Network:         "none", AtService: true, Unkept: unkept(),
		NoUserNamespace: map[string]string{runtimeName: "it has one inside of the service's sandbox, which says nothing of the service's host"},
	}
	d.probed.Lock()
	d.caps = caps
	d.probed.Unlock()
	return *caps, nil
}

// About implements driver.Describer.
func (d *Driver) About(context.Context) (driver.About, error) {
	return driver.About{Engine: "E2B's API at " + d.service.url, Programs: map[string]string{}, Advice: map[string]string{
		"runsc": "let the template have the runtime runc",
	}}, nil
}

// Watch implements driver.Driver. Ends of sandboxes that this server made or attached are told by the service's streams;
// those of others by the next look.
func (d *Driver) Watch(ctx context.Context) (<-chan driver.Event, error) {
	d.look()
	return d.feed.Watch(ctx, d.closing, &d.running), nil
}

// notHere is the error for a sandbox that is not there.
func notHere(id sandbox.ID) error {
	return sandbox.Errorf(sandbox.NotFound, "there is no sandbox %s", id)
}

// drain reads what is left of an answer, so that its connection can be used again.
func drain(r *http.Response) {
	_, _ = io.CopyN(io.Discard, r.Body, 64<<10)
	_ = r.Body.Close()
}
