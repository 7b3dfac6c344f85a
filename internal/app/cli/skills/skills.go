package skills

import (
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
	"github.com/skerry-sandbox/skerry/internal/app/cli/runs"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/argform"
	sdk "github.com/skerry-sandbox/skerry/sdk/go"
)

// Exit codes of `skerry skills`. Scripts rely on them: the numbers stay.
const (
	exitNoSkill = 3 // there is no such skill, file or thread
	exitRefused = 4 // a skill was looked at and is not as it must be
)

const skillsExitCodes = `Exit codes: 0 done; 1 something broke, or the server does not answer; 2 the command line is wrong;
3 there is no such skill, file or thread; 4 a skill is not as it must be (lint), is refused (install), or is
another one than the lock file says. ` + "`skills run`" + ` ends with the script's own code.`

// New is `skerry skills`.
func New(api *client.Client) *cobra.Command {
	cmd := &cobra.Command{
		Use: "skills", Short: "List, check, pack, install and run skills",
		Long: "A skill is a folder with a SKILL.md that tells an agent how to do something, and the scripts for it.\n\n" +
			"`lint` and `pack` work on folders of this machine and need no server. The others talk to one.\n\n" + skillsExitCodes,
		Example: "  skerry skills lint my-skill\n  skerry skills pack my-skill\n  skerry skills install my-skill.skill\n  skerry skills ls",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return exit.With(exit.Usage, "there is no command %q; there are: ls, new, lint, pack, install, enable, disable, rm and run", args[0])
		},
	}
	cmd.AddCommand(newSkillsList(api), newSkillsNew(api), newSkillsSwitch(api, "enable", true), newSkillsSwitch(api, "disable", false), newSkillsRemove(api), newSkillsLint(api), newSkillsPack(api), newSkillsInstall(api), newSkillsRun(api))
	for _, sub := range cmd.Commands() {
		sub.Args = exit.Arguments(sub.Args)
		sub.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
			return exit.With(exit.Usage, "%w\nTry `%s --help`", err, c.CommandPath())
		})
	}
	return cmd
}

// skillFailed wraps an error with the exit code of its kind.
func skillFailed(err error) error {
	if err == nil {
		return nil
	}
	switch sandbox.KindOf(err) {
	case sandbox.NotFound:
		return exit.As(exitNoSkill, err)
	case sandbox.Invalid, sandbox.Conflict, sandbox.Forbidden:
		return exit.As(exitRefused, err)
	}
	return exit.Of(err)
}

func newSkillsList(api *client.Client) *cobra.Command {
	var template string
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the skills of a server",
		Long: "Lists the skills that you have on a server: the public ones, your own, and those of plugins.\n" +
			"A skill that does not load is listed, too, with what is wrong. RUNS says whether what a skill needs is in the\n" +
			"sandboxes of a template; --json names what is missing.",
		Example: "  skerry skills ls\n  skerry skills ls --template office\n  skerry skills ls --json | jq -r '.[] | select(.enabled) | .name'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			skills, err := listSkills(api, cmd, template)
			if err != nil {
				return skillFailed(err)
			}
			if api.JSON {
				return output.JSON(cmd.OutOrStdout(), skills)
			}
			return showSkills(cmd.OutOrStdout(), skills)
		},
	}
	cmd.Flags().StringVar(&template, "template", "", "for which template RUNS is told (default: that where the skill's scripts run)")
	return cmd
}

// listSkills asks for all skills, each as the server tells it.
func listSkills(api *client.Client, cmd *cobra.Command, template string) ([]map[string]any, error) {
	var list struct {
		Skills []map[string]any `json:"skills"`
	}
	path := "/api/skills"
	if template != "" {
		path += "?template=" + url.QueryEscape(template)
	}
	err := api.Call(cmd.Context(), http.MethodGet, path, nil, &list)
	if list.Skills == nil {
		list.Skills = []map[string]any{}
	}
	return list.Skills, err
}

func showSkills(w io.Writer, skills []map[string]any) error {
	if len(skills) == 0 {
		_, err := fmt.Fprintln(w, "There are no skills. `skerry skills install FILE.skill` installs one.")
		return err
	}
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, "NAME\tCATEGORY\tENABLED\tRUNS\tNOTES\tDESCRIPTION")
	for _, s := range skills {
		runs, _ := s["runnable"].(map[string]any)
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\n", output.Cell(s, "name"), output.Cell(s, "category"), output.Cell(s, "enabled"), output.Cell(runs, "template"), notes(s), output.Cell(s, "description"))
	}
	return tw.Flush()
}

