package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/skerry-sandbox/skerry/internal/platform/buildinfo"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/argform"
	sdk "github.com/skerry-sandbox/skerry/sdk/go"
)

// apiClient calls the public API of a server.
type apiClient struct {
	server string
	key    string
	json   bool
}

// Limits of what is believed of a server.
const (
	maxAnswer   = 64 << 20
	dialTimeout = 10 * time.Second
)

// callTimeout bounds a call that is waited for: of tools that take long, and of installations.
const callTimeout = time.Hour

// client is that of the Go SDK. A person who waits is told at once that no server runs.
func (c *apiClient) client() *sdk.Client {
	return sdk.New(c.server, sdk.Options{Key: c.key, UserAgent: "skerry/" + buildinfo.Version(), Timeout: callTimeout, Wait: callTimeout, Patience: -1})
}

// request sends a request whose answer the caller reads and closes.
func (c *apiClient) request(ctx context.Context, r sdk.Request) (*http.Response, error) {
	res, err := c.client().Do(ctx, r)
	return res, explain(err)
}

// call sends body and decodes the answer into out, which may be nil.
func (c *apiClient) call(ctx context.Context, method, path string, body, out any) error {
	return explain(c.client().Call(ctx, sdk.Request{Method: method, Path: path, Body: body}, out))
}

// callOnce is call for what must not be done twice.
func (c *apiClient) callOnce(ctx context.Context, method, path string, body, out any) error {
	return explain(c.client().Call(ctx, sdk.Request{Method: method, Path: path, Body: body, Once: true}, out))
}

// send sends what is no JSON and decodes the answer into out.
func (c *apiClient) send(ctx context.Context, path, contentType string, content io.Reader, out any) error {
	return explain(c.client().Call(ctx, sdk.Request{Method: http.MethodPost, Path: path, Content: content, ContentType: contentType}, out))
}

// explain adds to an error of the server the kind that the command line looks at, and says what may be
// wrong when none answered.
func explain(err error) error {
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

// execResult is an exec as the API shows it.
type execResult = sdk.Result

// stream runs something, writes its output as it comes, and returns its result.
func stream(events iter.Seq2[sdk.Event, error], stdout, stderr io.Writer) (*execResult, error) {
	for e, err := range events {
		if err != nil {
			return nil, explain(err)
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

// printJSON writes v for a program to read.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// ending is how an exec that ended otherwise than by itself ends the command line.
func ending(r *execResult) error {
	if r.ExitCode == nil && r.Context != nil {
		return fmt.Errorf("the exec ended by %s after %d ms; its context is %s: %s", r.Status, r.DurationMillis, r.Context.State, r.Context.Detail)
	}
	if r.ExitCode == nil {
		return fmt.Errorf("the exec ended by %s after %d ms", r.Status, r.DurationMillis)
	}
	if *r.ExitCode != 0 {
		return exitCode(*r.ExitCode)
	}
	return nil
}
