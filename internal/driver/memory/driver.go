package memory

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"sync"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Name is the driver's name in records.
const Name = "memory"

// HandlerFunc makes what the daemon of one sandbox serves, as
// sandboxv1connect.NewSandboxServiceHandler does.
type HandlerFunc func(sandbox.Spec) http.Handler

// Options of New.
type Options struct {
	// Host holds the instances. Nil: one of the driver's own, which ends with it.
	Host *Host
	// Handler makes what each daemon serves. Nil: no daemons. Not used when Host is given.
	Handler HandlerFunc
	// Runtimes that a Spec may name. Nil: "runc".
	Runtimes []string
	// Images that a Spec may name. Nil: any, and none at all.
	Images []string
	// Log of the daemons. May be nil. Not used when Host is given.
	Log *slog.Logger
}

// Driver implements driver.Driver, driver.Pauser, driver.Weigher and driver.Meter.
type Driver struct {
	host     *Host
	ownHost  bool
	runtimes []string
	images   []string

	closing context.Context
	close   context.CancelFunc
	watches sync.WaitGroup
}

var (
	_ driver.Driver  = (*Driver)(nil)
	_ driver.Pauser  = (*Driver)(nil)
	_ driver.Weigher = (*Driver)(nil)
	_ driver.Meter   = (*Driver)(nil)
)

// New makes a driver.
func New(opts Options) *Driver {
	d := &Driver{host: opts.Host, runtimes: opts.Runtimes, images: opts.Images}
	if d.host == nil {
		d.host, d.ownHost = NewHost(opts.Handler, opts.Log), true
	}
	if d.runtimes == nil {
		d.runtimes = []string{"runc"}
	}
	d.closing, d.close = context.WithCancel(context.Background())
	return d
}

// Host returns the host that the driver works on.
func (d *Driver) Host() *Host { return d.host }

// Kill ends a sandbox as a crash would, and reports whether it was alive.
func (d *Driver) Kill(id sandbox.ID) bool { return d.host.Kill(id) }

// KillOOM ends a sandbox as a lack of memory would, and reports whether it was alive.
func (d *Driver) KillOOM(id sandbox.ID) bool { return d.host.KillOOM(id) }

// Watch implements driver.Driver.
func (d *Driver) Watch(ctx context.Context) (<-chan driver.Event, error) {
	return d.host.events.Watch(ctx, d.closing, &d.watches), nil
}

// Close ends the driver's watches. Sandboxes go on, unless the Host is the driver's own: no other could
// find them again.
func (d *Driver) Close() error {
	d.close()
	d.watches.Wait()
	if d.ownHost {
		d.host.Stop()
	}
	return nil
}

// Capabilities implements driver.Driver.
func (d *Driver) Capabilities(context.Context) (driver.Capabilities, error) {
	return driver.Capabilities{
		Name:            Name,
		Runtimes:        slices.Clone(d.runtimes),
		RuntimeProblems: make(map[string]string),
		Network:         "shared",
		HostRootfs:      true,
	}, nil
}

// Create implements driver.Driver. Like a real driver it refuses a Spec that breaks a rule, though it
// acts on none.
func (d *Driver) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Instance, error) {
	if err := d.check(ctx, spec); err != nil {
		return sandbox.Instance{}, err
	}
	inst, _, err := d.host.create(spec, nil)
	return inst, err
}

func (d *Driver) check(ctx context.Context, spec sandbox.Spec) error {
	if err := hardening.CheckSpec(spec); err != nil {
		return err
	}
	if !slices.Contains(d.runtimes, spec.Runtime) {
		return sandbox.Errorf(sandbox.NotSupported, "runtime %.40q is unknown", spec.Runtime)
	}
	if d.images != nil && !slices.Contains(d.images, spec.Image) {
		return sandbox.Errorf(sandbox.NotFound, "there is no image %.200q", spec.Image)
	}
	for _, m := range spec.Mounts {
		if _, err := os.Stat(m.Source); err != nil {
			return sandbox.Wrap(sandbox.Invalid, err, "what is to be mounted at %s is not on this host", m.Target)
		}
	}
	if ctx.Err() != nil {
		return sandbox.Wrap(sandbox.Timeout, context.Cause(ctx), "the sandbox was not made in time")
	}
	return nil
}

// Remove implements driver.Driver.
func (d *Driver) Remove(_ context.Context, id sandbox.ID) error {
	if err := hardening.CheckID(id); err != nil {
		return err
	}
	d.host.remove(id)
	return nil
}

// Inspect implements driver.Driver.
func (d *Driver) Inspect(_ context.Context, id sandbox.ID) (sandbox.Instance, error) {
	if err := hardening.CheckID(id); err != nil {
		return sandbox.Instance{}, err
	}
	return d.host.inspect(id)
}

// List implements driver.Driver.
func (d *Driver) List(_ context.Context, labels map[string]string) ([]sandbox.Instance, error) {
	return d.host.list(labels), nil
}

// Pause implements driver.Pauser. Only the state changes: the daemon goes on.
func (d *Driver) Pause(_ context.Context, id sandbox.ID) error {
	return d.host.freeze(id, sandbox.Paused)
}

// Resume implements driver.Pauser.
func (d *Driver) Resume(_ context.Context, id sandbox.ID) error {
	return d.host.freeze(id, sandbox.Running)
}

// Weigh implements driver.Weigher. Only the number changes.
func (d *Driver) Weigh(_ context.Context, id sandbox.ID, weight driver.Weight) error {
	return d.host.weigh(id, weight)
}

// Load implements driver.Meter: what Host.SetLoad said.
func (d *Driver) Load(_ context.Context, id sandbox.ID) (driver.Load, error) {
	return d.host.loadOf(id)
}
