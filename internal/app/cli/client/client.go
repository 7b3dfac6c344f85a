package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
	"github.com/skerry-sandbox/skerry/internal/platform/buildinfo"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/argform"
	sdk "github.com/skerry-sandbox/skerry/sdk/go"
)

// Client calls the public API of a server.
type Client struct {
	Server string // its address
	Key    string
	JSON   bool // answers are printed as JSON
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
	switch {
	case errors.As(err, &answered):
		return sandbox.Errorf(sandbox.Kind(answered.Code), "%s", answered)
	case errors.As(err, &connection):
		return fmt.Errorf("%w\nIs a server running there? `skerry serve` starts one; --server names another address", err)
	}
	return err
}

// Result is an exec as the API shows it.
type Result = sdk.Result

// Stream runs something, writes its output as it comes, and returns its result.
func Stream(events iter.Seq2[sdk.Event, error], stdout, stderr io.Writer) (*Result, error) {
	for e, err := range events {
		if err != nil {
			return nil, Explain(err)
		}
		switch e.Type {
		case sdk.Stdout:
			_, err = stdout.Write(e.Data)
		case sdk.Stderr:
			_, err = stderr.Write(e.Data)
		case sdk.ApprovalRequired:
			id := argform.Line(e.Approval.ID, 64)
			_, err = fmt.Fprintf(stderr, "skerry: %s waits for an approval: skerry approvals show %s, approve %s, deny %s\n", argform.Line(e.Approval.Tool, 200), id, id, id)
		case sdk.Exit:
			return e.Result, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, errors.New("the stream ended before the exec did")
}

// Ending is how an exec that ended otherwise than by itself ends the command line.
func Ending(r *Result) error {
	if r.ExitCode == nil && r.Context != nil {
		return fmt.Errorf("the exec ended by %s after %d ms; its context is %s: %s", r.Status, r.DurationMillis, r.Context.State, r.Context.Detail)
	}
	if r.ExitCode == nil {
		return fmt.Errorf("the exec ended by %s after %d ms", r.Status, r.DurationMillis)
	}
	if *r.ExitCode != 0 {
		return exit.Code(*r.ExitCode)
	}
	return nil
}

// Table prints a list of the API with the named fields as columns.
func (c *Client) Table(cmd *cobra.Command, path string, columns []string) error {
	var list struct {
		Items []map[string]any `json:"items"`
	}
	if err := c.Call(cmd.Context(), http.MethodGet, path, nil, &list); err != nil {
		return err
	}
	if c.JSON {
		return output.JSON(cmd.OutOrStdout(), list.Items)
	}
	return output.Table(cmd.OutOrStdout(), list.Items, columns)
}

// ThreadPath is the path of something of a thread in the API.
func ThreadPath(thread string, parts ...string) string {
	return "/api/threads/" + url.PathEscape(thread) + "/" + strings.Join(parts, "/")
}
