package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestMan: each command that the help lists has a page of the manual, with its flags.
func TestMan(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	root := NewRoot()
	root.SetArgs([]string{"man", dir})
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	var check func(c *cobra.Command)
	check = func(c *cobra.Command) {
		name := strings.ReplaceAll(c.CommandPath(), " ", "-") + ".1"
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
			return
		}
		if !strings.Contains(string(text), "Nov 2023") {
			t.Errorf("%s is not dated by SOURCE_DATE_EPOCH", name)
		}
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				check(sub)
			}
		}
	}
	check(root)
	serve, err := os.ReadFile(filepath.Join(dir, "skerry-serve.1"))
	if err != nil || !strings.Contains(string(serve), `\fB--config\fP`) {
		t.Errorf("skerry-serve.1 has no --config: %v\n%s", err, serve)
	}
	if _, err := os.Stat(filepath.Join(dir, "skerry-man.1")); err == nil {
		t.Error("the command that writes the manual is in it")
	}
}
