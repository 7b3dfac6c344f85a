package e2e

import (
	"context"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/store/redistest"
)

// sdk runs a program of sdk/e2b with the newest of E2B's SDKs, which says "done" when all is as it should be.
func sdk(t *testing.T, program string, env ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	dir := t.TempDir()
	file := filepath.Join(dir, program)
	text, err := os.ReadFile(abs(t, "../../sdk/e2b/"+program))
	must(t, err)
	must(t, os.WriteFile(file, text, 0o600))
	modules, python := filepath.Join(cache(), "e2b/node-0/node_modules"), filepath.Join(cache(), "e2b/python-0/bin/python")
	_, err = os.Stat(modules)
	need(t, err == nil, "E2B's SDKs: scripts/install.sh e2b")
	must(t, os.Symlink(modules, filepath.Join(dir, "node_modules")))
	cmd := exec.CommandContext(ctx, python, "-W", "ignore", file)
	if strings.HasSuffix(program, ".mjs") {
		cmd = exec.CommandContext(ctx, "node", file)
	}
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "done\n" {
		t.Errorf("%s: %v\n%s", program, err, out)
	}
}

// e2bKey is a key as E2B's SDKs want it.
func e2bKey(secret string) string { return "e2b_" + hex.EncodeToString([]byte(secret)) }

// TestE2BKeys: E2B's own SDKs on a server that wants keys. Theirs is one of ours: none and a wrong one are refused, and another tenant's shows nothing.
func TestE2BKeys(t *testing.T) {
	whole(t, TestTenantMatrix)
	t.Parallel()
	m := newMatrix(t, "SKERRY_E2B=true")
	red, blue := m.callers[4], m.callers[7] // bob of red, who has nothing yet
	for _, program := range []string{"keys.py", "keys.mjs"} {
		sdk(t, program, "E2B_API_URL="+m.url, "E2B_SANDBOX_URL="+m.url, "E2B_API_KEY=e2b_00", "RED="+e2bKey(red.secret), "BLUE="+e2bKey(blue.secret))
	}
}

// TestE2BTwoServers: a sandbox of E2B's SDKs is the same at each of two servers.
func TestE2BTwoServers(t *testing.T) {
	whole(t, TestTwoServers)
	t.Parallel()
	redis := redistest.Start(t)
	a := start(t, options{driver: "docker", args: []string{"--redis", redis.URL()}, env: []string{"SKERRY_E2B=true"}})
	b := a.twin()
	sdk(t, "two.py", "E2B_API_KEY=e2b_00", "A="+a.url, "B="+b.url)
}
