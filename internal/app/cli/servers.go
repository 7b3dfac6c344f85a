package cli

import (
	"errors"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
)

func newServers(api *client.Client) *cobra.Command {
	var thread, user string
	cmd := &cobra.Command{
		Use: "servers", Short: "List the servers of the installation, or say which one has a thread",
		Long: "Lists the servers that share the data folder: how each is, and how much it has. With --thread only the one that has this thread\n" +
			"is listed, and none when no server has it now. It takes an administrator of the operators' tenant.",
		Example: "  skerry servers\n  skerry servers --thread support-ticket-88 --user ada",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if user != "" && thread == "" {
				return errors.New("--user says whose thread it is: name the thread with --thread")
			}
			q := url.Values{}
			for name, value := range map[string]string{"thread": thread, "user": user} {
				if value != "" {
					q.Set(name, value)
				}
			}
			return api.Table(cmd, "/api/servers?"+q.Encode(), []string{
				"id", "state", "report.version", "started_at", "seen_at", "address", "report.threads", "report.sandboxes", "report.execs", "report.queue",
			})
		},
	}
	cmd.Flags().StringVar(&thread, "thread", "", "only the server that has this thread of your tenant")
	cmd.Flags().StringVar(&user, "user", "", "whose thread it is: yours when left out")
	return cmd
}
