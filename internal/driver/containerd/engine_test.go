package containerd_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/containerd"
	"github.com/skerry-sandbox/skerry/internal/driver/containerd/containerdtest"
	"github.com/skerry-sandbox/skerry/internal/driver/drivertest"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// smallSpec is a sandbox without mounts.
func smallSpec(t *testing.T, n int, image string) sandbox.Spec {
	return sandbox.Spec{
		ID: sandbox.ID(fmt.Sprintf("skerry-00000000d0c4e7%02x", n)), Image: image, Runtime: "runc", UID: 1_000_000,
		Daemon: drivertest.Program(t), Args: []string{"serve"}, Labels: map[string]string{"engine": "test"},
		Limits: sandbox.Limits{MemoryBytes: 64 << 20, CPUMillis: 1000, PIDs: 32, OpenFiles: 64, FileBytes: 1 << 20, TmpBytes: 1 << 20, DiskBytes: 1},
	}
}

// at makes a driver for a containerd at a socket.
func at(t *testing.T, socket string) *containerd.Driver {
	t.Helper()
	d := newDriver(t, &containerdtest.Daemon{Address: socket}, tempRoot(t), "runc")
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// start creates a sandbox and sees to its removal.
func start(t *testing.T, d *containerd.Driver, spec sandbox.Spec) {
	t.Helper()
	_, err := d.Create(ctx(t), spec)
	must(t, err)
	t.Cleanup(func() { must(t, d.Remove(ctx(t), spec.ID)) })
}

// await waits for the ends of sandboxes.
func await(t *testing.T, events <-chan driver.Event, ids ...sandbox.ID) {
	t.Helper()
	want := make(map[sandbox.ID]bool)
	for _, id := range ids {
		want[id] = true
	}
	for late := time.After(30 * time.Second); len(want) > 0; {
		select {
		case e := <-events:
			delete(want, e.ID)
		case <-late:
			t.Fatalf("not reported: %v", want)
		}
	}
}

// TestEngine is what needs one containerd, and no long one.
func TestEngine(t *testing.T) {
	daemon := startDaemon(t, built)
	for _, c := range []struct {
		name string
		test func(*testing.T, *containerdtest.Daemon)
	}{
		{"Restart", testEngineRestart},
		{"ShimKilled", testShimKilled},
		{"HalfMade", testHalfMade},
		{"GarbageCollection", testGarbageCollection},
		{"ForeignContainer", testForeignContainer},
		{"ImageArchives", testImageArchives},
		{"ImageBounds", testImageBounds},
		{"ImageWithVolumes", testImageWithVolumes},
		{"Pull", testPull},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, daemon) })
	}
}

// testEngineRestart: sandboxes go on while containerd is away; what ends meanwhile is reported when it is
// back, and later ends are reported as ever.
func testEngineRestart(t *testing.T, daemon *containerdtest.Daemon) {
	d := at(t, daemon.Address)
	c := engine(t, daemon)
	one, two := smallSpec(t, 1, containerd.ProbeImage), smallSpec(t, 2, containerd.ProbeImage)
	start(t, d, one)
	start(t, d, two)
	pids := []int{pid(t, c, one.ID), pid(t, c, two.ID)}
	watching, stop := context.WithCancel(context.Background())
	defer stop()
	events, err := d.Watch(watching)
	must(t, err)

	must(t, daemon.Halt())
	must(t, unix.Kill(pids[0], unix.SIGKILL))
	if _, err := d.Inspect(ctx(t), one.ID); !errors.Is(err, sandbox.Unavailable) {
		t.Errorf("Inspect without containerd: %v, want unavailable", err)
	}
	must(t, unix.Kill(pids[1], 0))
	time.Sleep(300 * time.Millisecond) // some attempts fail
	must(t, daemon.Run())
	await(t, events, one.ID)
	there, err := d.Inspect(ctx(t), two.ID)
	must(t, err)
	if there.State != sandbox.Running || pid(t, c, two.ID) != pids[1] {
		t.Errorf("after a restart of containerd: %+v", there)
	}
	must(t, unix.Kill(pids[1], unix.SIGKILL))
	await(t, events, two.ID)
	stop()
	for range events { // closed in the end
	}
}

