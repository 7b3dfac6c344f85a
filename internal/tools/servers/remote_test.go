package servers_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/driver/memory"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/servers"
)

// TestHomeOfAFarServer: where the sandbox does not see this server's disk, the streams come through, and the home folder outlives
// the sandbox all the same.
func TestHomeOfAFarServer(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("home folders get uids of their own: needs root")
	}
	d := memory.NewRemote(memory.Options{})
	defer d.Close() //nolint:errcheck // a driver of the test
	root := t.TempDir()
	s, err := servers.New(t.Context(), servers.Options{
		Driver: d, RunDir: filepath.Join(root, "run"), Daemon: "/bin/true", Install: "test",
		StartTime: 20 * time.Second, Log: slog.New(slog.DiscardHandler),
		Home: func(context.Context, servers.Spec) (string, int, error) {
			return home(filepath.Join(root, "homes", "files"), 1_700_001)
		},
		Template: sandbox.Template{Name: "mcp-server", Runtime: "runc", Limits: sandbox.Limits{
			MemoryBytes: 64 << 20, CPUMillis: 1000, PIDs: 64, OpenFiles: 64, FileBytes: 1 << 20, TmpBytes: 1 << 20, DiskBytes: 1 << 20,
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, before := range []string{"", "kept"} {
		var inside sync.WaitGroup
		inside.Go(func() { play(t, d, before) })
		v, err := s.Start(t.Context(), servers.Spec{Server: "files", Home: "files", Argv: []string{"server"}})
		if err != nil {
			t.Fatal(err)
		}
		inside.Wait()
		v.Stop()
		if text, err := os.ReadFile(filepath.Join(root, "homes", "files", "state")); err != nil || string(text) != "kept" {
			t.Errorf("the home folder has %q, %v", text, err)
		}
	}
}

// play is what runs in the sandbox: it connects twice, as a tool server's daemon does, and writes into its home.
func play(t *testing.T, d *memory.Remote, before string) {
	var id sandbox.ID
	for end := time.Now().Add(20 * time.Second); id == "" && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if list, err := d.List(t.Context(), nil); err == nil && len(list) == 1 {
			id = list[0].ID
		}
	}
	state := d.Host().Inside(id, servers.HomeDir+"/state")
	if text, _ := os.ReadFile(state); string(text) != before {
		t.Errorf("it finds %q in its home, want %q", text, before)
	}
	if err := os.WriteFile(state, []byte("kept"), 0o600); err != nil {
		t.Error(err)
	}
	for range 2 {
		conn, err := net.Dial("unix", d.Host().Inside(id, sandbox.StdioSocket))
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close() //nolint:errcheck // it was used
		go func() { _, _ = io.Copy(io.Discard, conn) }()
	}
}
