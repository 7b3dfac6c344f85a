package oci

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/driver/engine/ociconfig"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// overlaid returns the driver of a folder, where the kernel has overlays.
func overlaid(t *testing.T) *Driver {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("overlays need root")
	}
	d, err := New(Options{Root: t.TempDir() + "/a:b,c"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// TestOverlaysShareNothing: events and locks of a file stay in the overlay that it was opened through.
func TestOverlaysShareNothing(t *testing.T) {
	d := overlaid(t)
	image := filepath.Join(t.TempDir(), `im:age,\`)
	must(t, os.MkdirAll(image+"/usr", 0o755))
	must(t, os.WriteFile(image+"/usr/git", []byte("program"), 0o755))
	mounted := func() (*overlays, string) {
		o, err := d.newOverlays()
		must(t, err)
		at, err := o.of(image)
		must(t, err)
		t.Cleanup(func() { must(t, o.remove()) })
		return o, at
	}
	_, one := mounted()
	o, two := mounted()
	if again, err := o.of(image); err != nil || again != two {
		t.Errorf("mounted twice: %s, %v", again, err)
	}
	watch, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	must(t, err)
	defer unix.Close(watch)
	for _, path := range []string{two, two + "/usr", two + "/usr/git"} {
		_, err := unix.InotifyAddWatch(watch, path, unix.IN_ALL_EVENTS)
		must(t, err)
	}
	held, err := os.Open(one + "/usr/git")
	must(t, err)
	defer held.Close()
	must(t, unix.Flock(int(held.Fd()), unix.LOCK_EX))
	if text, err := os.ReadFile(one + "/usr/git"); err != nil || string(text) != "program" {
		t.Errorf("%q, %v", text, err)
	}
	if n, err := unix.Read(watch, make([]byte, 4096)); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("%d bytes of events of another sandbox, %v", n, err)
	}
	file, err := os.Open(two + "/usr/git")
	must(t, err)
	defer file.Close()
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Errorf("a lock of another sandbox: %v", err)
	}
	if n, err := unix.Read(watch, make([]byte, 4096)); n <= 0 {
		t.Errorf("no events of its own: %v", err)
	}
	if err := os.WriteFile(one+"/usr/x", nil, 0o644); !errors.Is(err, unix.EROFS) {
		t.Errorf("written: %v", err)
	}
}

// TestMountsOfTheHostAreOverlaid: folders and files, also by links.
func TestMountsOfTheHostAreOverlaid(t *testing.T) {
	d := overlaid(t)
	host := t.TempDir()
	must(t, os.MkdirAll(host+"/usr", 0o755))
	must(t, os.WriteFile(host+"/usr/real", []byte("text"), 0o644))
	must(t, os.Symlink("usr/real", host+"/link"))
	o, err := d.newOverlays()
	must(t, err)
	defer func() { must(t, o.remove()) }()
	out, err := o.bound([]specs.Mount{{Source: host + "/usr", Destination: "/usr"}, {Source: host + "/link", Destination: "/etc/x"}})
	must(t, err)
	for i, m := range out {
		text, err := os.ReadFile([]string{m.Source + "/real", m.Source}[i])
		if err != nil || string(text) != "text" || !strings.HasPrefix(m.Source, o.dir+"/") {
			t.Errorf("%s: %q, %v", m.Source, text, err)
		}
	}
	if len(o.at) != 1 {
		t.Errorf("%d overlays of one folder", len(o.at))
	}
}

// TestOverlaysOfADeadServerGo with the next start, those of a live one do not.
func TestOverlaysOfADeadServerGo(t *testing.T) {
	d := overlaid(t)
	image := t.TempDir()
	must(t, os.WriteFile(image+"/file", nil, 0o644))
	live, err := d.newOverlays()
	must(t, err)
	defer func() { must(t, live.remove()) }()
	_, err = live.of(image)
	must(t, err)
	dead := &overlays{dir: d.roots() + "/.4194304.1.x", empty: live.empty, at: map[string]string{}}
	must(t, os.Mkdir(dead.dir, 0o711))
	_, err = dead.of(image)
	must(t, err)
	again, err := New(Options{Root: d.root})
	must(t, err)
	defer again.Close()
	if _, err := os.Stat(dead.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left: %v", err)
	}
	if _, err := os.Stat(live.dir + "/0/file"); err != nil {
		t.Errorf("taken from a server that lives: %v", err)
	}
	if _, err := os.Stat(image + "/file"); err != nil {
		t.Errorf("the image lost a file: %v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestNoOverlayNoStart: where overlays are, a sandbox that gets none does not start. Only a file system that cannot be
// below one is shared.
func TestNoOverlayNoStart(t *testing.T) {
	d := overlaid(t)
	own, err := d.newOverlays()
	must(t, err)
	t.Cleanup(func() { must(t, own.remove()) })
	daemon := filepath.Join(t.TempDir(), "daemon")
	must(t, os.WriteFile(daemon, nil, 0o755))
	in := ociconfig.Input{Rootfs: filepath.Join(t.TempDir(), "gone"), Spec: sandbox.Spec{Daemon: daemon}}
	if _, err := (creation{d}).fillOwn(in, own); sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("an image that is gone: %v", err)
	}
	in.Rootfs = "/proc/self" // procfs cannot be below an overlay
	if got, err := (creation{d}).fillOwn(in, own); err != nil || got.Rootfs != in.Rootfs {
		t.Errorf("a file system that can be below none: %q, %v", got.Rootfs, err)
	}
}
