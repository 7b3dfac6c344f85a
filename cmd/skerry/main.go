// Command skerry is the server of sandboxes for AI agents, and its command line.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/runtimeprobe"
	"github.com/skerry-sandbox/skerry/internal/platform/buildinfo"
	"github.com/skerry-sandbox/skerry/internal/tools/argform"
)

func main() {
	// A driver that probes a runtime runs this program inside a small sandbox.
	if len(os.Args) > 1 && os.Args[1] == runtimeprobe.Arg {
		os.Exit(runtimeprobe.Main())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := newRoot().ExecuteContext(ctx)
	var code exitCode
	var failed *failure
	switch {
	case ctx.Err() != nil && err != nil:
		fmt.Fprintln(os.Stderr, "skerry: interrupted")
		os.Exit(exitInterrupted)
	case errors.As(err, &failed):
		fmt.Fprintln(os.Stderr, "skerry:", argform.Plain(err.Error()))
		os.Exit(failed.code)
	case errors.As(err, &code):
		os.Exit(int(code))
	case err != nil:
		fmt.Fprintln(os.Stderr, "skerry:", argform.Plain(err.Error())) // a server may have part in its text
		os.Exit(1)
	}
}

const exitInterrupted = 130 // as shells say of a program that SIGINT ended

// exitCode ends the program with the code of the command that ran in a sandbox.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "skerry",
		Short:         "Sealed sandboxes for AI agents",
		Long:          "Skerry runs a sealed sandbox for every conversation of an agent.\n\n`skerry serve` starts the server; `skerry demo` shows what it does; `skerry doctor` says what is wrong; the other commands talk to a server.",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	var api apiClient
	root.PersistentFlags().StringVar(&api.server, "server", app.EnvOr("SKERRY_SERVER", "http://127.0.0.1:8080"), "address of the server (SKERRY_SERVER)")
	root.PersistentFlags().StringVar(&api.key, "api-key", "", "bearer key (default: SKERRY_API_KEY)")
	root.PersistentFlags().BoolVar(&api.json, "json", false, "print JSON")
	root.PersistentPreRun = func(*cobra.Command, []string) {
		if api.key == "" { // not the flag's default, which --help prints
			api.key = os.Getenv("SKERRY_API_KEY")
		}
	}
	root.AddCommand(newServe(), newDemo(&api), newDoctor(&api), newKeys(&api), newExec(&api), newCode(&api), newContexts(&api), newThread(&api), newAudit(&api), newApprovals(&api), newMCP(&api), newPlugins(&api), newPolicy(&api), newSecrets(&api), newSkills(&api), newTemplates(&api), newUsage(&api), newVersion())
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
