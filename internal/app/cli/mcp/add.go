package mcp

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
)

func serverPath(name string) string { return "/api/mcp/servers/" + url.PathEscape(name) }

func newMCPAdd(f *mcpFlags) *cobra.Command {
	var env, headers []string
	cmd := &cobra.Command{
		Use: "add NAME {URL | -- COMMAND [ARG…]}", Short: "Add an MCP server to a Skerry server, or change one",
		Long: "Adds an MCP server to a Skerry server, by its URL or the command that starts it there. It takes an operator's key.\n\n" +
			"A value ${NAME} comes from the server's environment, and ${secret:NAME} from its secrets: no secret stands in the command line.\n\n" + exitCodesHelp,
		Example: "  skerry mcp add docs https://docs.example.com/mcp\n  skerry mcp add docs https://docs.example.com/mcp --header 'Authorization: Bearer ${DOCS_TOKEN}'\n" +
			"  skerry mcp add files -- npx -y @modelcontextprotocol/server-filesystem /srv/files",
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			config, err := serverConfig(args[1:], env, headers)
			if err != nil {
				return err
			}
			var made map[string]any
			if err := f.server().Call(cmd.Context(), http.MethodPut, serverPath(args[0]), config, &made); err != nil {
				return exit.Of(err)
			}
			if f.api.JSON {
				return output.JSON(cmd.OutOrStdout(), made)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is added; `skerry mcp ls --server %s` lists its tools\n", args[0], args[0])
			return err
		},
	}
	cmd.Flags().StringArrayVarP(&env, "env", "e", nil, "NAME=VALUE in the environment of the command; may be given many times")
	cmd.Flags().StringArrayVar(&headers, "header", nil, "'Name: value' sent to the URL; may be given many times")
	return cmd
}

// serverConfig is a value of mcpServers.
func serverConfig(what, env, headers []string) (map[string]any, error) {
	pairs := func(flag, sep string, list []string) (map[string]string, error) {
		m := map[string]string{}
		for _, text := range list {
			name, value, ok := strings.Cut(text, sep)
			if !ok || name == "" {
				return nil, exit.With(exit.Usage, "--%s %q: write a name, %q and a value", flag, name, sep)
			}
			m[strings.TrimSpace(name)] = strings.TrimPrefix(value, " ")
		}
		return m, nil
	}
	variables, err := pairs("env", "=", env)
	if err != nil {
		return nil, err
	}
	fields, err := pairs("header", ":", headers)
	if err != nil {
		return nil, err
	}
	if len(what) == 1 && (strings.HasPrefix(what[0], "https://") || strings.HasPrefix(what[0], "http://")) {
		if len(env) > 0 {
			return nil, exit.With(exit.Usage, "--env is for a command; a URL has --header")
		}
		config := map[string]any{"type": "http", "url": what[0]}
		if len(fields) > 0 {
			config["headers"] = fields
		}
		return config, nil
	}
	if len(headers) > 0 {
		return nil, exit.With(exit.Usage, "--header is for a URL; a command has --env")
	}
	config := map[string]any{"command": what[0], "args": what[1:]}
	if len(variables) > 0 {
		config["env"] = variables
	}
	return config, nil
}

func newMCPRemove(f *mcpFlags) *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME…", Aliases: []string{"remove"}, Short: "Remove MCP servers from a Skerry server; it takes an operator's key", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, name := range args {
				if err := f.server().Call(cmd.Context(), http.MethodDelete, serverPath(name), nil, nil); err != nil {
					return exit.Of(err)
				}
			}
			return nil
		},
	}
}
