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
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMistakesAreNamed(t *testing.T) {
	for args, want := range map[string]string{
		"":                                    "--certs is missing",
		"--certs /c x":                        `"x" is no flag`,
		"--certs /c --mount /mnt/skills":      "want TARGET=FOLDER:ro",
		"--certs /c --mount /mnt/skills=/x:r": "want TARGET=FOLDER:ro",
		"--nope":                              "not defined",
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

// TestServe is the program as the kubelet runs it: it serves, answers the probe, and ends when it is told to.
func TestServe(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"certs", "run", "skills", "server"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	auth, err := pki.Open(t.Context(), filepath.Join(dir, "pki"))
	if err != nil {
		t.Fatal(err)
	}
	const id = sandbox.ID("skerry-0123456789abcdef")
	s, err := auth.Sandbox(id)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range s.Files() {
		if err := os.WriteFile(filepath.Join(dir, "certs", name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := filepath.Join(dir, "run")
	probe := func() int {
		var out, errs bytes.Buffer
		return command(t.Context(), []string{"--probe", "--run", run}, &out, &errs, nil)
	}
	if probe() == 0 {
		t.Error("the probe succeeds before anything serves")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	addr, ended := make(chan net.Addr, 1), make(chan int, 1)
	var out, errs bytes.Buffer
	go func() {
		ended <- command(ctx, []string{"--certs", filepath.Join(dir, "certs"), "--listen", "127.0.0.1:0", "--run", run,
			"--mount", "/mnt/skills=" + filepath.Join(dir, "skills") + ":ro"}, &out, &errs, func(a net.Addr) { addr <- a })
	}()
	var c *sidecar.Conn
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
	if code := probe(); code != 0 {
		t.Errorf("probe: %d", code)
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
	if probe() == 0 {
		t.Error("the probe succeeds after the end")
	}
}

// TestCopyDaemon: the built program, as the init container of a pod, of an image without a shell.
func TestCopyDaemon(t *testing.T) {
	image, volume := t.TempDir(), t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", image, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	copyIt := func() ([]byte, error) {
		c := exec.CommandContext(t.Context(), filepath.Join(image, "skerry-bridge"), "--copy-daemon", volume)
		c.Env = []string{}
		return c.CombinedOutput()
	}
	if out, err := copyIt(); err == nil || !bytes.Contains(out, []byte("skerry-sandboxd")) {
		t.Errorf("without a daemon: %v, %s", err, out)
	}
	for _, text := range []string{"one", "two"} {
		if err := os.WriteFile(filepath.Join(image, "skerry-sandboxd"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := copyIt(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		got, err := os.ReadFile(filepath.Join(volume, "skerry-sandboxd"))
		if err != nil || string(got) != text {
			t.Errorf("%q, %v", got, err)
		}
	}
	if info, err := os.Stat(filepath.Join(volume, "skerry-sandboxd")); err != nil || info.Mode().Perm() != 0o555 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if left, err := os.ReadDir(volume); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
}
