package mcp

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
)

func newMCPActivate(f *mcpFlags) *cobra.Command {
	return f.activeCommand(http.MethodPut, &cobra.Command{
		Use: "activate TOOL…", Short: "Put tools' definitions before the agent of a thread, deferred ones too",
		Long: "Makes tools active in the thread of --thread: its agent gets their definitions in every mode, until they are put away.\n" +
			"A full search does so with the deferred tools that it shows. The thread keeps at most 100; the oldest fall out.\n\n" + exitCodesHelp,
		Example: "  skerry mcp activate --thread demo jira__create_issue\n  skerry thread show demo | jq .active_tools",
	}, "%s is active in %s")
}

func newMCPPutAway(f *mcpFlags) *cobra.Command {
	return f.activeCommand(http.MethodDelete, &cobra.Command{
		Use: "put-away TOOL…", Short: "Take tools out of the active ones of a thread",
		Long:    "Takes tools out of the active ones of the thread of --thread.\n\n" + exitCodesHelp,
		Example: "  skerry mcp put-away --thread demo jira__create_issue",
	}, "%s is put away in %s")
}

// activeCommand completes a command that changes which tools are active; done says so of a tool and a thread.
func (f *mcpFlags) activeCommand(method string, cmd *cobra.Command, done string) *cobra.Command {
	cmd.Args = cobra.MinimumNArgs(1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if f.file != "" {
			return exit.With(exit.Usage, "--config starts MCP servers without threads: leave it out")
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
		defer cancel()
		for _, tool := range args {
			if err := f.server().Call(ctx, method, client.ThreadPath(f.thread, "tools", "active", url.PathEscape(tool)), nil, nil); err != nil {
				return exit.Of(err)
			}
			if err := f.api.Say(cmd, map[string]any{"tool": tool, "thread": f.thread}, fmt.Sprintf(done, tool, f.thread)); err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}
