package skills

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
)

const newSkill = `---
name: %s
description: What it does, and when an agent should use it. Agents choose by this text alone.
---

# %s

What the agent has to do, step by step.

1. Run ` + "`scripts/run.py INPUT`" + `.
2. Tell the user what it printed.
`

const newScript = `"""What the skill does. It gets its arguments on the command line."""

import sys

print("hello from", *sys.argv[1:])
`

func newSkillsNew(api *client.Client) *cobra.Command {
	return &cobra.Command{
		Use: "new NAME", Short: "Make a folder with a skill to begin with", Args: cobra.ExactArgs(1),
		Example: "  skerry skills new my-skill && skerry skills lint my-skill",
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, name := args[0], filepath.Base(args[0])
			if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // the user's umask says more
				if errors.Is(err, os.ErrExist) {
					return exit.With(exit.Usage, "%s is there already", dir)
				}
				return err
			}
			title := strings.ReplaceAll(name, "-", " ")
			err := errors.Join(
				os.Mkdir(filepath.Join(dir, "scripts"), 0o755), //nolint:gosec // as above
				os.WriteFile(filepath.Join(dir, "SKILL.md"), fmt.Appendf(nil, newSkill, name, title), 0o644),
				os.WriteFile(filepath.Join(dir, "scripts", "run.py"), []byte(newScript), 0o644))
			if err != nil {
				return err
			}
			return api.Say(cmd, map[string]any{"folder": dir}, fmt.Sprintf("%s is made: write its SKILL.md, then `skerry skills lint %s` and `skerry skills pack %s`", dir, dir, dir))
		},
	}
}

func newSkillsSwitch(api *client.Client, word string, on bool) *cobra.Command {
	everybody := false
	cmd := &cobra.Command{
		Use: word + " NAME…", Short: "Switch skills " + map[bool]string{true: "on", false: "off"}[on] + "; sandboxes show it at once", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			body := map[string]any{"enabled": on}
			if everybody {
				body["for"] = "everybody"
			}
			for _, name := range args {
				if err := api.Call(cmd.Context(), http.MethodPut, "/api/skills/"+url.PathEscape(name), body, nil); err != nil {
					return skillFailed(err)
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&everybody, "everybody", false, "for all users; it takes an operator's key")
	return cmd
}

func newSkillsRemove(api *client.Client) *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME…", Aliases: []string{"remove"}, Short: "Delete skills of your own", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, name := range args {
				if err := api.Call(cmd.Context(), http.MethodDelete, "/api/skills/custom/"+url.PathEscape(name), nil, nil); err != nil {
					return skillFailed(err)
				}
			}
			return nil
		},
	}
}
