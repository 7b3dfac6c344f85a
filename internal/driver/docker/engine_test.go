package docker_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/skerry-sandbox/skerry/internal/driver/docker"
	"github.com/skerry-sandbox/skerry/internal/driver/drivertest"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// smallSpec is a sandbox without mounts.
func smallSpec(t *testing.T, image string) sandbox.Spec {
	return sandbox.Spec{
		ID: "skerry-00000000d0c4e700", Image: image, Runtime: "runc", UID: 1_000_000,
		Daemon: drivertest.Program(t), Args: []string{"serve"}, Labels: map[string]string{"engine": "test"},
		Limits: sandbox.Limits{MemoryBytes: 64 << 20, CPUMillis: 1000, PIDs: 32, OpenFiles: 64, FileBytes: 1 << 20, TmpBytes: 1 << 20, DiskBytes: 1},
	}
}

// at makes a driver for an engine at a unix socket.
func at(t *testing.T, socket string) *docker.Driver {
	t.Helper()
	d, err := docker.New(docker.Options{
		Host: "unix://" + socket, Root: t.TempDir(), Probe: drivertest.Program(t),
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	must(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// relay passes connections on to the engine until it is cut.
type relay struct {
	path     string
	listener net.Listener
	mu       sync.Mutex
	conns    []net.Conn
	group    sync.WaitGroup
}

func (r *relay) open(t *testing.T) {
	t.Helper()
	l, err := net.Listen("unix", r.path)
	must(t, err)
	r.listener = l
	r.group.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("unix", "/var/run/docker.sock")
			if err != nil {
				_ = from.Close()
				continue
			}
			r.mu.Lock()
			r.conns = append(r.conns, from, to)
			r.mu.Unlock()
			r.group.Go(func() { _, _ = io.Copy(to, from); _ = to.Close() })
			r.group.Go(func() { _, _ = io.Copy(from, to); _ = from.Close() })
		}
	})
}

// cut is an engine that goes away.
func (r *relay) cut() {
	_ = r.listener.Close()
	r.mu.Lock()
	for _, c := range r.conns {
		_ = c.Close()
	}
	r.conns = nil
	r.mu.Unlock()
	r.group.Wait()
}

// TestWatchReconnects: the driver reports what ends while the engine is away once it is back, also when
// nothing is left of it. Later ends are reported as ever.
func TestWatchReconnects(t *testing.T) {
	c := engine(t)
	importImage(t, c, "skerry/drivertest-watch:1")
	r := &relay{path: filepath.Join(t.TempDir(), "engine.sock")}
	r.open(t)
	defer func() { r.cut() }()
	d := at(t, r.path)
	specs := make([]sandbox.Spec, 3)
	for i := range specs {
		specs[i] = smallSpec(t, "skerry/drivertest-watch:1")
		specs[i].ID = sandbox.ID("skerry-00000000d0c4e70" + string(rune('1'+i)))
		_, err := d.Create(ctx(t), specs[i])
		must(t, err)
		t.Cleanup(func() {
			_, err := c.ContainerRemove(ctx(t), string(specs[i].ID), client.ContainerRemoveOptions{Force: true})
			if err != nil {
				t.Logf("in clean-up: %v", err)
			}
		})
	}
	watching, stop := context.WithCancel(context.Background())
	defer stop()
	events, err := d.Watch(watching)
	must(t, err)

	r.cut()
	_, err = c.ContainerKill(ctx(t), string(specs[0].ID), client.ContainerKillOptions{Signal: "KILL"})
	must(t, err)
	_, err = c.ContainerRemove(ctx(t), string(specs[1].ID), client.ContainerRemoveOptions{Force: true})
	must(t, err)
	if _, err := d.Inspect(ctx(t), specs[0].ID); !errors.Is(err, sandbox.Unavailable) {
		t.Errorf("Inspect without an engine: %v, want unavailable", err)
	}
	time.Sleep(300 * time.Millisecond) // some attempts fail
	r.open(t)
	want := map[sandbox.ID]bool{specs[0].ID: true, specs[1].ID: true}
	await := func() {
		late := time.After(10 * time.Second)
		for len(want) > 0 {
			select {
			case e := <-events:
				delete(want, e.ID)
			case <-late:
				t.Fatalf("not reported: %v", want)
			}
		}
	}
	await()
	must(t, d.Remove(ctx(t), specs[2].ID))
	want[specs[2].ID] = true
	await()
	stop()
	for range events { // closed in the end
	}
}

// TestEngineAway: without an engine every call says so, and soon.
func TestEngineAway(t *testing.T) {
	d := at(t, filepath.Join(t.TempDir(), "nothing.sock"))
	for name, call := range calls(t, d) {
		if err := call(ctx(t)); !errors.Is(err, sandbox.Unavailable) {
			t.Errorf("%s: %v, want unavailable", name, err)
		}
	}
}

// answering is the socket of an engine that does something with each connection, and then closes it.
func answering(t *testing.T, do func(net.Conn)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "engine.sock")
	l, err := net.Listen("unix", path)
	must(t, err)
	var group sync.WaitGroup
	group.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			group.Go(func() { do(conn); _ = conn.Close() })
		}
	})
	t.Cleanup(func() { _ = l.Close(); group.Wait() }) // after the driver is closed
	return path
}

