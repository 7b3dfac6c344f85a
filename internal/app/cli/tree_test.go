package cli

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestCommandsAreAlike: each list is ls and list, each group refuses what it does not have, each command has a line of
// help, and --json stands for one thing.
func TestCommandsAreAlike(t *testing.T) {
	seen := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		seen++
		name := cmd.CommandPath()
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: its line of help is %q", name, cmd.Short)
		}
		if cmd.Name() == "list" || cmd.Name() == "ls" && !slices.Contains(cmd.Aliases, "list") {
			t.Errorf("%s: name it ls, with the alias list", name)
		}
		if f := cmd.LocalNonPersistentFlags().Lookup("json"); f != nil {
			t.Errorf("%s has a --json of its own", name)
		}
		if cmd.HasSubCommands() && cmd.HasParent() {
			words := strings.Fields(name)[1:]
			if code, _, errs := run(t, "", append(words, "nosuchcommand")...); code != 2 || !strings.Contains(errs, "nosuchcommand") || strings.Count(errs, "Usage:") > 1 {
				t.Errorf("%s nosuchcommand: %d %s", name, code, errs)
			}
		}
		for _, sub := range cmd.Commands() {
			if sub.Name() != "help" && sub.Name() != "completion" {
				walk(sub)
			}
		}
	}
	walk(NewRoot())
	if seen < 80 {
		t.Errorf("only %d commands", seen)
	}
	if code, _, errs := run(t, "", "exce"); code != 2 || !strings.Contains(errs, "did you mean exec?") {
		t.Errorf("%d %s", code, errs)
	}
	if code, out, _ := run(t, "", "--version"); code != 0 || !strings.HasPrefix(out, "skerry ") {
		t.Errorf("%d %s", code, out)
	}
}

// TestProfiles: a profile is used until another one is.
func TestProfiles(t *testing.T) {
	t.Setenv("SKERRY_PROFILES", t.TempDir()+"/p.json")
	t.Setenv("SKERRY_SERVER", "")
	t.Setenv("SKERRY_API_KEY", "")
	if code, _, errs := run(t, "sk_1\n", "login", "127.0.0.1:1"); code != 1 || !strings.Contains(errs, "Is a server running there?") {
		t.Errorf("a server that does not answer: %d %s", code, errs)
	}
	if code, out, errs := run(t, "", "use"); code != 0 || out != "" {
		t.Errorf("%d %s %s", code, out, errs)
	}
	if code, _, errs := run(t, "", "use", "work"); code != 3 || !strings.Contains(errs, "skerry login --name work") {
		t.Errorf("%d %s", code, errs)
	}
	if code, _, errs := run(t, "", "ps", "t", "--profile", "work"); code != 2 || !strings.Contains(errs, "there is no profile") {
		t.Errorf("%d %s", code, errs)
	}
	file := os.Getenv("SKERRY_PROFILES")
	if err := os.WriteFile(file, []byte(`{"profiles":{"a":{"server":"http://localhost:1"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, errs := run(t, "", "use", "a", "--json"); code != 0 || out != "{\n  \"ok\": true\n}\n" {
		t.Errorf("a command that has nothing to tell: %d %q %s", code, out, errs)
	}
	// What talks to no server does not care that the file is broken. What does must not ask another server instead.
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, errs := run(t, "", "version"); code != 0 || !strings.HasPrefix(out, "skerry ") {
		t.Errorf("%d %s", code, errs)
	}
	if code, _, errs := run(t, "", "ps", "t"); code != 2 || !strings.Contains(errs, "mend or remove it") {
		t.Errorf("%d %s", code, errs)
	}
}
