// Package dockertest starts a Docker engine of its own for tests: in a folder and a network namespace that are its
// own, so that the bridge and the firewall of the machine are not its. Its containerd is a service of its own, and it
// lets containers run while it is away, as on a machine for sandboxes.
package dockertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/driver/containerd/containerdtest"
)

const (
	// namespace is where dockerd keeps its containers in containerd.
	namespace = "moby"
	// startTimeout bounds a start, and the bringing of an image.
	startTimeout = 2 * time.Minute
	stopTimeout  = time.Minute
	lookEvery    = 50 * time.Millisecond
)

// Engine is a dockerd that runs.
type Engine struct {
	Socket     string
	Containerd *containerdtest.Daemon // its own; its folder holds that of dockerd

	dir  string
	cmd  *exec.Cmd
	done chan struct{} // closed when cmd has ended
}

// Start starts an engine in a new folder and waits until it serves. images are copied from the engine of the machine.
func Start(images ...string) (*Engine, error) {
	programs, err := containerdtest.Installed()
	if err != nil {
		return nil, err
	}
	containerd, err := containerdtest.Start(programs)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(containerd.Dir, "docker")
	e := &Engine{Socket: dir + "/d.sock", Containerd: containerd, dir: dir}
	if err = e.start(images); err != nil {
		return nil, errors.Join(err, e.halt(), e.unmount(), containerd.Stop(namespace))
	}
	return e, nil
}

func (e *Engine) start(images []string) error {
	if err := os.Mkdir(e.dir, 0o711); err != nil { //nolint:gosec // sandboxes pass through it, not listing it
		return err
	}
	if err := os.WriteFile(e.dir+"/config.json", []byte("{}"), 0o600); err != nil {
		return err
	}
	if err := e.Run(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for _, image := range images {
		out, err := exec.CommandContext(ctx, "sh", "-c", `docker save "$1" | docker --host "$2" load`, "sh", image, "unix://"+e.Socket).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s cannot be copied into a dockerd of our own: %w: %s", image, err, out)
		}
	}
	return nil
}

// Run starts the engine again in its folder, after Kill, and waits until it serves.
func (e *Engine) Run() error {
	// The number in the file of a killed engine may be another process's by now.
	if err := os.Remove(e.dir + "/pid"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	log, err := os.OpenFile(e.dir+"/log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // the child has it
	e.cmd = exec.Command("unshare", "--net", "dockerd", "--config-file", e.dir+"/config.json", "--host", "unix://"+e.Socket,
		"--data-root", e.dir+"/root", "--exec-root", e.dir+"/exec", "--pidfile", e.dir+"/pid", "--containerd", e.Containerd.Address,
		"--iptables=false", "--ip6tables=false", "--ip-forward=false", "--live-restore")
	e.cmd.Stdout, e.cmd.Stderr = log, log
	if err := e.cmd.Start(); err != nil {
		return err
	}
	e.done = make(chan struct{})
	go func(cmd *exec.Cmd, done chan struct{}) { // ends with the process, which halt ends
		defer close(done)
		_ = cmd.Wait()
	}(e.cmd, e.done)
	return e.awaitServing()
}

func (e *Engine) awaitServing() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		err := e.ping(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-e.done:
			err = errors.New("it ended")
		case <-ctx.Done():
		case <-time.After(lookEvery):
			continue
		}
		text, logErr := os.ReadFile(e.dir + "/log")
		return errors.Join(fmt.Errorf("dockerd does not serve: %w: %s", err, text[max(0, len(text)-2000):]), logErr)
	}
}

func (e *Engine) ping(ctx context.Context) error {
	c, err := client.New(client.WithHost("unix://" + e.Socket))
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // only asked
	_, err = c.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true})
	return err
}

// Kill ends the engine as a crash would; Run starts it again. What runs in it goes on.
func (e *Engine) Kill() error {
	err := e.cmd.Process.Kill()
	<-e.done
	return err
}

// halt ends dockerd in order, if it runs.
func (e *Engine) halt() error {
	if e.cmd == nil || e.cmd.Process == nil {
		return nil
	}
	_ = e.cmd.Process.Signal(unix.SIGTERM)
	select {
	case <-e.done:
		return nil
	case <-time.After(stopTimeout):
		return errors.Join(errors.New("dockerd had to be killed"), e.Kill())
	}
}

// Stop ends the engine and removes its folder. The error names what sandboxes left in it, and in its containerd.
func (e *Engine) Stop() error {
	return errors.Join(e.left(), e.halt(), e.unmount(), e.Containerd.Stop(namespace))
}

// left names the containers that are there, and removes them.
func (e *Engine) left() error {
	c, err := client.New(client.WithHost("unix://" + e.Socket))
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // asked at the end
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	got, err := c.ContainerList(ctx, client.ContainerListOptions{All: true})
	for _, one := range got.Items {
		_, removed := c.ContainerRemove(ctx, one.ID, client.ContainerRemoveOptions{Force: true})
		err = errors.Join(err, fmt.Errorf("left over in dockerd: %v %s", one.Names, one.Status), removed)
	}
	return err
}

// unmount takes away what dockerd itself leaves mounted: its folder, and the file of a network namespace.
func (e *Engine) unmount() error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 4 && (f[4] == e.dir+"/root" || strings.HasPrefix(f[4], e.dir+"/exec/netns/")) {
			err = errors.Join(err, unix.Unmount(f[4], unix.MNT_DETACH))
		}
	}
	return err
}
