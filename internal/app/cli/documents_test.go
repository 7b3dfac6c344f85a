package cli

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/e2e/docblock"
)

var (
	called = regexp.MustCompile(`(?m)^(?:sudo )?(?:bin/)?skerry (.*?)(?: +#.*)?$`)
	word   = regexp.MustCompile(`'[^']*'|"[^"]*"|\S+`)
)

// TestDocuments: commands that documents show, and that want a person or a server of others, are there, with those flags.
func TestDocuments(t *testing.T) {
	for _, b := range docblock.Marked(t) {
		lines := called.FindAllStringSubmatch(b.Commands(), -1)
		if len(lines) == 0 {
			t.Errorf("%s has no command", b)
		}
		for _, line := range lines {
			if err := understands(word.FindAllString(line[1], -1)); err != nil {
				t.Errorf("%s: skerry %s: %v", b, line[1], err)
			}
		}
	}
	for _, wrong := range []string{"serv --data x", "mcp drift list a b c", "exec -t demo --joined x", "mcp drift approved crm"} {
		if understands(strings.Fields(wrong)) == nil {
			t.Errorf("skerry %s is not there, and this test does not see it", wrong)
		}
	}
}

// understands reports what is wrong with the arguments of a call.
func understands(args []string) error {
	cmd, rest, err := NewRoot().Find(args)
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	if cmd.HasSubCommands() && len(cmd.Flags().Args()) > 0 {
		return fmt.Errorf("%s has no such command", cmd.CommandPath())
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}
