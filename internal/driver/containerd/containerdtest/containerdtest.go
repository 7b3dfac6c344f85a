package containerdtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/snapshots"
	"golang.org/x/sys/unix"
)

const (
	// startTimeout bounds a start: half a second as a rule, several under load.
	startTimeout = 60 * time.Second
	// stopTimeout bounds a stop in order; then it is killed.
	stopTimeout = 20 * time.Second
	lookEvery   = 20 * time.Millisecond
)

// Programs are those of one version: the daemon, with its shim beside it.
type Programs struct {
	Daemon string
}

// Built are the programs that scripts/install.sh builds from containerd's Go module, in the folder cache
// ("" = /var/cache/skerry). The error says that they are not there.
func Built(cache string) (Programs, error) {
	if cache == "" {
		cache = "/var/cache/skerry"
	}
	return in(filepath.Join(cache, "containerd"))
}

// Installed are those of the machine's own packages.
func Installed() (Programs, error) { return in("/usr/bin") }

func in(dir string) (Programs, error) {
	for _, name := range []string{"containerd", "containerd-shim-runc-v2"} {
		if _, err := exec.LookPath(filepath.Join(dir, name)); err != nil {
			return Programs{}, err
		}
	}
	return Programs{Daemon: filepath.Join(dir, "containerd")}, nil
}

// Daemon is a containerd that runs.
type Daemon struct {
	Address string // its socket
	Dir     string // all of its files

	programs Programs
	cmd      *exec.Cmd
	done     chan struct{} // closed when cmd has ended
	log      *buffer
}

// parts of containerd that sandboxes do not need, each of which costs time or makes files elsewhere.
var disabled = []string{
	"io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime", "io.containerd.nri.v1.nri",
	"io.containerd.internal.v1.opt", "io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp",
	"io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.btrfs",
	"io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.erofs", "io.containerd.snapshotter.v1.zfs",
}

