package cli

import (
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
)

func newThread(api *client.Client) *cobra.Command {
	cmd := &cobra.Command{Use: "thread", Short: "List, show and delete threads"}
	cmd.AddCommand(
		newThreadList(api),
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

func newThreadList(api *client.Client) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List your threads, or those of your tenant", Args: cobra.NoArgs,
		Long:    "Lists your threads by name. An administrator may list those of another user, or with --all of the tenant, the latest activity first. With --largest those come first whose files took most when they were last measured.",
		Example: "  skerry thread ls --state running\n  skerry thread ls --all -q invoice --active-since 7d\n  skerry thread ls --all --largest --min-disk 100\n  skerry thread ls --user ann --template data",
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, columns := url.Values{}, []string{"thread_id", "sandbox.state", "sandbox.template", "usage.disk_bytes", "usage.execs", "last_active_at"}
			for flag, param := range map[string]string{"user": "user", "state": "state", "template": "template", "text": "q", "min-disk": "min_disk_mib", "limit": "limit"} {
				if f := cmd.Flags().Lookup(flag); f.Changed {
					q.Set(param, f.Value.String())
				}
			}
			if all {
				q.Set("user", "*")
			}
			if all || q.Get("user") != "" {
				columns = append([]string{"user"}, columns...)
			}
			for flag, param := range map[string]string{"active-since": "active_after", "idle-since": "active_before"} {
				text := cmd.Flags().Lookup(flag).Value.String()
				if text == "" {
					continue
				}
				at, err := output.ParseTime(text, time.Now())
				if err != nil {
					return exit.With(exit.Usage, "--%s: %v", flag, err)
				}
				q.Set(param, at.UTC().Format(time.RFC3339Nano))
			}
			for flag, sort := range map[string]string{"latest": "last_active_at", "largest": "disk_bytes"} {
				if cmd.Flags().Lookup(flag).Value.String() == "true" {
					q.Set("sort", sort)
				}
			}
			return api.Table(cmd, "/api/threads?"+q.Encode(), columns)
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&all, "all", "a", false, "those of all users of the tenant")
	flags.String("user", "", "those of this user")
	flags.String("state", "", "with a sandbox in this state")
	flags.String("template", "", "with a sandbox of this template")
	flags.StringP("text", "q", "", "with this text in the name, the user or a label")
	flags.String("active-since", "", "active since this time: "+output.TimeHelp)
	flags.String("idle-since", "", "not active since this time")
	flags.Bool("latest", false, "the latest activity first")
	flags.Bool("largest", false, "the largest files first, without threads that were never measured")
	flags.Int("min-disk", 0, "with files of so many MiB at least, when they were last measured")
	flags.Int("limit", 100, "how many, 1000 at most")
	cmd.MarkFlagsMutuallyExclusive("all", "user")
	cmd.MarkFlagsMutuallyExclusive("latest", "largest")
	return cmd
}
