package containerd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/cgroup"
	engineevents "github.com/skerry-sandbox/skerry/internal/driver/engine/events"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/idlock"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/runtimeprobe"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/runtimes"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Name is the driver's name in records.
const Name = "containerd"

// DefaultAddress and DefaultNamespace stand for empty Options.
const (
	DefaultAddress   = "/run/containerd/containerd.sock"
	DefaultNamespace = "skerry"
)

// snapshotter keeps root file systems; shim runs both runtimes.
const (
	snapshotter = "overlayfs"
	shim        = "io.containerd.runc.v2"
)

// UnknownExitCode stands in Instance.ExitCode when the sandbox's shim is gone.
const UnknownExitCode = -1

// Options of New.
type Options struct {
	// Address is the unix socket of containerd. "" = DefaultAddress.
	Address string
	// Namespace of containerd that is this driver's. "" = DefaultNamespace.
	Namespace string
	// Root is a folder for small files that are mounted into sandboxes or run by shims. containerd must
	// see it under the same path. Made with mode 0711 when missing. Required, absolute.
	Root string
	// Runtimes maps "runc" and "runsc" to their programs. Nil: those found on PATH.
	Runtimes map[string]string
	// Pull fetches an image that is not there from its registry, without credentials.
	Pull bool
	// ImageBytes bounds what the archive of an image unpacks to. 0 = imagelimit.MaxBytes.
	ImageBytes int64
	// Probe is a static program that runs runtimeprobe.Main when its first argument is
	// runtimeprobe.Arg. "" = this program itself, which then must be static.
	Probe string
	// CgroupParent is the cgroup below which those of sandboxes are; "": the root.
	CgroupParent string
	// Log is told of what does not reach a caller. Nil: nothing is logged.
	Log *slog.Logger
}

// Driver implements driver.Driver, driver.Pauser, driver.Weigher, driver.Meter and driver.ImageStore.
type Driver struct {
	engine    *client.Client
	namespace string
	cgroups   cgroup.Parent
	root      string
	probe     string
	log       *slog.Logger
	runtimes  runtimes.Set[*ociRuntime]
	answers   *runtimeprobe.Answers
	images    imageStore
	locks     idlock.Locks

	closing context.Context    // ends with Close
	close   context.CancelFunc // ends closing
}

var (
	_ driver.Driver      = (*Driver)(nil)
	_ driver.Pauser      = (*Driver)(nil)
	_ driver.Weigher     = (*Driver)(nil)
	_ driver.Meter       = (*Driver)(nil)
	_ driver.ImageStore  = (*Driver)(nil)
	_ driver.ImageTeller = (*Driver)(nil)
)

var namespacePattern = regexp.MustCompile(`^[A-Za-z0-9]+([._-][A-Za-z0-9]+)*$`)

// maxNamespace is containerd's own bound.
const maxNamespace = 76

// New makes a driver. It does not talk to containerd yet, which may start later.
func New(opts Options) (*Driver, error) {
	if !filepath.IsAbs(opts.Root) {
		return nil, errors.New("containerd driver: Root must be an absolute path")
	}
	if opts.Namespace == "" {
		opts.Namespace = DefaultNamespace
	}
	if len(opts.Namespace) > maxNamespace || !namespacePattern.MatchString(opts.Namespace) {
		return nil, fmt.Errorf("containerd driver: namespace %.80q: use letters and digits, and . _ - between them", opts.Namespace)
	}
	if err := cgroup.CheckParent(opts.CgroupParent); err != nil {
		return nil, fmt.Errorf("containerd driver: %w", err)
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	d := &Driver{
		namespace: opts.Namespace, cgroups: cgroup.Parent(opts.CgroupParent),
		root:    filepath.Clean(opts.Root),
		probe:   opts.Probe,
		log:     opts.Log,
		answers: runtimeprobe.NewAnswers(),
	}
	for dir, mode := range map[string]os.FileMode{d.root: 0o711, d.etcRoot(): 0o711, d.root + "/probe": 0o700, d.rootfsRoot(): 0o700} {
		if err := os.MkdirAll(dir, mode); err != nil {
			return nil, fmt.Errorf("containerd driver: make the folder for mounted files: %w", err)
		}
	}
	var err error
	if d.runtimes, err = findRuntimes(d.root, opts.Runtimes); err != nil {
		return nil, fmt.Errorf("containerd driver: %w", err)
	}
	if d.engine, err = dial(opts.Address, opts.Namespace); err != nil {
		return nil, fmt.Errorf("containerd driver: %w", err)
	}
	d.closing, d.close = context.WithCancel(context.Background())
	d.images.init(d, opts)
	return d, nil
}

// dial makes the connection, which is opened with the first call and again whenever it breaks.
func dial(address, namespace string) (*client.Client, error) {
	if address == "" {
		address = DefaultAddress
	}
	address = strings.TrimPrefix(address, "unix://")
	if !filepath.IsAbs(address) {
		return nil, errors.New("the address must be the absolute path of a unix socket")
	}
	return client.New(address,
		client.WithDefaultNamespace(namespace),
		client.WithExtraDialOpts([]grpc.DialOption{
			// The client's own dialer waits for a socket that is not there.
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", address)
			}),
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: engineevents.ReconnectFirst, Multiplier: 2, Jitter: 0.2, MaxDelay: engineevents.ReconnectMost},
				MinConnectTimeout: askTimeout,
			}),
		}))
}

// Close ends the driver's watches and connections. Sandboxes go on running.
func (d *Driver) Close() error {
	d.close()
	d.images.wait()
	return d.engine.Close()
}

// Capabilities implements driver.Driver. The first call probes every runtime, which takes a second
// or two with runsc.
func (d *Driver) Capabilities(ctx context.Context) (driver.Capabilities, error) {
	c := driver.Capabilities{Name: Name, Network: "none", Isolated: true}
	return runtimes.Capabilities(ctx, c, func(ctx context.Context, runtime string) (problem, without string, err error) {
		if problem, err = (probes{d}).probed(ctx, runtime); err == nil && problem == "" {
			without = d.runtimes[runtime].Without
		}
		return problem, without, err
	})
}

func (d *Driver) etcRoot() string { return d.root + "/etc" }

// etc is the folder of a sandbox's files of /etc.
func (d *Driver) etc(id sandbox.ID) string { return filepath.Join(d.etcRoot(), string(id)) }

// Bounds of calls of containerd.
const (
	// askTimeout bounds a question: a few milliseconds as a rule, seconds on a busy host.
	askTimeout = 10 * time.Second
	// changeTimeout bounds making, starting, pausing or removing one container: 0.1 to 0.5 s as a rule.
	// Slow disks take tens of seconds; beyond this containerd is broken.
	changeTimeout = 60 * time.Second
)
