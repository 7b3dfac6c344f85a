package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app"
	"github.com/skerry-sandbox/skerry/internal/platform/buildinfo"
)

// The tools of the demo, for a server that the demo did not start: those of the filesystem MCP server that it uses, over a
// folder with one file.
const (
	demoFolder = "/islands"
	demoFile   = "islands.txt"
	demoText   = "Foula 12.65\nFair Isle 7.68\nUnst 120.68\nOut Skerries 2.6\n"
	// demoServer is the name by which a server is to know them.
	demoServer = "demo"
)

func newDemoTools() *cobra.Command {
	var listen string
	cmd := &cobra.Command{
		Use: "tools", Short: "Serve the tools that `skerry demo --server` calls, as an MCP server over HTTP",
		Long: "Serves two harmless tools over one small file, without credentials. Give a server its address under the name \"" + demoServer + "\":\n\n" +
			`  {"mcpServers": {"` + demoServer + `": {"url": "http://HOST:9000/mcp"}}}`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ln, err := net.Listen("tcp", listen)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "MCP server on http://%s/mcp\n", ln.Addr())
			return serveDemoTools(cmd.Context(), ln)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:9000", "address")
	return cmd
}

// serveDemoTools serves until ctx ends.
func serveDemoTools(ctx context.Context, ln net.Listener) error {
	s := demoTools()
	mux := http.NewServeMux()
	mux.Handle("/mcp", mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true}))
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: app.HeaderTimeout, IdleTimeout: app.IdleTimeout}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ln) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	err := srv.Shutdown(stop)
	if err != nil {
		err = srv.Close()
	}
	return errors.Join(err, app.IgnoreClosed(<-ended))
}

type demoPath struct {
	Path string `json:"path"`
}

type demoContent struct {
	Content string `json:"content"`
}

func demoTools() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "skerry-demo", Version: buildinfo.Version()}, nil)
	read := &mcp.ToolAnnotations{ReadOnlyHint: true}
	mcp.AddTool(s, &mcp.Tool{Name: "list_directory", Description: "Lists the files of a folder.", Annotations: read},
		func(_ context.Context, _ *mcp.CallToolRequest, in demoPath) (*mcp.CallToolResult, demoContent, error) {
			if in.Path != demoFolder {
				return nil, demoContent{}, fmt.Errorf("there is no folder %.200q: the only one is %s", in.Path, demoFolder)
			}
			return nil, demoContent{"[FILE] " + demoFile}, nil
		})
	mcp.AddTool(s, &mcp.Tool{Name: "read_text_file", Description: "Reads a text file.", Annotations: read},
		func(_ context.Context, _ *mcp.CallToolRequest, in demoPath) (*mcp.CallToolResult, demoContent, error) {
			if in.Path != demoFolder+"/"+demoFile {
				return nil, demoContent{}, fmt.Errorf("there is no file %.200q: the only one is %s/%s", in.Path, demoFolder, demoFile)
			}
			return nil, demoContent{demoText}, nil
		})
	return s
}
