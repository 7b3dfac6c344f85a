package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/audit"
	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
	"github.com/skerry-sandbox/skerry/internal/app/cli/mcp"
	"github.com/skerry-sandbox/skerry/internal/app/cli/profiles"
	"github.com/skerry-sandbox/skerry/internal/app/cli/runs"
	"github.com/skerry-sandbox/skerry/internal/app/cli/skills"
	"github.com/skerry-sandbox/skerry/internal/platform/buildinfo"
	"github.com/skerry-sandbox/skerry/internal/tools/argform"
)

// Status returns the exit code of the program for the error of a command, and prints the error for a person.
func Status(ctx context.Context, err error) int {
	var code exit.Code
	var failed *exit.Failure
	switch {
	case ctx.Err() != nil && err != nil:
		fmt.Fprintln(os.Stderr, "skerry: interrupted")
		return exitInterrupted
	case errors.As(err, &failed):
		fmt.Fprintln(os.Stderr, "skerry:", argform.Plain(err.Error()))
		return failed.Code
	case errors.As(err, &code):
		return int(code)
	case err != nil:
		fmt.Fprintln(os.Stderr, "skerry:", argform.Plain(err.Error())) // a server may have part in its text
		return 1
	}
	return 0
}

// alone marks a command that talks to no server: a broken file of profiles does not stop it.
const alone = "alone"

const exitInterrupted = 130 // as shells say of a program that SIGINT ended

// NewRoot is the command with all others below it.
func NewRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "skerry",
		Short:         "Sealed sandboxes for AI agents",
		Long:          "Skerry runs a sealed sandbox for every conversation of an agent.\n\n`skerry serve` starts the server; `skerry demo` shows what it does; `skerry doctor` says what is wrong; the other commands talk to a server.",
		Version:       buildinfo.Version(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	var api client.Client
	root.PersistentFlags().StringVar(&api.Server, "server", "", "address of the server (default: SKERRY_SERVER, the profile in use, or "+client.DefaultServer+")")
	root.PersistentFlags().StringVar(&api.Key, "api-key", "", "bearer key (default: SKERRY_API_KEY, or that of the profile)")
	root.PersistentFlags().StringVar(&api.Profile, "profile", "", "profile to use (default: SKERRY_PROFILE, or what `skerry use` chose)")
	root.PersistentFlags().BoolVar(&api.JSON, "json", false, "print JSON")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := api.Resolve(); err != nil && cmd.Annotations[alone] == "" {
			return exit.As(exit.Usage, err)
		}
		return nil
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return exit.With(exit.Usage, "%w\nTry `%s --help`", err, c.CommandPath())
	})
	root.AddCommand(newServe(), newDemo(&api), newDoctor(&api), newKeys(&api), runs.NewExec(&api), runs.NewCode(&api), newCommands(&api), runs.NewContexts(&api), newThread(&api), newEvents(&api), audit.New(&api), newApprovals(&api), mcp.New(&api), newPacks(&api), newPlugins(&api), newPolicy(&api), newSecrets(&api), newServers(&api), skills.New(&api), newTemplates(&api), newUsage(&api), newVersion(&api), newMan())
	root.AddCommand(runs.Commands(&api)...)
	root.AddCommand(profiles.Commands(&api)...)
	finish(root, &api)
	complete(root, &api)
	return root
}

func newVersion(api *client.Client) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs, Annotations: map[string]string{alone: "yes"},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return api.Say(cmd, map[string]any{"version": buildinfo.Version()}, "skerry "+buildinfo.Version())
		},
	}
}
