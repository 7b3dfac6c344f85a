package docker_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/skerry-sandbox/skerry/internal/driver/docker/dockertest"
)

// TestEngineKilledAtStart: an engine that was killed while it started a container believes from then on that
// it never ran. But its first process may exist, or appear later. Remove leaves nothing of it.
func TestEngineKilledAtStart(t *testing.T) {
	e, err := dockertest.Start()
	must(t, err)
	t.Cleanup(func() { must(t, e.Stop()) }) // which names the folders and shims that are left
	c, err := client.New(client.WithHost("unix://" + e.Socket))
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	importImage(t, c, "skerry/drivertest-killed:1")
	d := at(t, e.Socket)
	spec := smallSpec(t, "skerry/drivertest-killed:1")
	_, err = d.Create(ctx(t), spec) // which tries the runtime, once
	must(t, err)
	must(t, d.Remove(ctx(t), spec.ID))
	const rounds = 20
	for i := range rounds {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = d.Create(ctx(t), spec) // fails, unless the engine was killed late
		}()
		container := awaitStart(t, e)
		time.Sleep(time.Duration(i) * 8 * time.Millisecond)
		must(t, e.Kill())
		<-ended
		must(t, e.Run())
		must(t, d.Remove(ctx(t), spec.ID))
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) { // what is killed takes a moment to end
			left := processesOf(t, container)
			if len(left) == 0 {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("round %d: left over: %v", i, left)
			}
		}
	}
}

// awaitStart waits until the engine has made a container's first process, and returns the container's id. The engine
// itself would tell it only once the start is over.
func awaitStart(t *testing.T, e *dockertest.Engine) string {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		for _, line := range processesOf(t, e.Containerd.Address) {
			_, after, ok := strings.Cut(line, " -id ")
			if id, _, _ := strings.Cut(after, " "); ok && len(processesOf(t, "/"+id)) > 0 {
				return id
			}
		}
	}
	t.Fatal("no container was started")
	return ""
}

// processesOf finds the shim of a container, and the processes in it.
func processesOf(t *testing.T, container string) []string {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	must(t, err)
	var found []string
	for _, dir := range dirs {
		line, _ := os.ReadFile(dir + "/cmdline")
		group, _ := os.ReadFile(dir + "/cgroup")
		if strings.Contains(string(line), container) || strings.Contains(string(group), container) {
			found = append(found, dir+": "+strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}
