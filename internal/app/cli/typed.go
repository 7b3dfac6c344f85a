package cli

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
	"github.com/skerry-sandbox/skerry/internal/app/cli/runs"
)

func newCommands(api *client.Client) *cobra.Command {
	cmd := &cobra.Command{Use: "commands", Short: "List the commands of plugins, and make messages of them"}
	var raw bool
	run := &cobra.Command{
		Use: "run THREAD TEXT…|-", Short: "Print the message that a command of a plugin becomes in a thread",
		Example: "  skerry commands run demo /sales:call-prep Acme Corp\n  skerry commands run demo -- /sales:call-prep --brief Acme\n  echo '/sales:call-prep Acme' | skerry commands run demo -",
		Args:    cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			text := strings.Join(args[1:], " ")
			if text == "-" {
				var err error
				if text, err = runs.ReadText(cmd.InOrStdin(), text); err != nil {
					return err
				}
			}
			m, err := api.SDK().Thread(args[0]).Messages.Read(cmd.Context(), text)
			switch {
			case err != nil:
				return client.Explain(err)
			case api.JSON:
				return output.JSON(cmd.OutOrStdout(), m)
			case m.Recognised:
				_, err = fmt.Fprintln(output.Writer(cmd.OutOrStdout(), raw), m.Message)
				return err
			case m.Unknown == "":
				return exit.With(exit.NoTool, "the text is no command: write /plugin:command, then its arguments")
			case len(m.Near) == 0:
				return exit.With(exit.NoTool, "there is no command /%s", m.Unknown)
			}
			return exit.With(exit.NoTool, "there is no command /%s; there is /%s", m.Unknown, strings.Join(m.Near, ", /"))
		},
	}
	output.RawFlag(run, &raw)
	cmd.AddCommand(run, &cobra.Command{
		Use: "ls PLUGIN", Aliases: []string{"list"}, Short: "List the commands of a plugin, and its skills that people may call", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return api.Table(cmd, "/api/plugins/"+url.PathEscape(args[0])+"/commands?skills=true", []string{"name", "kind", "argument_hint", "description"})
		},
	})
	return cmd
}