// testShimKilled: without its shim a sandbox cannot be told from a dead one, and so is ended.
func testShimKilled(t *testing.T, daemon *containerdtest.Daemon) {
	d := at(t, daemon.Address)
	spec := smallSpec(t, 1, containerd.ProbeImage)
	start(t, d, spec)
	inside := pid(t, engine(t, daemon), spec.ID)
	events, err := d.Watch(ctx(t))
	must(t, err)
	shims := processesOf(t, string(spec.ID))
	if len(shims) != 1 {
		t.Fatalf("shims: %v", shims)
	}
	var shim int
	_, err = fmt.Sscanf(shims[0], "/proc/%d/", &shim)
	must(t, err)
	must(t, unix.Kill(shim, unix.SIGKILL))
	await(t, events, spec.ID)
	there, err := d.Inspect(ctx(t), spec.ID)
	must(t, err)
	if there.State != sandbox.Lost || there.OOMKilled {
		t.Errorf("got %+v, want lost", there)
	}
	must(t, d.Remove(ctx(t), spec.ID))
	// Its new parent may take a while to ask for its exit code, but it has ended.
	if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", inside)); err == nil && !strings.Contains(string(stat), ") Z ") {
		t.Errorf("PID 1 of the sandbox is still there: %s", stat)
	}
}

// testHalfMade: what a server left that died at any point of Create is found and removed.
func testHalfMade(t *testing.T, daemon *containerdtest.Daemon) {
	d := at(t, daemon.Address)
	c := engine(t, daemon)
	whole := smallSpec(t, 1, containerd.ProbeImage)
	start(t, d, whole)
	model, err := c.ContainerService().Get(ctx(t), string(whole.ID))
	must(t, err)
	spec := smallSpec(t, 2, containerd.ProbeImage)
	claim := func() {
		half := model
		half.ID, half.SnapshotKey = string(spec.ID), string(spec.ID)
		half.Labels = map[string]string{"io.skerry.containerd": "1"}
		_, err := c.ContainerService().Create(ctx(t), half)
		must(t, err)
	}
	claim()
	if there, err := d.Inspect(ctx(t), spec.ID); err != nil || there.State != sandbox.Starting {
		t.Errorf("a claim: %+v, %v, want starting", there, err)
	}
	if there, err := d.Create(ctx(t), spec); err != nil || there.State != sandbox.Starting {
		t.Errorf("Create beside a claim: %+v, %v, want starting", there, err)
	}
	must(t, d.Remove(ctx(t), spec.ID))

	// A snapshot that outlived its container does not stand in the way of the next one.
	info, err := c.SnapshotService("overlayfs").Stat(ctx(t), string(whole.ID))
	must(t, err)
	claim()
	_, err = c.SnapshotService("overlayfs").Prepare(ctx(t), string(spec.ID), info.Parent)
	must(t, err)
	must(t, c.ContainerService().Delete(ctx(t), string(spec.ID)))
	start(t, d, spec)
	if there, err := d.Inspect(ctx(t), spec.ID); err != nil || there.State != sandbox.Running {
		t.Errorf("got %+v, %v, want running", there, err)
	}
}

// testGarbageCollection: neither the loss of its image nor a collection takes a sandbox its files.
func testGarbageCollection(t *testing.T, daemon *containerdtest.Daemon) {
	d := at(t, daemon.Address)
	c := engine(t, daemon)
	spec := smallSpec(t, 1, carelessImage(t, d))
	start(t, d, spec)
	must(t, c.ImageService().Delete(ctx(t), "docker.io/"+spec.Image, images.SynchronousDelete()))
	if _, err := d.Create(ctx(t), smallSpec(t, 2, spec.Image)); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("Create without the image: %v, want not_found", err)
	}
	names, err := os.ReadDir(fmt.Sprintf("/proc/%d/root/opt", pid(t, c, spec.ID)))
	must(t, err)
	if len(names) != 1 {
		t.Errorf("the sandbox's root file system holds %v, want what is mounted there", names)
	}
	info, err := c.SnapshotService("overlayfs").Stat(ctx(t), string(spec.ID))
	must(t, err)
	if _, err := c.SnapshotService("overlayfs").Stat(ctx(t), info.Parent); err != nil {
		t.Errorf("the layer below the sandbox: %v", err)
	}
}

