package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app"
	"github.com/skerry-sandbox/skerry/internal/app/environment"
	"github.com/skerry-sandbox/skerry/internal/config"
)

// maxReplicas bounds the pods that wait in one pool of the cluster.
const maxReplicas = 1000

func newTemplatesPool() *cobra.Command {
	replicas := 1
	cmd := &cobra.Command{
		Use: "pool NAME", Short: "Print the SandboxTemplate and SandboxWarmPool that a template claims its sandboxes from",
		Long: "Prints what agent-sandbox needs to make the pods that the template's `kubernetes.claim.pool` names, as YAML for `kubectl apply -f -`: a Secret with\n" +
			"the certificate of the pool, a SandboxTemplate and a SandboxWarmPool. Run it where the server runs, with the same SKERRY_CONFIG and SKERRY_… variables,\n" +
			"and again after each upgrade and each change of the template: a pod of another shape is refused. The output has a private key.",
		Example: "  kubectl -n skerry exec deploy/skerry -- skerry templates pool data --replicas 5 | kubectl apply -f -",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if replicas < 0 || replicas > maxReplicas {
				return fmt.Errorf("--replicas %d: want 0 to %d", replicas, maxReplicas)
			}
			cfg, err := config.Load(environment.Or("SKERRY_CONFIG", ""), os.LookupEnv)
			if err != nil {
				return err
			}
			return app.PrintPool(cmd.Context(), cfg, cmd.OutOrStdout(), args[0], replicas)
		},
	}
	cmd.Flags().IntVar(&replicas, "replicas", replicas, "how many pods wait")
	return cmd
}