// Start starts one in a new folder and waits until it serves.
func Start(p Programs) (*Daemon, error) {
	dir, err := os.MkdirTemp("", "ctrd") // short: a socket's path has 108 bytes
	if err != nil {
		return nil, err
	}
	d := &Daemon{Address: dir + "/c.sock", Dir: dir, programs: p}
	config := fmt.Sprintf("version = 2\nroot = %q\nstate = %q\noom_score = 0\ndisabled_plugins = [%s]\n[grpc]\naddress = %q\n[ttrpc]\naddress = %q\n",
		dir+"/root", dir+"/state", `"`+strings.Join(disabled, `", "`)+`"`, d.Address, d.Address+".ttrpc")
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // sandboxes pass through it, not listing it
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := os.WriteFile(dir+"/config.toml", []byte(config), 0o600); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := d.Run(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return d, nil
}

// Run starts the daemon again in its folder, after Halt, and waits until it serves.
func (d *Daemon) Run() error {
	d.log = &buffer{}
	// The shim is found on PATH: that of the same version first.
	d.cmd = exec.Command("/usr/bin/env", "PATH="+filepath.Dir(d.programs.Daemon)+":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		d.programs.Daemon, "--config", d.Dir+"/config.toml", "--log-level", "warn")
	d.cmd.Stdout, d.cmd.Stderr = d.log, d.log
	if err := d.cmd.Start(); err != nil {
		return err
	}
	d.done = make(chan struct{})
	go func(cmd *exec.Cmd, done chan struct{}) { // ends with the process, which Halt ends
		defer close(done)
		_ = cmd.Wait()
	}(d.cmd, d.done)
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := d.awaitServing(ctx); err != nil {
		return errors.Join(fmt.Errorf("containerd does not serve: %w\n%s", err, d.log), d.Halt())
	}
	return nil
}

func (d *Daemon) awaitServing(ctx context.Context) error {
	for {
		if _, err := os.Stat(d.Address); err == nil {
			break
		}
		select {
		case <-d.done:
			return errors.New("it ended")
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(lookEvery):
		}
	}
	c, err := client.New(d.Address)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // only asked
	serving, err := c.IsServing(ctx)
	if err == nil && !serving {
		err = errors.New("it says that it does not")
	}
	return err
}

// Halt ends the daemon and not its shims: what runs in it goes on.
func (d *Daemon) Halt() error {
	_ = d.cmd.Process.Signal(unix.SIGTERM)
	select {
	case <-d.done:
		return nil
	case <-time.After(stopTimeout):
	}
	_ = d.cmd.Process.Kill()
	<-d.done
	return errors.New("containerd had to be killed")
}

// Kill ends the daemon as a crash would; Run starts it again. What runs in it goes on.
func (d *Daemon) Kill() error {
	err := d.cmd.Process.Kill()
	<-d.done
	return err
}

// Stop ends the daemon and removes its folder. The error names what sandboxes left: mounts, snapshots,
// and folders of tasks.
func (d *Daemon) Stop(namespace string) error {
	left := d.awaitNothingLeft(namespace)
	if err := d.Halt(); err != nil {
		left = errors.Join(left, err)
	}
	for _, target := range d.mounts() { // not left in the way of removing the folder
		_ = unix.Unmount(target, unix.MNT_DETACH)
	}
	return errors.Join(left, os.RemoveAll(d.Dir))
}

// leftTimeout bounds the ends of shims and the garbage collector's work.
const leftTimeout = 20 * time.Second

// awaitNothingLeft waits until the containers of a namespace have left nothing but images.
func (d *Daemon) awaitNothingLeft(namespace string) error {
	for end := time.Now().Add(leftTimeout); ; time.Sleep(lookEvery) {
		left, err := d.left(namespace)
		if err != nil {
			return err
		}
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("left over: %v", left)
		}
	}
}

func (d *Daemon) left(namespace string) ([]string, error) {
	left := d.mounts()
	for _, pattern := range []string{"state/io.containerd.runtime.v2.task/" + namespace + "/*", "root/io.containerd.runtime.v2.task/" + namespace + "/*"} {
		found, err := filepath.Glob(filepath.Join(d.Dir, pattern))
		if err != nil {
			return nil, err
		}
		for _, path := range found {
			// What containerd was deleting when it was killed has a dot, and is never looked at again.
			if !strings.HasPrefix(filepath.Base(path), ".") {
				left = append(left, path)
			}
		}
	}
	inUse, images, err := d.snapshots(namespace)
	if err != nil {
		return nil, err
	}
	left = append(left, inUse...)
	folders, err := filepath.Glob(filepath.Join(d.Dir, "root/io.containerd.snapshotter.v1.overlayfs/snapshots/*"))
	if len(folders) > images {
		left = append(left, fmt.Sprintf("%d folders of %d snapshots", len(folders), images))
	}
	return left, err
}

// snapshots names those of sandboxes, which can be written, and counts the others: layers of images.
func (d *Daemon) snapshots(namespace string) (inUse []string, images int, err error) {
	c, err := client.New(d.Address, client.WithDefaultNamespace(namespace))
	if err != nil {
		return nil, 0, err
	}
	defer c.Close() //nolint:errcheck // only asked
	ctx, cancel := context.WithTimeout(context.Background(), leftTimeout)
	defer cancel()
	// The folder of a removed snapshot goes with the next collection, which may be many changes away. The
	// end of a lease can be made to wait for one.
	lease, err := c.LeasesService().Create(ctx, leases.WithRandomID())
	if err == nil {
		err = c.LeasesService().Delete(ctx, lease, leases.SynchronousDelete)
	}
	if err != nil {
		return nil, 0, err
	}
	err = c.SnapshotService("overlayfs").Walk(ctx, func(_ context.Context, info snapshots.Info) error {
		if info.Kind == snapshots.KindCommitted {
			images++
		} else {
			inUse = append(inUse, info.Name)
		}
		return nil
	})
	return inUse, images, err
}

// mounts are those below the folder, the innermost first.
func (d *Daemon) mounts() []string {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return []string{err.Error()}
	}
	var found []string
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], d.Dir+"/") {
			found = append([]string{f[4]}, found...)
		}
	}
	return found
}

// Log is what the daemon has said since it was last started.
func (d *Daemon) Log() string { return d.log.String() }

// buffer is a buffer that the process writes while others read it.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
