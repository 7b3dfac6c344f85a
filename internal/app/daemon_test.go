package app

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestDaemonIsSealed: sandboxes can execute it, and not read it.
func TestDaemonIsSealed(t *testing.T) {
	program := filepath.Join(t.TempDir(), "skerry-sandboxd")
	dir := filepath.Join(t.TempDir(), "sandboxd")
	var seen []string
	for _, text := range []string{"one", "one", "two"} {
		if err := os.WriteFile(program, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		at, err := sealed(program, dir)
		if err != nil {
			t.Fatal(err)
		}
		for path, mode := range map[string]os.FileMode{at: 0o755, sandbox.SealedDaemon(at): 0o711} {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(path); err != nil || string(got) != text || info.Mode() != mode {
				t.Errorf("%s: %q, %v, %v", path, got, info.Mode(), err)
			}
		}
		spec := sandbox.Spec{Daemon: at}
		for _, r := range hardening.Runtimes() {
			if got := r.Daemon(spec); (got == at) != r.OwnKernel {
				t.Errorf("%s mounts %s", r.Name, got)
			}
		}
		seen = append(seen, at)
	}
	if seen[0] != seen[1] || seen[0] == seen[2] {
		t.Errorf("%q", seen)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".new-*")); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
	if got := hardening.Runtimes()[0].Daemon(sandbox.Spec{Daemon: program}); got != program {
		t.Errorf("without a sealed copy it is %s", got)
	}
}
