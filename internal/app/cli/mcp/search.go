package mcp

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/argform"
)

func newMCPSearch(f *mcpFlags) *cobra.Command {
	var servers []string
	var q sandbox.ToolQuery
	cmd := &cobra.Command{
		Use: "search WORDS…", Short: "Find tools by what they do",
		Long: "Finds tools by what they do, best first, as an agent does with search_tools. Without words it lists the first tools.\n\n" +
			whereHelp + "\n\n" + exitCodesHelp,
		Args:    cobra.ArbitraryArgs,
		Example: "  skerry mcp search read a text file\n  skerry mcp search --server memory --detail full --limit 2 add a fact --json",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
			defer cancel()
			source, names, err := f.open(cmd, servers)
			if err != nil {
				return exit.Of(err)
			}
			defer func() { err = joined(err, source.close()) }()
			if len(names) > 1 {
				return exit.With(exit.Usage, "--server: a search is of one MCP server or of all, not of %d", len(names))
			}
			q.Query, q.Server = strings.Join(args, " "), strings.Join(names, "")
			found, err := source.search(ctx, q)
			if err != nil {
				return exit.Of(err)
			}
			return showFound(cmd.OutOrStdout(), found, f.api.JSON)
		},
	}
	cmd.Flags().StringArrayVar(&servers, "server", nil, "only this MCP server")
	cmd.Flags().StringVar(&q.Detail, "detail", sandbox.DetailDesc, "name, desc, or full: whole descriptions and the parameters")
	cmd.Flags().IntVar(&q.Limit, "limit", 0, "how many tools, at most 15 (default: 15; with full, the few that fit best)")
	cmd.Flags().BoolVar(&q.OutputSchema, "output-schema", false, "with --detail full and --json: the schemas of results too")
	return cmd
}

func (r *remoteTools) search(ctx context.Context, q sandbox.ToolQuery) (sandbox.ToolSearch, error) {
	v := url.Values{"query": {q.Query}, "detail": {q.Detail}}
	if q.Server != "" {
		v.Set("server", q.Server)
	}
	if q.Limit != 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	if q.OutputSchema {
		v.Set("output_schema", "true")
	}
	var found sandbox.ToolSearch
	err := r.api.Call(ctx, http.MethodGet, client.ThreadPath(r.thread, "tools")+"?"+v.Encode(), nil, &found)
	return found, err
}

func showFound(w io.Writer, found sandbox.ToolSearch, asJSON bool) error {
	if asJSON {
		return output.JSON(w, found)
	}
	for _, t := range found.Tools {
		fmt.Fprintf(w, "%s  %s\n", argform.Line(t.Server+"."+t.ShortName, 200), argform.Line(t.Description, 600))
		for _, p := range parameters(t.Parameters) {
			fmt.Fprintf(w, "    %s (%s)  %s\n", argform.Line(p.name, 60), p.note, argform.Line(p.description, 200))
		}
	}
	for _, name := range found.Also {
		fmt.Fprintf(w, "also %s\n", argform.Line(name, 200))
	}
	_, err := fmt.Fprintf(w, "%d of %s that match\n", found.Showing, output.Count(found.MatchCount, "tool"))
	return err
}
