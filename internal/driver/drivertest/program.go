package drivertest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// probePackage is the program that the suite runs as PID 1.
const probePackage = "github.com/skerry-sandbox/skerry/internal/driver/drivertest/probe"

var program struct {
	once sync.Once
	dir  string
	path string
	err  error
}

// Program builds, once a test process, the static program that the suite runs as PID 1, and returns its
// path. It also serves drivers as the program of their runtime probe.
func Program(t testing.TB) string {
	t.Helper()
	program.once.Do(func() {
		program.dir, program.err = os.MkdirTemp("", "drivertest")
		if program.err != nil {
			return
		}
		program.path = filepath.Join(program.dir, "probe")
		cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", program.path, probePackage)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			program.err = fmt.Errorf("build the probe: %w\n%s", err, out)
			return
		}
		program.err = os.Chmod(program.dir, 0o755)
	})
	if program.err != nil {
		t.Fatal(program.err)
	}
	return program.path
}

func removeProgram() error {
	if program.dir == "" {
		return nil
	}
	return os.RemoveAll(program.dir)
}
