package oci

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/cgroup"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/idlock"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/runtimeprobe"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/runtimes"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Name is the driver's name in records.
const Name = "oci"

// UnknownExitCode stands in Instance.ExitCode: a detached container is not waited for.
const UnknownExitCode = -1

// Options of New.
type Options struct {
	// Root is the folder for state and bundles; made when missing, and given the mode 0711. The folders above it
	// must let others by, else sandboxes have no user namespace. Required, absolute.
	Root string
	// Runtimes maps "runc" and "runsc" to their programs. Nil: those found on PATH.
	Runtimes map[string]string
	// CgroupParent is the cgroup under which each sandbox gets its own. "" = none: they are beside the host's
	// services, so that the weight of one counts among them, too.
	CgroupParent string
	// Probe is a static program that runs runtimeprobe.Main when its first argument is
	// runtimeprobe.Arg. "" = this program itself.
	Probe string
	// ImageBytes bounds what the archive of an image unpacks to. 0 = imagelimit.MaxBytes.
	ImageBytes int64
	// Log is told of what does not reach a caller. Nil: nothing is logged.
	Log *slog.Logger
}

// Driver implements driver.Driver, driver.Pauser, driver.Weigher and driver.Meter.
type Driver struct {
	archives
	root     string
	cgroups  cgroup.Parent
	probe    string
	log      *slog.Logger
	runtimes runtimes.Set[*ociRuntime]
	locks    idlock.Locks
	image    imagePreparer
	hostRoot sync.Mutex     // held while the host skeleton is brought up to date
	removing sync.WaitGroup // removals of overlays whose sandbox runs
	shared   sync.Once      // says that sandboxes share the inodes of an image

	answers *runtimeprobe.Answers

	closing context.Context
	close   context.CancelFunc
}

var (
	_ driver.Driver      = (*Driver)(nil)
	_ driver.Pauser      = (*Driver)(nil)
	_ driver.Weigher     = (*Driver)(nil)
	_ driver.Meter       = (*Driver)(nil)
	_ driver.ImageTeller = (*Driver)(nil)
	_ driver.ImageStore  = (*Driver)(nil)
)

// New makes a driver on the state in opts.Root, and clears away what a server left that died while
// it prepared a bundle. It starts nothing. Any number of drivers may share a Root, one at a time.
func New(opts Options) (*Driver, error) {
	if !filepath.IsAbs(opts.Root) {
		return nil, errors.New("oci driver: Root must be an absolute path")
	}
	if err := cgroup.CheckParent(opts.CgroupParent); err != nil {
		return nil, fmt.Errorf("oci driver: %w", err)
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	d := &Driver{
		archives: archives{opts.ImageBytes},
		root:     filepath.Clean(opts.Root),
		cgroups:  cgroup.Parent(opts.CgroupParent),
		probe:    opts.Probe,
		log:      opts.Log,
		answers:  runtimeprobe.NewAnswers(),
	}
	for _, dir := range []string{d.root, d.bundles(), d.roots(), d.root + "/empty", d.root + "/probe"} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("oci driver: make the state folder: %w", err)
		}
	}
	// In a user namespace, the runtime passes through them as nobody on its way to the root file system.
	for _, dir := range []string{d.root, d.roots()} {
		if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // see above
			return nil, fmt.Errorf("oci driver: open the state folder: %w", err)
		}
	}
	if err := errors.Join(sweepOverlays(d.roots()), sweepBundles(d.bundles())); err != nil {
		return nil, fmt.Errorf("oci driver: clear unfinished bundles: %w", err)
	}
	d.runtimes = findRuntimes(d.root, opts.Runtimes)
	d.closing, d.close = context.WithCancel(context.Background())
	return d, nil
}

// Close ends the driver's watches. Sandboxes go on running.
func (d *Driver) Close() error {
	d.close()
	d.removing.Wait()
	return nil
}

// Capabilities implements driver.Driver. The first call probes every runtime, which takes a second
// or two with runsc.
func (d *Driver) Capabilities(ctx context.Context) (driver.Capabilities, error) {
	c := driver.Capabilities{Name: Name, Network: "none", Isolated: true, HostRootfs: true}
	return runtimes.Capabilities(ctx, c, func(ctx context.Context, runtime string) (problem, without string, err error) {
		if problem, err = d.probed(ctx, runtime); err == nil && problem == "" {
			without = d.runtimes[runtime].Without
		}
		return problem, without, err
	})
}

// cgroupPath is the sandbox's cgroup in every hierarchy.
func (d *Driver) cgroupPath(id sandbox.ID) string { return d.cgroups.Of(string(id)) }

func (d *Driver) bundles() string { return d.root + "/bundles" }

func (d *Driver) roots() string { return d.root + "/roots" }

func (d *Driver) bundle(id sandbox.ID) string { return d.bundles() + "/" + string(id) }
