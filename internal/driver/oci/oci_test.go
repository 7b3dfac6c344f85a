package oci_test

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/drivertest"
	"github.com/skerry-sandbox/skerry/internal/driver/oci"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func TestMain(m *testing.M) { drivertest.Main(m) }

// cgroupParent keeps the tests apart from a server on the same machine.
const cgroupParent = "skerry-drivertest"

// harness is the suite's hold on one runtime, with the host's /usr or the unpacked image as root.
func harness(t *testing.T, name, image string) drivertest.Harness {
	t.Helper()
	program, err := exec.LookPath(name)
	if err != nil {
		drivertest.Missing(t, name, err)
	}
	runtime := name
	if name == "crun" {
		runtime = "runc" // whose place it takes
	}
	if os.Geteuid() != 0 {
		drivertest.Missing(t, "root", "an OCI runtime needs it")
	}
	root := tempRoot(t)
	pid := func(t testing.TB, id sandbox.ID) int {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(root, "bundles", string(id), "pid"))
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(data)))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return drivertest.Harness{
		New: func(t testing.TB) driver.Driver {
			d, err := oci.New(oci.Options{
				Root:         root,
				Runtimes:     map[string]string{runtime: program},
				CgroupParent: cgroupParent,
				Probe:        drivertest.Program(t),
				Log:          slog.New(slog.NewTextHandler(t.Output(), nil)),
			})
			if err != nil {
				t.Fatal(err)
			}
			return d
		},
		Runtime:      runtime,
		Image:        image,
		UnknownImage: "/no/such/image",
		PID:          pid,
		Kill: func(t testing.TB, id sandbox.ID) {
			t.Helper()
			if err := unix.Kill(pid(t, id), unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
		},
	}
}

// tempRoot makes a state folder. When the test is over, nothing may be left in it, and no cgroup.
func tempRoot(t *testing.T) string {
	t.Helper()
	root, err := os.MkdirTemp("", "oci") // short: a socket's path has 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(root, 0o711); err != nil { // as a data folder: sandboxes pass through it
		t.Fatal(err)
	}
	t.Cleanup(func() {
		drivertest.NoFiles(t, root+"/bundles/*", root+"/runc/*", root+"/runsc/*", root+"/probe/*", root+"/bundles/.*", root+"/roots/*", root+"/roots/.*")
		for _, parent := range cgroupParents() {
			entries, err := os.ReadDir(parent)
			for _, e := range entries {
				if err == nil && e.IsDir() {
					t.Errorf("left over: %s/%s", parent, e.Name())
				}
			}
			_ = unix.Rmdir(parent)
		}
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	return root
}

// cgroupParents are the tests' cgroups, one a hierarchy.
func cgroupParents() []string {
	one, _ := filepath.Glob("/sys/fs/cgroup/" + cgroupParent)
	many, _ := filepath.Glob("/sys/fs/cgroup/*/" + cgroupParent)
	return append(one, many...)
}

// unpackedImage makes an image as careless as one can be: everybody may write everywhere, a link
// stands where a file is mounted, and most mount points are missing.
func unpackedImage(t *testing.T) string {
	t.Helper()
	dir := tempRoot(t)
	for _, name := range []string{"", "dev", "etc", "usr", "opt", "var", "root", "tmp", "sys"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(path, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/run/systemd/resolve/stub-resolv.conf", dir+"/etc/resolv.conf"); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestConformanceOnImage(t *testing.T) {
	drivertest.Run(t, harness(t, "runc", unpackedImage(t)))
}

func TestConformance(t *testing.T) {
	runtimes := []string{"runc", "runsc"}
	// crun refuses a machine with both versions of cgroups.
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		runtimes = append(runtimes, "crun")
	}
	for _, runtime := range drivertest.Runtimes(runtimes...) {
		t.Run(runtime, func(t *testing.T) {
			drivertest.Run(t, harness(t, runtime, ""))
		})
	}
}
