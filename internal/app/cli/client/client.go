package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
	"github.com/skerry-sandbox/skerry/internal/platform/buildinfo"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sdk "github.com/skerry-sandbox/skerry/sdk/go"
)

// Client calls the public API of a server.
type Client struct {
	Server string // its address
	Key    string
	JSON   bool // answers are printed as JSON

	Profile string // of which both are when nothing else names them
	Named   bool   // Server was named, by a flag, the environment or a profile
}

// Limits of what a client takes of a server.
const (
	MaxAnswer   = 64 << 20
	DialTimeout = 10 * time.Second
)

// callTimeout bounds a call that is waited for: of tools that take long, and of installations.
const callTimeout = time.Hour

// SDK returns the client of the Go SDK. It does not wait for a server that does not run.
func (c *Client) SDK() *sdk.Client {
	return sdk.New(c.Server, sdk.Options{Key: c.Key, UserAgent: "skerry/" + buildinfo.Version(), Timeout: callTimeout, Wait: callTimeout, Patience: -1})
}

// Request sends a request whose answer the caller reads and closes.
func (c *Client) Request(ctx context.Context, r sdk.Request) (*http.Response, error) {
	res, err := c.SDK().Do(ctx, r)
	return res, Explain(err)
}

// Call sends body and decodes the answer into out, which may be nil.
func (c *Client) Call(ctx context.Context, method, path string, body, out any) error {
	return Explain(c.SDK().Call(ctx, sdk.Request{Method: method, Path: path, Body: body}, out))
}

// CallOnce is Call for what must not be done twice.
func (c *Client) CallOnce(ctx context.Context, method, path string, body, out any) error {
	return Explain(c.SDK().Call(ctx, sdk.Request{Method: method, Path: path, Body: body, Once: true}, out))
}

// Send sends what is no JSON and decodes the answer into out.
func (c *Client) Send(ctx context.Context, path, contentType string, content io.Reader, out any) error {
	return Explain(c.SDK().Call(ctx, sdk.Request{Method: http.MethodPost, Path: path, Content: content, ContentType: contentType}, out))
}

// Explain adds to an error of the server the kind that the command line looks at, and says what may be
// wrong when none answered.
func Explain(err error) error {
	var answered *sdk.Error
	var connection *url.Error
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &answered):
		return sandbox.Errorf(sandbox.Kind(answered.Code), "%s", answered)
	case errors.As(err, &syntax), errors.As(err, &kind):
		return errors.New("the server answered what this program does not understand. Is it a Skerry server, of about the same version?")
	case errors.As(err, &connection):
		return fmt.Errorf("%w\nIs a server running there? `skerry serve` starts one; --server names another address", err)
	}
	return err
}

// Result is an exec as the API shows it.
type Result = sdk.Result

// Ending is how an exec that ended otherwise than by itself ends the command line.
func Ending(r *Result) error {
	if r.ExitCode == nil && r.Context != nil {
		return fmt.Errorf("the exec ended by %s after %d ms; its context is %s: %s", r.Status, r.DurationMillis, r.Context.State, r.Context.Detail)
	}
	if r.ExitCode == nil {
		if r.Status == sdk.StatusTimeout {
			return fmt.Errorf("the exec ended by timeout after %d ms; --timeout allows more", r.DurationMillis)
		}
		return fmt.Errorf("the exec ended by %s after %d ms", r.Status, r.DurationMillis)
	}
	if *r.ExitCode != 0 {
		return exit.Code(*r.ExitCode)
	}
	return nil
}

// Say prints what a command did: a sentence for a person, or with --json its parts.
func (c *Client) Say(cmd *cobra.Command, parts map[string]any, sentence string) error {
	if c.JSON {
		return output.JSON(cmd.OutOrStdout(), parts)
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), output.Plain(cmd.OutOrStdout(), sentence))
	return err
}

// Table prints a list of the API with the named fields as columns.
func (c *Client) Table(cmd *cobra.Command, path string, columns []string) error {
	var list struct {
		Items []map[string]any `json:"items"`
		Next  string           `json:"next_cursor"`
	}
	if err := c.Call(cmd.Context(), http.MethodGet, path, nil, &list); err != nil {
		return err
	}
	if list.Next != "" {
		defer Stopped(cmd, len(list.Items))
	}
	if c.JSON {
		return output.JSON(cmd.OutOrStdout(), list.Items)
	}
	return output.Table(cmd.OutOrStdout(), list.Items, columns)
}

// Stopped says that a list is longer than what is shown of it.
func Stopped(cmd *cobra.Command, shown int) {
	more := "the API has the rest"
	if cmd.Flags().Lookup("limit") != nil {
		more = "--limit shows more"
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "skerry: these are the first %d, and there are more: %s\n", shown, more) //nolint:errcheck // nothing else can be told
}

// ThreadPath is the path of something of a thread in the API.
func ThreadPath(thread string, parts ...string) string {
	return "/api/threads/" + url.PathEscape(thread) + "/" + strings.Join(parts, "/")
}
