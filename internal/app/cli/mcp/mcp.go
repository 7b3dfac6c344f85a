package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const exitCodesHelp = `Exit codes: 0 done; 1 nothing answered in time, or something broke; 2 the command line or the
arguments are wrong; 3 there is no such server or tool; 4 the tool answered with an error; 5 done, but
some servers did not answer.`

const whereHelp = `The tools are those of a Skerry server, found as by the other commands: --address, SKERRY_SERVER, or
http://127.0.0.1:8080, with the key in --api-key or SKERRY_API_KEY. When nothing was named and nothing
answers there, or with --config, the MCP servers are started here, for this one command: from an
extensions_config.json or .mcp.json, or the one that a server's YAML file names. Such calls are in no
audit log.`

// toolSource is where `skerry mcp` finds tools: a Skerry server, or MCP servers started here.
type toolSource interface {
	// servers lists all servers, including servers that do not answer.
	servers(ctx context.Context) ([]sandbox.ToolServer, error)
	// toolsOf returns all tools of one server.
	toolsOf(ctx context.Context, server string) ([]sandbox.Tool, error)
	// search finds tools by what they do.
	search(ctx context.Context, q sandbox.ToolQuery) (sandbox.ToolSearch, error)
	call(ctx context.Context, tool string, input json.RawMessage) (sandbox.ToolResult, error)
	logins
	// config is the file that the tools come from; "" for a Skerry server.
	config() string
	close() error
}

// logins are those of a person at MCP servers.
type logins interface {
	// beginLogin returns the URL at which a person logs in; finishLogin takes the URL that the browser was
	// sent back to.
	beginLogin(ctx context.Context, server, redirect string) (sandbox.ToolLogin, error)
	finishLogin(ctx context.Context, server, redirected string) error
	logout(ctx context.Context, server string) error
}

// mcpFlags are the flags of all commands below `skerry mcp`.
type mcpFlags struct {
	api     *client.Client
	address string
	file    string
	thread  string
	timeout time.Duration
}

// New is `skerry mcp`.
func New(api *client.Client) *cobra.Command {
	f := &mcpFlags{api: api}
	cmd := &cobra.Command{
		Use: "mcp", Short: "List, find and call tools of MCP servers, generate code that calls them, install them, log in there, and serve a thread over stdio",
		Long: "Lists, finds and calls tools of MCP servers, and generates code that calls them.\n\n" + whereHelp + "\n\n" + exitCodesHelp,
		Example: "  skerry mcp ls\n  skerry mcp call filesystem.read_text_file --interactive\n" +
			"  skerry mcp generate --output code && python3 code/example.py",
		// cobra takes an unknown word below a group for a wish to see its help, and calls that success.
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return exit.With(exit.Usage, "there is no command %q; there are: ls, add, rm, search, call, activate, put-away, generate, login, logout, install, drift and serve", args[0])
		},
	}
	flags := cmd.PersistentFlags()
	flags.StringVar(&f.address, "address", "", "address of the Skerry server (default: SKERRY_SERVER, else http://127.0.0.1:8080)")
	flags.StringVar(&f.file, "config", "", "start the MCP servers of this file here, without a Skerry server")
	flags.StringVar(&f.thread, "thread", "cli", "thread in whose name tools are listed and called at a Skerry server")
	flags.DurationVar(&f.timeout, "timeout", 2*time.Minute, "for all of it, the answers of a person aside")
	cmd.AddCommand(newMCPList(f), newMCPAdd(f), newMCPRemove(f), newMCPSearch(f), newMCPCall(f), newMCPActivate(f), newMCPPutAway(f), newMCPGenerate(f), newMCPLogin(f), newMCPLogout(f), newMCPInstall(f), newMCPDrift(f), newMCPServe(f))
	for _, sub := range cmd.Commands() {
		sub.Args = exit.Arguments(sub.Args)
		sub.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
			return exit.With(exit.Usage, "%w\nTry `%s --help`", err, c.CommandPath())
		})
	}
	return cmd
}

const probeTimeout = 3 * time.Second

// open finds the tools. servers are the values of --server: those with "://" are an address, as for
// the other commands, the rest are names of MCP servers.
func (f *mcpFlags) open(cmd *cobra.Command, servers []string) (toolSource, []string, error) {
	var names []string
	address, named := f.address, f.address != ""
	for _, s := range servers {
		if strings.Contains(s, "://") {
			address, named = s, true
			continue
		}
		names = append(names, s)
	}
	if address == "" {
		address, named = f.api.Server, f.api.Named
	}
	if f.file != "" {
		if f.address != "" {
			return nil, nil, exit.With(exit.Usage, "--config starts the MCP servers here and --address asks a Skerry server: give one of them")
		}
		s, err := openLocal(f.file)
		return s, names, err
	}
	address, err := client.Address(address)
	if err != nil {
		return nil, nil, exit.As(exit.Usage, err)
	}
	api := &client.Client{Server: address, Key: f.api.Key, JSON: f.api.JSON}
	if named || listening(cmd.Context(), api.Server) {
		return &remoteTools{api: api, thread: f.thread}, names, nil
	}
	file, err := defaultExtensions()
	if err != nil {
		return nil, nil, err
	}
	if _, err := os.Stat(file); err != nil {
		return nil, nil, exit.With(exit.Failed, "no Skerry server answers at %s, and there is no %s.\nStart one with `skerry serve`, name one with --address, or give a file of MCP servers with --config", address, file)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "no Skerry server at %s: starting the MCP servers of %s here\n", address, file)
	s, err := openLocal(file)
	return s, names, err
}

// listening reports whether a Skerry server answers.
func listening(ctx context.Context, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/healthz", nil)
	if err != nil {
		return false
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	res.Body.Close()
	return res.StatusCode == http.StatusOK
}
