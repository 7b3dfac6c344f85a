package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"
)

// redisImage is made here from this machine's own Redis, because a registry may be out of reach.
const redisImage = "skerry/redis-test:latest"

// setTestcontainers says, for all tests, how containers are run.
func setTestcontainers() error {
	return errors.Join(
		os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true"),      // its container cannot be pulled everywhere; Cleanup does what it would
		os.Setenv("TESTCONTAINERS_HOST_OVERRIDE", "127.0.0.1"), // also where this machine looks like a container
	)
}

// startRedis runs a real Redis in a container and returns its address.
func startRedis(t *testing.T) string {
	t.Helper()
	need(t, exec.Command("docker", "info").Run() == nil, "a docker daemon")
	need(t, have("redis-server"), "redis-server")
	buildRedis(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := testcontainers.Run(ctx, redisImage,
		testcontainers.WithExposedPorts("6379/tcp"),
		testcontainers.WithCmd("redis-server", "--bind", "0.0.0.0", "--protected-mode", "no", "--save", "", "--appendonly", "no"),
		testcontainers.WithWaitStrategy(wait.ForListeningPort("6379/tcp").WithStartupTimeout(30*time.Second)))
	testcontainers.CleanupContainer(t, c)
	must(t, err)
	addr, err := c.PortEndpoint(ctx, "6379/tcp", "redis")
	must(t, err)
	return addr
}

// buildRedis imports redis-server and the libraries that it loads as an image.
func buildRedis(t *testing.T) {
	t.Helper()
	if exec.Command("docker", "image", "inspect", redisImage).Run() == nil {
		return
	}
	root := t.TempDir()
	must(t, os.Mkdir(filepath.Join(root, "tmp"), 0o777))
	path, err := exec.LookPath("redis-server")
	must(t, err)
	libs, err := exec.Command("ldd", path).Output()
	must(t, err)
	files := []string{path}
	for word := range strings.FieldsSeq(string(libs)) {
		if strings.HasPrefix(word, "/") {
			files = append(files, word)
		}
	}
	for _, f := range files {
		target := filepath.Join(root, f)
		must(t, os.MkdirAll(filepath.Dir(target), 0o755))
		raw, err := os.ReadFile(f)
		must(t, err)
		must(t, os.WriteFile(target, raw, 0o755)) //nolint:gosec // a program
	}
	tar := exec.Command("tar", "-C", root, "-c", ".")
	imp := exec.Command("docker", "import", "--change", "ENV PATH=/usr/bin:/bin", "-", redisImage)
	imp.Stdin, err = tar.StdoutPipe()
	must(t, err)
	must(t, tar.Start())
	out, err := imp.CombinedOutput()
	if err != nil {
		t.Fatalf("docker import: %v: %s", err, out)
	}
	must(t, tar.Wait())
}

// TestRedis: with a real Redis, state outlives the server, and Redis going away for a while does not
// end a sandbox.
func TestRedis(t *testing.T) {
	t.Parallel()
	url := startRedis(t)
	s := start(t, options{args: []string{"--redis", url}})
	if a := s.do("PUT", "/api/threads/r/sandbox", map[string]any{"labels": map[string]string{"k": "v"}}); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	s.ok("r", "echo kept > /mnt/user-data/workspace/f")
	s.kill()
	s.boot()
	if got := s.ok("r", "cat /mnt/user-data/workspace/f"); got != "kept\n" {
		t.Errorf("the file holds %q", got)
	}
	if a := s.do("GET", "/api/threads?label=k=v", nil); !strings.Contains(string(a.body), `"r"`) {
		t.Errorf("the label is gone: %s", a.body)
	}
	if n := len(s.records("thread=r&action=exec", "result")); n != 2 {
		t.Errorf("%d records of execs, want 2", n)
	}
}
