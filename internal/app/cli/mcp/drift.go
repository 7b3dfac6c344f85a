package mcp

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func newMCPDrift(f *mcpFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "drift", Short: "Tools that are not as they were first seen: list and approve them",
		Long: "Lists tools of MCP servers that are not as they were when they were first seen, or approved, and approves them.\nA tool that is quarantined is not listed anywhere else, and calls of it are refused, until it is approved.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newMCPDriftList(f), newMCPDriftApprove(f))
	return cmd
}

// server is the Skerry server that is asked.
func (f *mcpFlags) server() *client.Client {
	if f.address == "" {
		return f.api
	}
	address, err := client.Address(f.address)
	if err != nil {
		address = f.address // the request says what is wrong with it
	}
	return &client.Client{Server: address, Key: f.api.Key, JSON: f.api.JSON}
}

func newMCPDriftList(f *mcpFlags) *cobra.Command {
	return &cobra.Command{
		Use: "ls [SERVER]", Aliases: []string{"list"}, Short: "List changed tools, with what has changed", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := "/api/mcp/drift"
			if len(args) > 0 {
				path += "?server=" + url.QueryEscape(args[0])
			}
			var list struct {
				Items []sandbox.ToolDrift `json:"items"`
			}
			if err := f.server().Call(cmd.Context(), http.MethodGet, path, nil, &list); err != nil {
				return exit.Of(err)
			}
			if f.api.JSON {
				return output.JSON(cmd.OutOrStdout(), list.Items)
			}
			for _, d := range list.Items {
				showDrift(cmd.OutOrStdout(), d)
			}
			if len(list.Items) == 0 {
				fmt.Fprintln(cmd.OutOrStdout(), "all tools are as they were first seen, or approved")
			}
			return nil
		},
	}
}

// showDrift prints one tool. What servers say comes escaped; names do not.
func showDrift(w io.Writer, d sandbox.ToolDrift) {
	state := d.State
	if d.Quarantined {
		state += ", quarantined"
	}
	fmt.Fprintf(w, "%s %s: %s, %s\n", output.Plain(w, d.Server), output.Plain(w, d.Tool), state, d.SeenAt.Format("2006-01-02 15:04:05Z07:00"))
	for _, c := range d.Changes {
		fmt.Fprintf(w, "  %s\n", c.Field)
		for line := range strings.Lines(c.Diff) {
			fmt.Fprintf(w, "    %s\n", output.Plain(w, strings.TrimSuffix(line, "\n")))
		}
	}
	fmt.Fprintf(w, "  hash %s\n", d.Hash)
}

func newMCPDriftApprove(f *mcpFlags) *cobra.Command {
	var hash string
	cmd := &cobra.Command{
		Use: "approve SERVER [TOOL]", Short: "Take a tool, or all of a server, as they are now", Args: cobra.RangeArgs(1, 2),
		Example: "  skerry mcp drift approve crm get_account --hash 3f2a…",
		RunE: func(cmd *cobra.Command, args []string) error {
			body := map[string]string{}
			if len(args) > 1 {
				body["tool"] = args[1]
			}
			if hash != "" {
				body["hash"] = hash
			}
			var done struct {
				Approved []string `json:"approved"`
			}
			path := "/api/mcp/servers/" + url.PathEscape(args[0]) + "/drift/approve"
			if err := f.server().Call(cmd.Context(), http.MethodPost, path, body, &done); err != nil {
				return exit.Of(err)
			}
			if f.api.JSON {
				return output.JSON(cmd.OutOrStdout(), done)
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "approved: %s\n", output.Plain(cmd.OutOrStdout(), strings.Join(done.Approved, ", ")))
			return err
		},
	}
	cmd.Flags().StringVar(&hash, "hash", "", "only if the tool still has this hash, as the list shows it")
	return cmd
}
