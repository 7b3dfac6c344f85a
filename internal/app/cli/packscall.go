package cli

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
	"github.com/skerry-sandbox/skerry/internal/platform/buildinfo"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/argform"
)

// packCall is one `skerry packs call`.
type packCall struct {
	api           *client.Client
	input, thread string
}

func newPackCall(api *client.Client) *cobra.Command {
	c := &packCall{api: api}
	cmd := &cobra.Command{
		Use: "call PACK TOOL", Short: "Try a tool of a pack",
		Long: "Calls a tool of a pack as an agent would: in a thread, with its policy, approvals, limits and audit log. Without\n" +
			"--thread it is a thread of its own, which is deleted afterwards. The text of the result goes to standard output,\n" +
			"and what the tool says meanwhile to standard error. With --json the whole result is printed as MCP has it.\n" +
			"The exit code is 1 when the tool fails: its error is then on standard error.",
		Example: "  skerry packs call crm find_lead --input '{\"name\": \"Ada\"}'\n  skerry packs call crm import --input @leads.json --thread test --json",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			input, err := client.Arguments("--input", c.input, cmd.InOrStdin())
			if err != nil {
				return err
			}
			result, err := c.call(cmd, args[0], args[1], input)
			if err != nil {
				return err
			}
			return c.show(cmd, result)
		},
	}
	cmd.Flags().StringVar(&c.input, "input", "{}", client.ArgumentsHelp)
	cmd.Flags().StringVar(&c.thread, "thread", "", "the thread in whose name the tool is called")
	return cmd
}

// call calls a tool at /mcp/THREAD/PACK, which has the way of every call, and tells progress.
func (c *packCall) call(cmd *cobra.Command, pack, tool string, input json.RawMessage) (*mcp.CallToolResult, error) {
	ctx, thread := cmd.Context(), c.thread
	if thread == "" {
		id := make([]byte, 8)
		_, _ = rand.Read(id) // never fails (crypto/rand)
		thread = "packs-call-" + hex.EncodeToString(id)
	}
	// Before the call: an address, a key or a name that is wrong is one clear error.
	var server struct {
		Servers []sandbox.ToolServer `json:"servers"`
	}
	if err := c.api.Call(ctx, http.MethodGet, client.ThreadPath(thread, "servers"), nil, &server); err != nil {
		return nil, err
	}
	if !isPack(server.Servers, pack) {
		return nil, exit.With(exit.NoTool, "the thread has no pack %q; `skerry packs ls` shows those of the server", pack)
	}
	if c.thread == "" {
		defer c.forget(cmd, thread)
	}
	said := cmd.ErrOrStderr()
	sdk := mcp.NewClient(&mcp.Implementation{Name: "skerry", Version: buildinfo.Version()}, &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{},
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			fmt.Fprintln(said, progressLine(r.Params)) //nolint:errcheck // what a closed terminal misses
		},
	})
	session, err := sdk.Connect(ctx, &mcp.StreamableClientTransport{
		Endpoint:             c.api.Server + "/mcp/" + url.PathEscape(thread) + "/" + url.PathEscape(pack),
		HTTPClient:           &http.Client{Transport: c.api.Transport()},
		DisableStandaloneSSE: true, MaxEventSize: client.MaxAnswer,
	}, nil)
	if err != nil {
		return nil, client.Explain(err)
	}
	defer session.Close() //nolint:errcheck // the answer is there
	params := &mcp.CallToolParams{Meta: mcp.Meta{}, Name: tool, Arguments: input}
	params.SetProgressToken("call")
	result, err := session.CallTool(ctx, params)
	var refused *jsonrpc.Error
	if errors.As(err, &refused) { // without what the client's library says around it
		return nil, exit.With(exit.NoTool, "%s", argform.Plain(refused.Message))
	}
	return result, err
}

// forget deletes the thread of a call. A thread that nothing was written to may be none.
func (c *packCall) forget(cmd *cobra.Command, thread string) {
	err := c.api.Call(context.WithoutCancel(cmd.Context()), http.MethodDelete, "/api/threads/"+url.PathEscape(thread), nil, nil)
	if err != nil && sandbox.KindOf(err) != sandbox.NotFound {
		fmt.Fprintf(cmd.ErrOrStderr(), "skerry: the thread %s is not deleted: %v\n", thread, err)
	}
}

// isPack reports whether a server of a thread is a pack.
func isPack(servers []sandbox.ToolServer, name string) bool {
	for _, s := range servers {
		if s.Name == name {
			return s.Transport == "pack"
		}
	}
	return false
}

// progressLine says how far a call is.
func progressLine(p *mcp.ProgressNotificationParams) string {
	line := fmt.Sprintf("%g", p.Progress)
	if p.Total > 0 {
		line += fmt.Sprintf(" of %g", p.Total)
	}
	return strings.TrimSuffix(line+": "+argform.Plain(p.Message), ": ")
}

// show prints a result. The text of a failure is the error of the command.
func (c *packCall) show(cmd *cobra.Command, r *mcp.CallToolResult) error {
	w := cmd.OutOrStdout()
	var texts []string
	for _, block := range r.Content {
		if text, ok := block.(*mcp.TextContent); ok {
			texts = append(texts, text.Text)
			continue
		}
		raw, err := block.MarshalJSON()
		if err != nil {
			return err
		}
		texts = append(texts, string(raw))
	}
	text := strings.Join(texts, "\n")
	if c.api.JSON {
		if err := output.JSON(w, r); err != nil {
			return err
		}
	} else if !r.IsError {
		fmt.Fprintln(w, output.Plain(w, text))
	}
	if r.IsError {
		return exit.As(exit.Failed, errors.New(argform.Plain(text)))
	}
	return nil
}
