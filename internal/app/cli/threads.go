package cli

import (
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
)

func newThread(api *client.Client) *cobra.Command {
	cmd := &cobra.Command{Use: "thread", Short: "List, show and delete threads"}
	cmd.AddCommand(
		&cobra.Command{Use: "ls", Aliases: []string{"list"}, Short: "List your threads", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			return api.Table(cmd, "/api/threads", []string{"thread_id", "sandbox.state", "sandbox.template", "last_active_at"})
		}},
		&cobra.Command{Use: "show THREAD", Short: "Show a thread as JSON", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
			var v map[string]any
			if err := api.Call(cmd.Context(), http.MethodGet, "/api/threads/"+url.PathEscape(args[0]), nil, &v); err != nil {
				return err
			}
			return output.JSON(cmd.OutOrStdout(), v)
		}},
		&cobra.Command{Use: "rm THREAD", Short: "Delete a thread with its sandbox and files", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
			return api.Call(cmd.Context(), http.MethodDelete, "/api/threads/"+url.PathEscape(args[0]), nil, nil)
		}},
	)
	return cmd
}