// TestEngineHangs: calls of an engine that takes connections and never answers end with their context.
func TestEngineHangs(t *testing.T) {
	d := at(t, answering(t, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }))
	for name, call := range calls(t, d) {
		short, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		start := time.Now()
		err := call(short)
		cancel()
		if !errors.Is(err, sandbox.Timeout) && !errors.Is(err, sandbox.Unavailable) {
			t.Errorf("%s: %v, want timeout", name, err)
		}
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("%s took %v", name, took)
		}
	}
}

// TestEngineDies: an engine that ends in the middle of a call is away, not at fault.
func TestEngineDies(t *testing.T) {
	d := at(t, answering(t, func(conn net.Conn) { _, _ = conn.Read(make([]byte, 4<<10)) }))
	for name, call := range calls(t, d) {
		if err := call(ctx(t)); !errors.Is(err, sandbox.Unavailable) {
			t.Errorf("%s: %v, want unavailable", name, err)
		}
	}
}

func calls(t *testing.T, d *docker.Driver) map[string]func(context.Context) error {
	spec := smallSpec(t, docker.ProbeImage)
	return map[string]func(context.Context) error{
		"Capabilities": func(ctx context.Context) error { _, err := d.Capabilities(ctx); return err },
		"Create":       func(ctx context.Context) error { _, err := d.Create(ctx, spec); return err },
		"Remove":       func(ctx context.Context) error { return d.Remove(ctx, spec.ID) },
		"Inspect":      func(ctx context.Context) error { _, err := d.Inspect(ctx, spec.ID); return err },
		"List":         func(ctx context.Context) error { _, err := d.List(ctx, nil); return err },
		"Watch":        func(ctx context.Context) error { _, err := d.Watch(ctx); return err },
		"Pause":        func(ctx context.Context) error { return d.Pause(ctx, spec.ID) },
		"About":        func(ctx context.Context) error { _, err := d.About(ctx); return err },
	}
}

// TestAbout: a real engine tells its versions and where its runtimes are.
func TestAbout(t *testing.T) {
	about, err := at(t, "/var/run/docker.sock").About(ctx(t))
	must(t, err)
	if !strings.HasPrefix(about.Engine, "Docker ") || !strings.Contains(about.API, "1.41") || about.Programs["runc"] == "" || !strings.Contains(about.Advice["runsc"], `"--host-uds=all"`) {
		t.Errorf("%+v", about)
	}
}

// TestImageWithVolumes: a volume of an image is a bounded memory file system (the e2e tests write to one); a volume that
// would hide a folder of the sandbox is refused.
func TestImageWithVolumes(t *testing.T) {
	c := engine(t)
	importImage(t, c, "skerry/drivertest-volume:1", "VOLUME /etc")
	d := at(t, "/var/run/docker.sock")
	if _, err := d.Create(ctx(t), smallSpec(t, "skerry/drivertest-volume:1")); !errors.Is(err, sandbox.NotSupported) {
		t.Errorf("got %v, want not_supported", err)
	}
}

// TestForeignContainer: a container of a sandbox's name that is not the driver's is no sandbox.
func TestForeignContainer(t *testing.T) {
	c := engine(t)
	importImage(t, c, "skerry/drivertest-foreign:1")
	d := at(t, "/var/run/docker.sock")
	spec := smallSpec(t, "skerry/drivertest-foreign:1")
	_, err := c.ContainerCreate(ctx(t), client.ContainerCreateOptions{Name: string(spec.ID), Image: spec.Image, Config: &container.Config{Cmd: []string{"/none"}}})
	must(t, err)
	t.Cleanup(func() {
		_, err := c.ContainerRemove(ctx(t), string(spec.ID), client.ContainerRemoveOptions{Force: true})
		must(t, err)
	})
	if _, err := d.Inspect(ctx(t), spec.ID); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("Inspect: %v, want not_found", err)
	}
	if err := d.Remove(ctx(t), spec.ID); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("Remove: %v, want conflict", err)
	}
	if _, err := d.Create(ctx(t), spec); err == nil {
		t.Error("Create took a foreign container for its own")
	}
}
