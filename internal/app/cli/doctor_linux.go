package cli

import (
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app"
	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/examination"
	"github.com/skerry-sandbox/skerry/internal/config"
)

// newLocalDoctor returns the command that looks at this machine, and its flags that are settings of a server.
func newLocalDoctor(api *client.Client) (cmd *cobra.Command, settings []string) {
	var file string
	flags := config.Config{}
	cmd = &cobra.Command{
		Use: "doctor", Short: "Find out why Skerry does not work here, or whether it would",
		Long: `Looks at this machine and at everything that a server with the same configuration would use, and says for
each thing how it is and what to do.

  ok       nothing to do
  warning  a server works, but something that you configured, or that is usual, does not
  problem  a server would not start, or could not run anything: mend this first

Run it as the server runs: as root, with the same --config, flags and SKERRY_… variables. No server has to run,
and one that does is not disturbed: doctor works in a folder of its own, which it removes. It starts small
sandboxes and your MCP servers, and ends them. It takes a few seconds; something that hangs is reported after at
most 90. No secret is printed, so the output can go into a bug report.

With --server (or SKERRY_SERVER) it also asks that server whether it is ready. With --server-only it looks at
nothing here: it asks the server what it finds of itself, which takes an administrator of the operators' tenant.

Exit code: 0 when a server could serve, 1 when there is a problem.`,
		Example: "  sudo skerry doctor\n  sudo skerry doctor --config /etc/skerry.yaml --server http://127.0.0.1:8080\n" +
			"  skerry doctor --server https://skerry.example.com --server-only\n" +
			"  sudo skerry doctor --json | jq -r '.checks[] | select(.state != \"ok\") | .fix'",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(file, os.LookupEnv)
			for name, field := range flagFields(&cfg) {
				if f := cmd.Flags().Lookup(name); f.Changed {
					*field = f.Value.String()
				}
			}
			key, keyErr := app.TakeSigningKey() // the MCP servers that are started below must not have it
			return examination.Run(cmd.Context(), examination.Options{
				Config: cfg, Loaded: err, Server: api.Server, Key: api.Key, Asked: api.Named, SigningKey: key, SigningKeyErr: keyErr,
			}, cmd.OutOrStdout(), cmd.ErrOrStderr(), api.JSON)
		},
	}
	configFlags(cmd, &file, &flags)
	return cmd, append(slices.Sorted(maps.Keys(flagFields(&flags))), "config")
}
