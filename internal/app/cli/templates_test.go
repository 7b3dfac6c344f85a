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
