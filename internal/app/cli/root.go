package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app"
	"github.com/skerry-sandbox/skerry/internal/app/cli/audit"
	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
	"github.com/skerry-sandbox/skerry/internal/app/cli/mcp"
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

const exitInterrupted = 130 // as shells say of a program that SIGINT ended

// NewRoot is the command with all others below it.
func NewRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "skerry",
		Short:         "Sealed sandboxes for AI agents",
		Long:          "Skerry runs a sealed sandbox for every conversation of an agent.\n\n`skerry serve` starts the server; `skerry demo` shows what it does; `skerry doctor` says what is wrong; the other commands talk to a server.",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	var api client.Client
	root.PersistentFlags().StringVar(&api.Server, "server", app.EnvOr("SKERRY_SERVER", "http://127.0.0.1:8080"), "address of the server (SKERRY_SERVER)")
	root.PersistentFlags().StringVar(&api.Key, "api-key", "", "bearer key (default: SKERRY_API_KEY)")
	root.PersistentFlags().BoolVar(&api.JSON, "json", false, "print JSON")
	root.PersistentPreRun = func(*cobra.Command, []string) {
		if api.Key == "" { // not the flag's default, which --help prints
			api.Key = os.Getenv("SKERRY_API_KEY")
		}
	}
	root.AddCommand(newServe(), newDemo(&api), newDoctor(&api), newKeys(&api), newExec(&api), newCode(&api), newCommands(&api), newContexts(&api), newThread(&api), newEvents(&api), audit.New(&api), newApprovals(&api), mcp.New(&api), newPacks(&api), newPlugins(&api), newPolicy(&api), newSecrets(&api), skills.New(&api), newTemplates(&api), newUsage(&api), newVersion())
	return root
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "skerry", buildinfo.Version())
			return err
		},
	}
}
