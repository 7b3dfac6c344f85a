package cli

import (
	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
	"github.com/skerry-sandbox/skerry/internal/plugins"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// inspected is a plugin that is only looked at.
type inspected struct {
	Folder string `json:"folder"`
	Broken bool   `json:"broken"`
	sandbox.Plugin
}

func newPluginsInspect(api *client.Client) *cobra.Command {
	return &cobra.Command{
		Use: "inspect DIR", Short: "Read a plugin, a marketplace or a folder of plugins here, and count what is in them", Args: cobra.ExactArgs(1),
		Example: "  skerry plugins inspect ./my-plugin\n  skerry plugins inspect --json ./marketplace | jq '.[].findings'",
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := plugins.Inspect(args[0])
			if err != nil {
				return err
			}
			if api.JSON {
				list := make([]inspected, len(r.Plugins))
				for i, p := range r.Plugins {
					list[i] = inspected{Folder: p.Folder, Broken: p.Broken, Plugin: p.Plugin.View()}
				}
				return output.JSON(cmd.OutOrStdout(), list)
			}
			return r.Write(cmd.OutOrStdout())
		},
	}
}
