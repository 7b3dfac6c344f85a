package main

import (
	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/plugin"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func newPlugins(api *apiClient) *cobra.Command {
	cmd := &cobra.Command{Use: "plugins", Short: "Look at plugins"}
	cmd.AddCommand(newPluginsInspect(api))
	return cmd
}

// inspected is a plugin that is only looked at.
type inspected struct {
	Folder string `json:"folder"`
	Broken bool   `json:"broken"`
	sandbox.Plugin
}

func newPluginsInspect(api *apiClient) *cobra.Command {
	return &cobra.Command{
		Use: "inspect DIR", Short: "Read a plugin, a marketplace or a folder of plugins here, and count what is in them", Args: cobra.ExactArgs(1),
		Example: "  skerry plugins inspect ./my-plugin\n  skerry plugins inspect --json ./marketplace | jq '.[].findings'",
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := plugin.Inspect(args[0])
			if err != nil {
				return err
			}
			if api.json {
				list := make([]inspected, len(r.Plugins))
				for i, p := range r.Plugins {
					list[i] = inspected{Folder: p.Folder, Broken: p.Broken, Plugin: p.Plugin.View()}
				}
				return printJSON(cmd.OutOrStdout(), list)
			}
			return r.Write(cmd.OutOrStdout())
		},
	}
}
