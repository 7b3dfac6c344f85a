package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/skerry-sandbox/skerry/internal/driver/containerd/containerdtest"
)

const (
	// namespace of the containerd that is started here.
	namespace = "skerry"
	// image of the template, which an engine of docker's has to be given.
	image = "skerry/base:latest"

	// mobyNamespace is where dockerd keeps its containers in containerd.
	mobyNamespace = "moby"

	dockerTime = 2 * time.Minute // for its start, and for the image
)

// engine is a container engine of this run's own.
type engine interface {
	Kill() error // as a crash would
	Run() error  // again, after Kill
	// Stop ends it in order and takes away what is its. The error names what sandboxes left in it.
	Stop() error
	// Env is what a server needs to find it.
	Env() string
	// Shims is what the command line of each of its shims has.
	Shims() string
}

func (f *fleet) startEngine() (engine, error) {
	switch f.driver {
	case "containerd":
		programs, err := containerdtest.Built(f.cache)
		if err != nil {
			return nil, err
		}
		d, err := containerdtest.Start(programs)
		return containerdEngine{d}, err
	case "docker":
		return startDocker()
	}
	return nil, nil
}

type containerdEngine struct{ *containerdtest.Daemon }

func (e containerdEngine) Stop() error   { return e.Daemon.Stop(namespace) }
func (e containerdEngine) Env() string   { return "SKERRY_CONTAINERD_ADDRESS=" + e.Address }
func (e containerdEngine) Shims() string { return e.Address }

// dockerEngine is a dockerd in a folder and a network namespace of its own: the bridge and the firewall of the
// machine are not its. Its containerd is a service of its own, and it lets containers run while it is away, as on a
// machine for sandboxes.
type dockerEngine struct {
	dir        string
	p          *process
	containerd *containerdtest.Daemon
}

func startDocker() (_ engine, err error) {
	programs, err := containerdtest.Installed()
	if err != nil {
		return nil, err
	}
	containerd, err := containerdtest.Start(programs)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(containerd.Dir, "docker")
	e := &dockerEngine{dir: dir, containerd: containerd, p: &process{name: "dockerd", log: filepath.Join(dir, "log"), argv: []string{
		"unshare", "--net", "dockerd", "--config-file", filepath.Join(dir, "config.json"), "--host", "unix://" + dir + "/d.sock",
		"--data-root", dir + "/root", "--exec-root", dir + "/exec", "--pidfile", dir + "/pid", "--containerd", containerd.Address,
		"--iptables=false", "--ip6tables=false", "--ip-forward=false", "--live-restore",
	}}}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.p.stop(), containerd.Stop(mobyNamespace))
		}
	}()
	if err := os.Mkdir(dir, 0o711); err != nil { //nolint:gosec // sandboxes pass through it, not listing it
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte("{}"), 0o600); err != nil {
		return nil, err
	}
	if err := e.Run(); err != nil {
		return nil, err
	}
	// From the engine of the machine, which has built it.
	ctx, cancel := context.WithTimeout(context.Background(), dockerTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, "sh", "-c", `docker save "$1" | docker --host "$2" load`, "sh", image, "unix://"+dir+"/d.sock").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s is not brought into a dockerd of our own: %w: %s", image, err, out)
	}
	return e, nil
}

func (e *dockerEngine) Run() error {
	// The number in the file of one that was killed may be another process's by now.
	if err := os.Remove(e.dir + "/pid"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := e.p.start(); err != nil {
		return err
	}
	for end := time.Now().Add(dockerTime); time.Now().Before(end) && e.p.running(); time.Sleep(100 * time.Millisecond) {
		if _, err := e.docker("version"); err == nil {
			return nil
		}
	}
	text, err := os.ReadFile(e.p.log)
	return errors.Join(fmt.Errorf("dockerd does not serve: %s", text[max(0, len(text)-2000):]), err)
}

func (e *dockerEngine) Kill() error { e.p.kill(); return nil }

func (e *dockerEngine) Env() string   { return "SKERRY_DOCKER_ADDRESS=" + e.dir + "/d.sock" }
func (e *dockerEngine) Shims() string { return e.containerd.Address }

func (e *dockerEngine) docker(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, "docker", append([]string{"--host", "unix://" + e.dir + "/d.sock"}, args...)...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("docker %s: %w: %s", args[0], err, bytes.TrimSpace(out))
	}
	return strings.TrimSpace(string(out)), err
}

func (e *dockerEngine) Stop() error {
	left, err := e.docker("ps", "--all", "--format", "{{.Names}} {{.Status}}")
	if left != "" && err == nil {
		err = fmt.Errorf("left over in dockerd: %s", left)
		ids, asked := e.docker("ps", "--all", "--quiet")
		_, removed := e.docker(append([]string{"rm", "--force"}, strings.Fields(ids)...)...)
		err = errors.Join(err, asked, removed)
	}
	return errors.Join(err, e.p.stop(), e.unmount(), e.containerd.Stop(mobyNamespace))
}

// unmount takes away what dockerd itself leaves mounted: its folder, and the file of a network namespace.
func (e *dockerEngine) unmount() error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 4 && (f[4] == e.dir+"/root" || strings.HasPrefix(f[4], e.dir+"/exec/netns/")) {
			err = errors.Join(err, syscall.Unmount(f[4], syscall.MNT_DETACH))
		}
	}
	return err
}