// testForeignContainer: a container of a sandbox's name that is not the driver's is no sandbox.
func testForeignContainer(t *testing.T, daemon *containerdtest.Daemon) {
	d := at(t, daemon.Address)
	c := engine(t, daemon)
	spec := smallSpec(t, 1, containerd.ProbeImage)
	start(t, d, smallSpec(t, 2, containerd.ProbeImage)) // makes the image
	config, err := typeurl.MarshalAny(&specs.Spec{})
	must(t, err)
	opts, err := typeurl.MarshalAny(&options.Options{})
	must(t, err)
	_, err = c.ContainerService().Create(ctx(t), containers.Container{
		ID: string(spec.ID), Spec: config, Runtime: containers.RuntimeInfo{Name: "io.containerd.runc.v2", Options: opts},
	})
	must(t, err)
	if _, err := d.Inspect(ctx(t), spec.ID); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("Inspect: %v, want not_found", err)
	}
	if err := d.Remove(ctx(t), spec.ID); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("Remove: %v, want conflict", err)
	}
	if _, err := d.Create(ctx(t), spec); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("Create: %v, want conflict", err)
	}
	if listed, err := d.List(ctx(t), nil); err != nil || len(listed) != 1 {
		t.Errorf("List: %v, %v, want the sandbox alone", listed, err)
	}
	must(t, c.ContainerService().Delete(ctx(t), string(spec.ID)))
}

// TestEngineAway: without containerd every call says so, and soon.
func TestEngineAway(t *testing.T) {
	d := at(t, filepath.Join(t.TempDir(), "nothing.sock"))
	for name, call := range calls(t, d) {
		began := time.Now()
		if err := call(ctx(t)); !errors.Is(err, sandbox.Unavailable) {
			t.Errorf("%s: %v, want unavailable", name, err)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%s took %v", name, took)
		}
	}
}

// TestEngineHangs: calls of a containerd that takes connections and never answers end with their context.
func TestEngineHangs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hung.sock")
	l, err := net.Listen("unix", path)
	must(t, err)
	var group sync.WaitGroup
	group.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			group.Go(func() { _, _ = io.Copy(io.Discard, conn); _ = conn.Close() })
		}
	})
	d := at(t, path)
	for name, call := range calls(t, d) {
		short, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		began := time.Now()
		err := call(short)
		cancel()
		if !errors.Is(err, sandbox.Timeout) && !errors.Is(err, sandbox.Unavailable) {
			t.Errorf("%s: %v, want timeout", name, err)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%s took %v", name, took)
		}
	}
	must(t, d.Close())
	_ = l.Close()
	group.Wait()
}

func calls(t *testing.T, d *containerd.Driver) map[string]func(context.Context) error {
	spec := smallSpec(t, 1, containerd.ProbeImage)
	return map[string]func(context.Context) error{
		"Capabilities": func(ctx context.Context) error { _, err := d.Capabilities(ctx); return err },
		"Create":       func(ctx context.Context) error { _, err := d.Create(ctx, spec); return err },
		"Remove":       func(ctx context.Context) error { return d.Remove(ctx, spec.ID) },
		"Inspect":      func(ctx context.Context) error { _, err := d.Inspect(ctx, spec.ID); return err },
		"List":         func(ctx context.Context) error { _, err := d.List(ctx, nil); return err },
		"Watch":        func(ctx context.Context) error { _, err := d.Watch(ctx); return err },
		"Pause":        func(ctx context.Context) error { return d.Pause(ctx, spec.ID) },
		"About":        func(ctx context.Context) error { _, err := d.About(ctx); return err },
		"ImportImage":  func(ctx context.Context) error { _, err := d.ImportImage(ctx, "x", "/usr"); return err },
	}
}

// TestOptions: what cannot be right is refused before containerd is asked.
func TestOptions(t *testing.T) {
	root := t.TempDir()
	for name, opts := range map[string]containerd.Options{
		"no root":           {},
		"relative root":     {Root: "x"},
		"relative address":  {Root: root, Address: "containerd.sock"},
		"another transport": {Root: root, Address: "tcp://127.0.0.1:1"},
		"bad namespace":     {Root: root, Namespace: "a/b"},
		"long namespace":    {Root: root, Namespace: strings.Repeat("a", 77)},
	} {
		if d, err := containerd.New(opts); err == nil {
			_ = d.Close()
			t.Errorf("%s: taken", name)
		}
	}
}
