package containerd_test

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/client"
	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/containerd"
	"github.com/skerry-sandbox/skerry/internal/driver/containerd/containerdtest"
	"github.com/skerry-sandbox/skerry/internal/driver/drivertest"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func TestMain(m *testing.M) { drivertest.Main(m) }

// namespace keeps the tests apart from a server's, also in what shims make outside of the folder.
const namespace = "skerry-drivertest"

func ctx(t testing.TB) context.Context {
	c, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return c
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// startDaemon starts a containerd for the test. When it is over, nothing may be left in it, no process
// and no cgroup.
func startDaemon(t *testing.T, find func() (containerdtest.Programs, error)) *containerdtest.Daemon {
	t.Helper()
	if os.Geteuid() != 0 {
		drivertest.Missing(t, "root", "containerd needs it")
	}
	programs, err := find()
	if err != nil {
		drivertest.Missing(t, "containerd", err)
	}
	d, err := containerdtest.Start(programs)
	must(t, err)
	t.Cleanup(func() {
		if err := d.Stop(namespace); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("log of containerd:\n%s", d.Log())
		}
		checkNothingLeft(t, d)
	})
	return d
}

// checkNothingLeft looks for what a sandbox leaves outside of containerd's folder.
func checkNothingLeft(t *testing.T, d *containerdtest.Daemon) {
	t.Helper()
	drivertest.NoFiles(t, "/run/containerd/runc/"+namespace+"/*", "/run/containerd/runsc/"+namespace+"/*")
	// A shim ends a moment after its task was deleted.
	var shims []string
	for range 250 {
		if shims = processesOf(t, d.Address); len(shims) == 0 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("left over: %v", shims)
}

// processesOf finds processes whose command line holds a text.
func processesOf(t *testing.T, text string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must(t, err)
	var found []string
	for _, file := range files {
		if data, err := os.ReadFile(file); err == nil && strings.Contains(string(data), text) {
			found = append(found, file+": "+strings.ReplaceAll(string(data), "\x00", " "))
		}
	}
	return found
}

// engine returns a connection of the test's own, apart from the driver's.
func engine(t testing.TB, d *containerdtest.Daemon) *client.Client {
	t.Helper()
	c, err := client.New(d.Address, client.WithDefaultNamespace(namespace))
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// tempRoot is a folder that sandboxes can see into.
func tempRoot(t testing.TB) string {
	t.Helper()
	root, err := os.MkdirTemp("", "cd") // short: a socket's path has 108 bytes
	must(t, err)
	t.Cleanup(func() {
		drivertest.NoFiles(t, root+"/etc/*")
		must(t, os.RemoveAll(root))
	})
	must(t, os.Chmod(root, 0o711))
	return root
}

// known is the runtime that a program is: crun takes runc's place.
func known(program string) string {
	if program == "crun" {
		return "runc"
	}
	return program
}

func newDriver(t testing.TB, d *containerdtest.Daemon, root string, runtimes ...string) *containerd.Driver {
	t.Helper()
	programs := make(map[string]string)
	for _, name := range runtimes {
		program, err := exec.LookPath(name)
		if err != nil {
			drivertest.Missing(t, name, err)
		}
		programs[known(name)] = program
	}
	made, err := containerd.New(containerd.Options{
		Address: d.Address, Namespace: namespace, Root: root, Runtimes: programs,
		Probe: drivertest.Program(t), Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	must(t, err)
	return made
}

// carelessImage imports an image as careless as one can be: everybody may write everywhere, a link
// stands where a file is mounted, and most mount points are missing.
func carelessImage(t testing.TB, d *containerd.Driver) string {
	t.Helper()
	const ref = "skerry/drivertest:1"
	dir := t.TempDir()
	for _, name := range []string{"dev", "etc", "usr", "opt", "var", "root", "tmp", "sys"} {
		must(t, os.Mkdir(filepath.Join(dir, name), 0o777))
		must(t, os.Chmod(filepath.Join(dir, name), 0o777))
	}
	must(t, os.Symlink("/run/systemd/resolve/stub-resolv.conf", dir+"/etc/resolv.conf"))
	imported, err := d.ImportImage(ctx(t), ref, dir)
	must(t, err)
	if again, err := d.ImportImage(ctx(t), ref, dir); err != nil || again || !imported {
		t.Errorf("imported %v, then %v, %v; want once", imported, again, err)
	}
	return ref
}

func harness(t *testing.T, daemon *containerdtest.Daemon, runtime string) drivertest.Harness {
	t.Helper()
	root := tempRoot(t)
	first := newDriver(t, daemon, root, runtime)
	defer first.Close() //nolint:errcheck // a driver of the test
	c := engine(t, daemon)
	return drivertest.Harness{
		New:          func(t testing.TB) driver.Driver { return newDriver(t, daemon, root, runtime) },
		Runtime:      known(runtime),
		Image:        carelessImage(t, first),
		UnknownImage: "skerry/no-such-image:1",
		PID:          func(t testing.TB, id sandbox.ID) int { return pid(t, c, id) },
		Kill:         func(t testing.TB, id sandbox.ID) { must(t, unix.Kill(pid(t, c, id), unix.SIGKILL)) },
	}
}

func pid(t testing.TB, c *client.Client, id sandbox.ID) int {
	t.Helper()
	got, err := c.TaskService().Get(ctx(t), &tasks.GetRequest{ContainerID: string(id)})
	must(t, err)
	return int(got.Process.Pid)
}

// built are the programs of the newest version.
func built() (containerdtest.Programs, error) { return containerdtest.Built(os.Getenv("SKERRY_CACHE")) }

func TestConformance(t *testing.T) {
	all := []string{"runsc", "runc"}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil { // crun refuses a machine with both versions of cgroups
		all = append(all, "crun")
	}
	for _, version := range []struct {
		name     string
		find     func() (containerdtest.Programs, error)
		runtimes []string
	}{
		{"built", built, drivertest.Runtimes(all...)},
		{"installed", containerdtest.Installed, []string{"runc"}},
	} {
		if testing.Short() && version.name != "built" {
			continue
		}
		t.Run(version.name, func(t *testing.T) {
			daemon := startDaemon(t, version.find)
			for _, runtime := range version.runtimes {
				t.Run(runtime, func(t *testing.T) { drivertest.Run(t, harness(t, daemon, runtime)) })
			}
		})
	}
}
