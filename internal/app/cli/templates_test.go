package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func runTemplates(t *testing.T, args ...string) (string, error) {
	t.Helper()
	root := NewRoot()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(append([]string{"templates"}, args...))
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

func TestTemplatesLint(t *testing.T) {
	if out, err := runTemplates(t, "lint", "../../../sandbox-templates"); err != nil || !strings.Contains(out, "base, browser, data, mcp-server, office") {
		t.Errorf("%s %v", out, err)
	}
	good, err := os.ReadFile("../../../sandbox-templates/base.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "mine.txt") // an editor's copy has any ending
	if err := os.WriteFile(file, bytes.Replace(good, []byte("  pids:"), []byte("  pid:"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	line := 1 + bytes.Count(good[:bytes.Index(good, []byte("  pids:"))], []byte("\n"))
	_, err = runTemplates(t, "lint", file)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("template mine.txt: line %d: limits.pid: there is no such field; did you mean pids?", line)) {
		t.Errorf("%v", err)
	}
	if _, err := runTemplates(t, "lint", filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there was taken")
	}
}

// TestTemplatesNew: what is written can be read, and a package is no option of pip.
func TestTemplatesNew(t *testing.T) {
	dir := t.TempDir()
	if out, err := runTemplates(t, "new", "reports", "--dir", dir, "--image", "registry.example/reports:3"); err != nil {
		t.Fatal(out, err)
	}
	if out, err := runTemplates(t, "lint", dir); err != nil || !strings.Contains(out, "reports") {
		t.Error(out, err)
	}
	if _, err := runTemplates(t, "new", "reports", "--dir", dir); err == nil || !strings.Contains(err.Error(), "is there already") {
		t.Error(err)
	}
	if text, err := dockerfile("skerry/base:latest", []string{"pandas==2.3.3", "uvicorn[standard]>=0.30,<1"}); err != nil || !strings.HasPrefix(text, "FROM skerry/base:latest\nUSER root\nRUN [\"python3\",\"-m\",\"pip\"") {
		t.Error(text, err)
	}
	for _, bad := range []string{"--index-url=https://evil.example", "-r", "a b", "git+https://x", "a\nRUN x", ""} {
		if text, err := dockerfile("x", []string{bad}); err == nil {
			t.Errorf("%q: %s", bad, text)
		}
	}
}
