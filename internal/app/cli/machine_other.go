//go:build !linux

package cli

import (
	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
)

// These commands belong to the machine of a server, which is Linux. Here they say so.

func newServe() *cobra.Command { return onLinux("serve", "Start the server") }

func newDemo(*client.Client) *cobra.Command { return onLinux("demo", "Show what a server does") }

func newLocalDoctor(*client.Client) (cmd *cobra.Command, settings []string) {
	return &cobra.Command{
		Use: "doctor", Short: "Say what a server finds wrong with itself (of this machine on Linux only)", Args: cobra.NoArgs,
		Long: "With --server-only it asks a server what it finds of itself, which takes an administrator of the operators' tenant.\n" +
			"To look at the machine of a server, run it there.\n\nExit code: 0 when the server serves, 1 when there is a problem.",
		RunE: func(*cobra.Command, []string) error {
			return exit.With(exit.Usage, "doctor looks at a machine on Linux only. Run it on the server's machine, or ask the server: --server-only")
		},
	}, nil
}

func newTemplatesPool() *cobra.Command {
	return onLinux("pool", "Print the SandboxTemplate and SandboxWarmPool that a template claims its sandboxes from")
}

func newPluginsInspect(*client.Client) *cobra.Command {
	return onLinux("inspect", "Read a plugin, a marketplace or a folder of plugins here, and count what is in them")
}

func onLinux(use, short string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short + " (on Linux only)", DisableFlagParsing: true, Hidden: true, Annotations: map[string]string{alone: "yes"},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return exit.With(exit.Usage, "`%s` runs on Linux only. Run it on the server's machine, in a container or in WSL; the other commands ask a server (--server)", cmd.CommandPath())
		},
	}
}
