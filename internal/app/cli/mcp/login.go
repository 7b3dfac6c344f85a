package mcp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// loginPort is where the browser comes back to when nothing else is said. A port that stays the same
// spares a registration at the authorization server each time.
const loginPort = 8976

func newMCPLogin(f *mcpFlags) *cobra.Command {
	var port uint16
	var paste bool
	cmd := &cobra.Command{
		Use: "login SERVER", Short: "Log in at an MCP server",
		Long: "Logs in at an MCP server that wants it: prints a URL to open in a browser, and waits until the browser\ncomes back to a port of this machine. With --paste nothing is waited for: copy the URL that the browser\n" +
			"was sent to, though it shows no page there, and paste it here. Use that when the browser runs elsewhere.\n\n" +
			"The login belongs to the user of the key; that of a server whose scope is shared needs an\nadministrator's. It is kept by the Skerry server, or by this machine's user when there is none.\n\n" + whereHelp + "\n\n" + exitCodesHelp,
		Example: "  skerry mcp login linear\n  skerry mcp login linear --paste",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			source, _, err := f.open(cmd, nil)
			if err != nil {
				return exit.Of(err)
			}
			defer func() { err = joined(err, source.close()) }()
			l := &loginDialog{source: source, server: args[0], timeout: f.timeout, in: cmd.InOrStdin(), out: cmd.OutOrStdout()}
			if paste {
				err = l.byPaste(cmd.Context(), port)
			} else {
				err = l.byBrowser(cmd.Context(), port, cmd.Flags().Changed("port"))
			}
			if err != nil {
				return exit.Of(err)
			}
			_, err = fmt.Fprintf(l.out, "Logged in at %s.\n", output.Plain(l.out, l.server))
			return err
		},
	}
	cmd.Flags().Uint16Var(&port, "port", loginPort, "port of this machine that the browser comes back to; 0 takes a free one")
	cmd.Flags().BoolVar(&paste, "paste", false, "read the URL that the browser was sent to from standard input")
	return cmd
}

func newMCPLogout(f *mcpFlags) *cobra.Command {
	return &cobra.Command{
		Use: "logout SERVER", Short: "Forget the login at an MCP server",
		Long:    "Forgets the login at an MCP server, and tells its authorization server.\n\n" + whereHelp + "\n\n" + exitCodesHelp,
		Example: "  skerry mcp logout linear",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
			defer cancel()
			source, _, err := f.open(cmd, nil)
			if err != nil {
				return exit.Of(err)
			}
			defer func() { err = joined(err, source.close()) }()
			if err := source.logout(ctx, args[0]); err != nil {
				return exit.Of(err)
			}
			return f.api.Say(cmd, map[string]any{"server": args[0]}, "Logged out at "+args[0]+".")
		},
	}
}

// loginDialog is one login.
type loginDialog struct {
	source  toolSource
	server  string
	timeout time.Duration // of each question to the source; a person has as long as the login is good for
	in      io.Reader
	out     io.Writer
}

func (l *loginDialog) begin(ctx context.Context, redirect string) (sandbox.ToolLogin, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	begun, err := l.source.beginLogin(ctx, l.server, redirect)
	if err != nil {
		return begun, err
	}
	_, err = fmt.Fprintf(l.out, "Open this in a browser:\n\n  %s\n\n", output.Plain(l.out, begun.URL))
	return begun, err
}

func (l *loginDialog) finish(ctx context.Context, redirected string) error {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	return l.source.finishLogin(ctx, l.server, redirected)
}

// maxPasted bounds what is pasted.
const maxPasted = 16 << 10

func (l *loginDialog) byPaste(ctx context.Context, port uint16) error {
	if _, err := l.begin(ctx, redirectTo(fmt.Sprintf("127.0.0.1:%d", port))); err != nil {
		return err
	}
	if _, err := fmt.Fprint(l.out, "When you have agreed, paste the whole URL that the browser was sent to:\n"); err != nil {
		return err
	}
	line, err := bufio.NewReader(io.LimitReader(l.in, maxPasted)).ReadString('\n')
	if line = strings.TrimSpace(line); line == "" {
		return exit.With(exit.Usage, "nothing was pasted: %w", errors.Join(err, io.ErrUnexpectedEOF))
	}
	return l.finish(ctx, line)
}

const callbackPath = "/callback"

func redirectTo(address string) string { return "http://" + address + callbackPath }

// byBrowser waits for the browser at a port of this machine.
func (l *loginDialog) byBrowser(ctx context.Context, port uint16, wanted bool) error {
	ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil && !wanted {
		ln, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return exit.With(exit.Usage, "--port: %w", err)
	}
	defer func() { _ = ln.Close() }()
	begun, err := l.begin(ctx, redirectTo(ln.Addr().String()))
	if err != nil {
		return err
	}
	// The configuration may name the only address that the authorization server sends browsers to.
	back, err := url.Parse(begun.RedirectURI)
	if err != nil {
		return err
	}
	if begun.RedirectURI != redirectTo(ln.Addr().String()) {
		_ = ln.Close()
		host := back.Host
		if back.Port() == "" {
			host = net.JoinHostPort(back.Hostname(), "80")
		}
		if ln, err = net.Listen("tcp", host); err != nil {
			return exit.With(exit.Failed, "the browser comes back to %s, as the configuration says, but %w: try --paste", begun.RedirectURI, err)
		}
	}
	page, err := url.Parse(begun.URL)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithDeadline(ctx, begun.Expires)
	defer cancel()
	return l.serveBrowser(ctx, ln, back, page.Query().Get("state"))
}

// serveBrowser answers the browser's way back and returns what became of the login. Any other request, with
// another state, is sent away.
func (l *loginDialog) serveBrowser(ctx context.Context, ln net.Listener, back *url.URL, state string) error {
	done := make(chan error, 1)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Referrer-Policy", "no-referrer") // the code is in the URL
		if want := back.Path; r.URL.Path != want && (want != "" || r.URL.Path != "/") || r.URL.Query().Get("state") != state {
			http.Error(w, "This is not the login that Skerry waits for.", http.StatusBadRequest)
			return
		}
		redirected := *back
		redirected.RawQuery = r.URL.RawQuery
		err := l.finish(ctx, redirected.String())
		text := "You are logged in. You may close this window."
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			text = "The login failed; see where you started it."
		}
		_, _ = io.WriteString(w, text+"\n")
		select {
		case done <- err:
		default: // a second answer to the same login
		}
	})
	s := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 10 * time.Second, MaxHeaderBytes: 2 * maxPasted}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ln) }()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if s.Shutdown(ctx) != nil { // after the page is sent
			_ = s.Close()
		}
	}()
	select {
	case err := <-done:
		return err
	case err := <-ended:
		return err
	case <-ctx.Done():
		return exit.With(exit.Failed, "the browser did not come back: %w", ctx.Err())
	}
}
