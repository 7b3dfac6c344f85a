package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sidecar"
	"github.com/skerry-sandbox/skerry/internal/sidecar/pki"
	"github.com/skerry-sandbox/skerry/internal/sidecar/pod"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMistakesAreNamed(t *testing.T) {
	for args, want := range map[string]string{
		"":                                    "--certs is missing",
		"--certs /c x":                        `"x" is no flag`,
		"--certs /c --mount /mnt/skills":      "want TARGET=FOLDER:ro",
		"--certs /c --mount /mnt/skills=/x:r": "want TARGET=FOLDER:ro",
		"--nope":                              "not defined",
		"--await -1s":                         "want more than 0",
	} {
		var out, errs bytes.Buffer
		if code := command(t.Context(), strings.Fields(args), &out, &errs, nil); code != exitUsage || !strings.Contains(errs.String(), want) {
			t.Errorf("%q: %d, %s", args, code, errs.String())
		}
	}
	var out, errs bytes.Buffer
	if code := command(t.Context(), []string{"--certs", t.TempDir()}, &out, &errs, nil); code != exitFailed || !strings.Contains(errs.String(), pki.CertFile) {
		t.Errorf("no certificate: %d, %s", code, errs.String())
	}
}

const id = sandbox.ID("skerry-0123456789abcdef")

// certificates makes a folder with those of a sandbox.
func certificates(t *testing.T) (auth *pki.Authority, dir string) {
	t.Helper()
	auth, err := pki.Open(t.Context(), filepath.Join(t.TempDir(), "pki"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := auth.Sandbox(id)
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	for name, text := range s.Files() {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return auth, dir
}

// TestServe is the program as the kubelet runs it: it serves, says so to who waits for that, and ends when it is told to.
func TestServe(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"run", "skills", "server"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	auth, certs := certificates(t)
	run := filepath.Join(dir, "run")
	await := func(long string) int {
		var out, errs bytes.Buffer
		return command(t.Context(), []string{"--await", long, "--run", run}, &out, &errs, nil)
	}
	if await("50ms") == 0 {
		t.Error("somebody serves before anything was started")
	}
	early := make(chan int, 1)
	go func() { early <- await("60s") }()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	addr, ended := make(chan net.Addr, 1), make(chan int, 1)
	var out, errs bytes.Buffer
	go func() {
		ended <- command(ctx, []string{"--certs", certs, "--listen", "127.0.0.1:0", "--run", run,
			"--mount", "/mnt/skills=" + filepath.Join(dir, "skills") + ":ro"}, &out, &errs, func(a net.Addr) { addr <- a })
	}()
	var c *sidecar.Conn
	var err error
	select {
	case a := <-addr:
		c, err = sidecar.Dial(t.Context(), sidecar.Options{
			Addr: a.String(), ID: id, Authority: auth, Limits: sandbox.Limits{DiskBytes: 1, FileBytes: 1},
			Mounts: []sandbox.Mount{{Source: filepath.Join(dir, "server"), Target: "/mnt/skills", ReadOnly: true}},
		})
		if err != nil {
			t.Fatal(err)
		}
	case code := <-ended:
		t.Fatalf("it ended with %d: %s", code, errs.String())
	}
	defer c.Close() //nolint:errcheck // test
	if code := <-early; code != 0 {
		t.Errorf("who waited from the beginning: %d", code)
	}
	cancel()
	select {
	case code := <-ended:
		if code != 0 {
			t.Errorf("it ended with %d: %s", code, errs.String())
		}
	case <-time.After(30 * time.Second):
		t.Fatal("it does not end")
	}
	if await("50ms") == 0 {
		t.Error("somebody serves after the end")
	}
}

// TestDaemon: the built program puts skerry-sandboxd into a volume before it serves, from an image without a shell, and does not
// serve without.
func TestDaemon(t *testing.T) {
	image, volume, run := t.TempDir(), t.TempDir(), t.TempDir()
	_, certs := certificates(t)
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", image, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	serve := func() (*exec.Cmd, *bytes.Buffer) {
		c := exec.CommandContext(t.Context(), filepath.Join(image, "skerry-bridge"), "--certs", certs, "--listen", "127.0.0.1:0", "--run", run, "--daemon", volume)
		var out bytes.Buffer
		c.Env, c.Stdout, c.Stderr = []string{}, &out, &out
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		return c, &out
	}
	c, out := serve()
	if err := c.Wait(); err == nil || !strings.Contains(out.String(), "skerry-sandboxd") {
		t.Errorf("without a daemon: %v, %s", err, out)
	}
	for _, text := range []string{"one", "two"} { // as when the kubelet starts it again
		if err := os.WriteFile(filepath.Join(image, "skerry-sandboxd"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, out := serve()
		serves := func() bool { return pod.Probe(t.Context(), run) == nil }
		for end := time.Now().Add(30 * time.Second); !serves() && time.Now().Before(end); {
			time.Sleep(5 * time.Millisecond)
		}
		got, err := os.ReadFile(filepath.Join(volume, "skerry-sandboxd"))
		if err != nil || string(got) != text || !serves() {
			t.Errorf("%q, %v", got, err)
		}
		_ = c.Process.Signal(os.Interrupt)
		if err := c.Wait(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
	if info, err := os.Stat(filepath.Join(volume, "skerry-sandboxd")); err != nil || info.Mode().Perm() != 0o555 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if left, err := os.ReadDir(volume); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
}

// TestRemove: a folder goes with what code made hard to remove in it, and nothing beside it.
func TestRemove(t *testing.T) {
	volume := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(volume, "thread/tree/workspace/a/b"), 0o755))
	must(os.WriteFile(filepath.Join(volume, "thread/tree/workspace/a/b/file"), nil, 0o400))
	must(os.Symlink("/etc", filepath.Join(volume, "thread/tree/workspace/link")))
	must(os.Chmod(filepath.Join(volume, "thread/tree/workspace/a/b"), 0o000))
	must(os.Chmod(filepath.Join(volume, "thread/tree/workspace/a"), 0o500))
	must(os.Mkdir(filepath.Join(volume, "other"), 0o755))
	for range 2 { // the second time there is nothing
		var out, errs bytes.Buffer
		if code := command(t.Context(), []string{"--remove", filepath.Join(volume, "thread")}, &out, &errs, nil); code != 0 {
			t.Fatalf("%d, %s", code, errs.String())
		}
	}
	left, err := os.ReadDir(volume)
	if err != nil || len(left) != 1 || left[0].Name() != "other" {
		t.Errorf("left are %v, %v", left, err)
	}
}
