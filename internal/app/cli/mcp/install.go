package mcp

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
)

// installWait is longer than a server lets an installation take.
const installWait = 6 * time.Minute

func newMCPInstall(f *mcpFlags) *cobra.Command {
	return &cobra.Command{
		Use: "install SERVER…", Short: "Fetch the packages of MCP servers that run in sandboxes",
		Long: "Starts MCP servers that run in sandboxes of their own once, while they also reach the hosts that packages come\n" +
			"from (plugins.package_hosts of the server). npx, uvx and the like keep what they fetch in the MCP server's home folder, and\n" +
			"later starts need no network for it. Again: to fetch what is new.\n\n" +
			"The home folder belongs to the user of the key; that of a server whose scope is shared needs an operator's key.\n\n" + exitCodesHelp,
		Example: "  skerry mcp install github plugin:sales:crm",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.file != "" {
				return exit.With(exit.Usage, "--config starts MCP servers without sandboxes: install their packages on this machine")
			}
			for _, server := range args {
				ctx, cancel := context.WithTimeout(cmd.Context(), max(f.timeout, installWait))
				var done struct {
					Tools int `json:"tools"`
				}
				fmt.Fprintf(cmd.ErrOrStderr(), "installing %s (up to five minutes)\n", output.Plain(cmd.ErrOrStderr(), server))
				err := f.server().CallOnce(ctx, http.MethodPost, "/api/mcp/servers/"+url.PathEscape(server)+"/install", nil, &done)
				cancel()
				if err != nil {
					return exit.Of(err)
				}
				parts := map[string]any{"server": server, "tools": done.Tools}
				if err := f.api.Say(cmd, parts, fmt.Sprintf("%s is installed, and has %s", server, output.Count(done.Tools, "tool"))); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