// notes says where the scripts of a skill run, when that is not the thread's sandbox, and counts its findings:
// "in data, 2 errors, 1 warning".
func notes(s map[string]any) string {
	list, _ := s["findings"].([]any)
	count := map[string]int{}
	for _, f := range list {
		m, _ := f.(map[string]any)
		severity, _ := m["severity"].(string)
		count[severity]++
	}
	parts := []string{}
	if template, _ := s["template"].(string); template != "" {
		parts = append(parts, "in "+template)
	}
	if found := counted(count); found != "" {
		parts = append(parts, found)
	}
	return strings.Join(parts, ", ")
}

// counted says how many findings there are of each severity, the worst first; "" for none.
func counted(by map[string]int) string {
	var parts []string
	for _, severity := range []string{sandbox.SeverityError, sandbox.SeverityWarning} {
		if n := by[severity]; n > 0 {
			parts = append(parts, output.Count(n, severity))
		}
	}
	if n := by[sandbox.SeverityInfo]; n > 0 {
		parts = append(parts, output.Count(n, "remark"))
	}
	return strings.Join(parts, ", ")
}

// showFindings prints findings one a line, as compilers do, so that editors can follow them.
func showFindings(w io.Writer, dir string, findings []sandbox.Finding) {
	for _, f := range findings {
		where := dir
		if f.File != "" {
			where = strings.TrimSuffix(dir, "/") + "/" + f.File
		}
		if f.Line > 0 {
			where += fmt.Sprintf(":%d", f.Line)
		}
		fmt.Fprintf(w, "%s: %s: %s [%s]\n", argform.Line(where, 300), f.Severity, argform.Line(f.Message, 500), f.Rule)
	}
}

func newSkillsRun(api *client.Client) *cobra.Command {
	var timeout int
	var env []string
	var stdin, module bool
	var cwd string
	cmd := &cobra.Command{
		Use: "run THREAD SKILL SCRIPT [-- ARG…]", Short: "Run a skill's script in a thread's sandbox; ends with its exit code",
		Long: "Runs a script of a skill in the sandbox of a thread, and ends with its exit code. What runs it follows from its\n" +
			"#! line, or from its ending: .py .sh .bash .js .mjs .ts. With --module, SCRIPT is a Python module of the skill:\n" +
			"scripts.report runs as python -m scripts.report does in the skill's folder.",
		Example: "  skerry skills run demo csv-profile scripts/profile.py -- /mnt/user-data/uploads/sales.csv\n" +
			"  skerry skills run demo report scripts/make.sh --env API_TOKEN=… --stdin < data.json\n" +
			"  skerry skills run demo skill-creator scripts.quick_validate --module -- /mnt/user-data/workspace/my-skill",
		Args: cobra.MinimumNArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			script := sdk.Script{Script: args[2], Args: args[3:], Cwd: cwd, TimeoutSeconds: float64(timeout)}
			if module {
				script.Script, script.Module = "", args[2]
			}
			vars, err := variables(env)
			if err != nil {
				return err
			}
			if len(vars) > 0 {
				script.Env = vars
			}
			if stdin {
				text, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), client.MaxAnswer))
				if err != nil {
					return err
				}
				script.Stdin = string(text)
			}
			t := api.SDK().Thread(args[0])
			res, err := runs.Run{
				Thread: t, Stdout: cmd.OutOrStdout(), Stderr: cmd.ErrOrStderr(),
				Begin: func(ctx context.Context) iter.Seq2[sdk.Event, error] { return t.StreamSkill(ctx, args[1], script) },
			}.Follow(cmd.Context())
			if err != nil {
				return skillFailed(err)
			}
			return client.Ending(res)
		},
	}
	cmd.Flags().IntVar(&timeout, "timeout", 60, "seconds, at most 3600")
	cmd.Flags().StringArrayVar(&env, "env", nil, "NAME=VALUE for this run only; may be given more than once")
	cmd.Flags().BoolVar(&stdin, "stdin", false, "pass on what is read here")
	cmd.Flags().BoolVar(&module, "module", false, "SCRIPT is a Python module of the skill, such as scripts.report")
	cmd.Flags().StringVar(&cwd, "cwd", "", "folder in the sandbox where it runs (default /mnt/user-data/workspace)")
	return cmd
}

func variables(list []string) (map[string]string, error) {
	vars := map[string]string{}
	for _, e := range list {
		name, value, ok := strings.Cut(e, "=")
		if !ok || name == "" {
			return nil, exit.With(exit.Usage, "--env %q: write NAME=VALUE", e)
		}
		vars[name] = value
	}
	return vars, nil
}
