package oci_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/driver/drivertest"
	"github.com/skerry-sandbox/skerry/internal/driver/oci"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// server is set in the environment of the process that TestCrash kills: Options.Root and a Spec.
const server = "OCI_TEST_SERVER"

type serverTask struct {
	Options oci.Options
	Spec    sandbox.Spec
}

// TestServer is no test: it is the server that TestCrash kills while it starts a sandbox.
func TestServer(t *testing.T) {
	text := os.Getenv(server)
	if text == "" {
		return // run as a test, there is nothing to do
	}
	var task serverTask
	if err := json.Unmarshal([]byte(text), &task); err != nil {
		t.Fatal(err)
	}
	d, err := oci.New(task.Options)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Capabilities(context.Background()); err != nil { // probes are not what is tested
		t.Fatal(err)
	}
	fmt.Println("creating")
	if _, err := d.Create(context.Background(), task.Spec); err != nil {
		t.Fatal(err)
	}
	fmt.Println("created")
	time.Sleep(time.Minute)
}

// TestCrash kills servers at every stage of starting a sandbox. The next server finds what is there,
// whole or half-made, and Remove leaves nothing of it.
func TestCrash(t *testing.T) {
	for runtime, after := range map[string][]time.Duration{
		"runc":  {0, 3, 6, 9, 12, 15, 18, 21, 25, 30, 35, 40, 60, 90, 150},
		"runsc": {10, 40, 80, 120, 160, 250}, // each is slower to start, and to remove
	} {
		t.Run(runtime, func(t *testing.T) { testCrash(t, runtime, after) })
	}
}

func testCrash(t *testing.T, runtime string, delays []time.Duration) {
	if _, err := exec.LookPath(runtime); err != nil {
		drivertest.Missing(t, runtime, err)
	}
	root := tempRoot(t)
	options := oci.Options{Root: root, CgroupParent: cgroupParent, Runtimes: map[string]string{runtime: runtime}, Probe: drivertest.Program(t)}
	next, err := oci.New(options)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close() //nolint:errcheck // a driver of the test
	if _, err := next.Capabilities(t.Context()); err != nil {
		t.Fatal(err)
	}
	found := make(map[sandbox.State]int)
	for i, after := range delays {
		task := serverTask{Options: options, Spec: sandbox.Spec{
			ID: sandbox.ID(fmt.Sprintf("skerry-%016x", i)), Runtime: runtime, UID: 1_000_000,
			Daemon: drivertest.Program(t), Args: []string{"serve"}, Labels: map[string]string{"crash": "test"},
			Limits: sandbox.Limits{MemoryBytes: 64 << 20, CPUMillis: 1000, PIDs: 32, OpenFiles: 64, FileBytes: 1 << 20, TmpBytes: 1 << 20, DiskBytes: 1},
		}}
		killServer(t, task, after*time.Millisecond)
		instances, err := next.List(t.Context(), map[string]string{"crash": "test"})
		if err != nil {
			t.Fatal(err)
		}
		for _, there := range instances {
			found[there.State]++
			if err := next.Remove(t.Context(), there.ID); err != nil {
				t.Errorf("killed after %d ms: Remove: %v", after, err)
			}
		}
	}
	t.Logf("found %v", found)
	last, err := oci.New(options) // clears away bundles that were half-written
	if err != nil {
		t.Fatal(err)
	}
	defer last.Close() //nolint:errcheck // a driver of the test
	if left := leftProcesses(t, "skerry-00000000000000"); len(left) > 0 {
		t.Errorf("processes left: %v", left)
	}
}

// killServer runs a server of its own process until a while after it began to create.
func killServer(t *testing.T, task serverTask, after time.Duration) {
	t.Helper()
	data, err := json.Marshal(task)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestServer$")
	cmd.Env = append(os.Environ(), server+"="+string(data))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, len("creating"))); err != nil {
		t.Errorf("the server did not begin: %v", err)
	}
	time.Sleep(after)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// leftProcesses finds processes whose command line holds a text.
func leftProcesses(t *testing.T, text string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, file := range files {
		if data, err := os.ReadFile(file); err == nil && strings.Contains(string(data), text) {
			found = append(found, strings.ReplaceAll(string(data), "\x00", " "))
		}
	}
	return found
}
