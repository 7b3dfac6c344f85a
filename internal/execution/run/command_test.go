package run

import (
	"errors"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func TestCommandsThatCannotBeRight(t *testing.T) {
	for name, cmd := range map[string]sandbox.Command{
		"neither":     {},
		"both":        {Shell: "a", Argv: []string{"a"}},
		"many words":  {Argv: make([]string, maxArgs+1)},
		"NUL":         {Argv: []string{"a\x00"}},
		"long word":   {Shell: strings.Repeat("x", maxArgBytes+1)},
		"long stdin":  {Shell: "a", Stdin: strings.Repeat("x", sandbox.MaxStdinBytes+1)},
		"cwd":         {Shell: "a", Cwd: "relative"},
		"timeout":     {Shell: "a", Timeout: -1},
		"env name":    {Shell: "a", Env: map[string]string{"1A": ""}},
		"env of ours": {Shell: "a", Env: map[string]string{"SKERRY_EXEC_TOKEN": "x"}},
		"env NUL":     {Shell: "a", Env: map[string]string{"A": "\x00"}},
	} {
		if err := checkCommand(cmd); !errors.Is(err, sandbox.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := checkCommand(sandbox.Command{Shell: "true", Env: map[string]string{"A": "1"}}); err != nil {
		t.Errorf("a good one: %v", err)
	}
}
