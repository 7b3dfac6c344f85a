package docker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"
	"github.com/moby/moby/client/pkg/versions"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/cgroup"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/idlock"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/runtimeprobe"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/runtimes"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Name is the driver's name in records.
const Name = "docker"

// minAPIVersion is the oldest engine that has all the settings used here (Docker 20.10).
const minAPIVersion = "1.41"

// Options of New.
type Options struct {
	// Host is the engine's address, as "unix:///var/run/docker.sock". "" = that one.
	Host string
	// Root is a folder for small files that are mounted into sandboxes. The engine must see it under
	// the same path. Made with mode 0711 when missing. Required, absolute.
	Root string
	// Probe is a static program that runs runtimeprobe.Main when its first argument is
	// runtimeprobe.Arg. "" = this program itself, which then must be static.
	Probe string
	// CgroupParent is the cgroup below which those of sandboxes are; "": see rootCgroup.
	CgroupParent string
	// Log is told of what does not reach a caller. Nil: nothing is logged.
	Log *slog.Logger
}

// Driver implements driver.Driver, driver.Pauser, driver.Weigher and driver.Meter.
type Driver struct {
	engine       *client.Client
	root         string
	cgroupParent string
	probe        string
	log          *slog.Logger
	locks        idlock.Locks
	groups       sync.Map // engineGroup by sandbox.ID, of sandboxes that a caller asked about
	// oom knows which sandboxes ended for lack of memory where the engine may not: it removes their groups at once.
	oom *cgroup.OOMWatch

	answers     *runtimeprobe.Answers
	sweepProbes sync.Once

	mu     sync.Mutex
	names  map[string]string // the engine's names of runtimes, by ours; nil before the first question
	parent string            // what a container names; "" where the engine takes none; known when names is

	closing context.Context    // ends with Close
	close   context.CancelFunc // ends closing
}

var (
	_ driver.Driver      = (*Driver)(nil)
	_ driver.Pauser      = (*Driver)(nil)
	_ driver.Weigher     = (*Driver)(nil)
	_ driver.Meter       = (*Driver)(nil)
	_ driver.ImageTeller = (*Driver)(nil)
)

// New makes a driver. It does not talk to the engine yet, which may start later.
func New(opts Options) (*Driver, error) {
	if !filepath.IsAbs(opts.Root) {
		return nil, errors.New("docker driver: Root must be an absolute path")
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if err := cgroup.CheckParent(opts.CgroupParent); err != nil {
		return nil, fmt.Errorf("docker driver: %w", err)
	}
	var options []client.Opt
	if opts.Host != "" {
		options = append(options, client.WithHost(opts.Host))
	}
	engine, err := client.New(options...)
	if err != nil {
		return nil, fmt.Errorf("docker driver: %w", err)
	}
	oom, err := cgroup.NewOOMWatch()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("docker driver: %w", err), engine.Close())
	}
	d := &Driver{
		engine:       engine,
		oom:          oom,
		root:         filepath.Clean(opts.Root),
		cgroupParent: opts.CgroupParent,
		probe:        opts.Probe,
		log:          opts.Log,
		answers:      runtimeprobe.NewAnswers(),
	}
	for dir, mode := range map[string]os.FileMode{d.root: 0o711, d.etcRoot(): 0o711, d.root + "/probe": 0o700} {
		if err := os.MkdirAll(dir, mode); err != nil {
			return nil, errors.Join(fmt.Errorf("docker driver: make the folder for mounted files: %w", err), oom.Close(), engine.Close())
		}
	}
	d.closing, d.close = context.WithCancel(context.Background())
	return d, nil
}

// Close ends the driver's watches and connections. Sandboxes go on running.
func (d *Driver) Close() error {
	d.close()
	return errors.Join(d.oom.Close(), d.engine.Close())
}

// Capabilities implements driver.Driver. The first call probes every runtime, which takes a second
// or two with runsc.
func (d *Driver) Capabilities(ctx context.Context) (driver.Capabilities, error) {
	const without = "the engine has one for all containers or none (userns-remap), and none for one container"
	c := driver.Capabilities{Name: Name, Network: "none", Isolated: true, Unkept: map[driver.Promise]string{
		driver.Terminals: "the engine mounts them without a bound; the limits of processes and open files bound those of a sandbox",
	}}
	return runtimes.Capabilities(ctx, c, func(ctx context.Context, runtime string) (problem, _ string, err error) {
		_, problem, err = probes{d}.probed(ctx, runtime)
		return problem, without, err
	})
}

// engineRuntime is a runtime as this driver and the engine know it.
type engineRuntime struct {
	hardening.Runtime
	engineName   string
	cgroupParent string // "": the engine's own
}

// ask asks the engine for its runtimes; it returns the engine's names for ours, and the parent cgroup of sandboxes.
func (d *Driver) ask(ctx context.Context) (names map[string]string, parent string, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	ping, err := d.engine.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true})
	if err != nil {
		return nil, "", engineError(err, "the container engine does not answer")
	}
	if ping.APIVersion == "" || versions.LessThan(ping.APIVersion, minAPIVersion) {
		return nil, "", sandbox.Errorf(sandbox.NotSupported, "the container engine speaks API %.20q, at least %s is needed", ping.APIVersion, minAPIVersion)
	}
	info, err := d.engine.Info(ctx, client.InfoOptions{})
	if err != nil {
		return nil, "", engineError(err, "the container engine does not tell its runtimes")
	}
	parent = d.cgroupParent
	switch made := info.Info.CgroupDriver; {
	case made == "cgroupfs":
		parent = path.Join(rootCgroup, parent)
	case parent != "" && (!strings.HasSuffix(parent, ".slice") || strings.Contains(parent, "/")):
		return nil, "", sandbox.Errorf(sandbox.NotSupported,
			"cgroup_parent %q: systemd makes the cgroups of this container engine; want the name of a slice, such as skerry.slice", parent)
	}
	return namesOf(info.Info.Runtimes), parent, nil
}

// namesOf returns the engine's names for the runtimes that we know.
func namesOf(registered map[string]system.RuntimeWithStatus) map[string]string {
	names := make(map[string]string)
	for name, rt := range registered {
		for _, known := range hardening.Runtimes() {
			// A runtime of exactly our name wins over one whose program has it.
			if name == known.Name || (names[known.Name] == "" && filepath.Base(rt.Path) == known.Name) {
				names[known.Name] = name
			}
		}
	}
	return names
}

// Bounds of calls of the engine.
const (
	// askTimeout bounds a question: a few milliseconds as a rule, seconds when the engine is busy with
	// many containers.
	askTimeout = 10 * time.Second
	// changeTimeout bounds making, starting, pausing or removing one container: 0.1 to 0.5 s as a rule.
	// Slow disks and a loaded engine take tens of seconds; beyond this the engine is broken.
	changeTimeout = 60 * time.Second
)
