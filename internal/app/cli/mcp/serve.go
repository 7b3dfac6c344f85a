package mcp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
	"github.com/skerry-sandbox/skerry/internal/app/cli/mcpstdio"
	"github.com/skerry-sandbox/skerry/internal/tools/argform"
)

func newMCPServe(f *mcpFlags) *cobra.Command {
	return &cobra.Command{
		Use: "serve --thread THREAD", Short: "Be an MCP server on standard input and output, with the tools of a thread",
		Long: "Speaks MCP on standard input and output for /mcp/THREAD of a Skerry server, for clients that only know stdio:\n" +
			"execute_code, bash, files, skills, and the tools of the thread's MCP servers. Messages pass as they are, with\n" +
			"progress, cancellation and notifications. It ends when its standard input does. Nothing but MCP is written to\n" +
			"standard output; what a person has to know goes to standard error.\n\n" +
			"The server is found as by the other commands: --address, SKERRY_SERVER, or http://127.0.0.1:8080, with the key in\n" +
			"SKERRY_API_KEY or --api-key.",
		Example: "  skerry mcp serve --thread my-thread\n" +
			"  claude mcp add skerry -- skerry mcp serve --thread my-thread",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.serve(cmd) },
	}
}

// serve bridges until the client closes its end.
func (f *mcpFlags) serve(cmd *cobra.Command) error {
	switch {
	case !cmd.Flags().Changed("thread"):
		return exit.With(exit.Usage, "--thread is missing: name the thread whose tools the client gets, such as --thread my-thread")
	case f.file != "":
		return exit.With(exit.Usage, "--config starts MCP servers here; serve speaks for a Skerry server: leave --config out")
	}
	address := f.address
	if address == "" {
		address = f.api.Server
	}
	if u, err := url.Parse(address); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return exit.With(exit.Usage, "the server's address is %q: it has to look like http://127.0.0.1:8080", address)
	}
	api := &client.Client{Server: strings.TrimSuffix(address, "/"), Key: f.api.Key}
	ctx := cmd.Context()
	// Before the client says anything: an address, or a key, that is wrong is one clear error.
	probe, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	if err := api.Call(probe, http.MethodGet, "/api/templates", nil, nil); err != nil {
		return exit.As(exit.Failed, err)
	}
	err := mcpstdio.New(mcpstdio.Options{
		Endpoint: api.Server + "/mcp/" + url.PathEscape(f.thread), Header: api.Header(), In: cmd.InOrStdin(), Out: cmd.OutOrStdout(),
		Problem: func(text string) {
			fmt.Fprintln(cmd.ErrOrStderr(), "skerry:", argform.Plain(text))
		},
	}).Run(ctx)
	if errors.Is(err, context.Canceled) {
		return err
	}
	return exit.Of(err)
}
