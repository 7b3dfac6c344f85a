package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/argform"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// apiClient calls the public API of a server.
type apiClient struct {
	server string
	key    string
	json   bool
}

// Limits of what is believed of a server.
const (
	maxAnswer    = 64 << 20
	maxEventLine = 2 << 20
	dialTimeout  = 10 * time.Second
)

// problem is an error of the API (RFC 9457).
type problem struct {
	Title  string `json:"title"`
	Detail string `json:"detail"`
	Code   string `json:"code"`
	Errors []struct {
		Field  string `json:"field"`
		Detail string `json:"detail"`
	} `json:"errors"`
}

func (c *apiClient) request(ctx context.Context, method, path string, body any, accept string) (*http.Response, error) {
	headers := http.Header{}
	if accept != "" {
		headers.Set("Accept", accept)
	}
	return c.requestWith(ctx, method, path, body, headers)
}

// requestWith sends headers besides; empty ones are left out.
func (c *apiClient) requestWith(ctx context.Context, method, path string, body any, headers http.Header) (*http.Response, error) {
	var in io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		in = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.server, "/")+path, in)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, values := range headers {
		if values[0] != "" {
			req.Header[name] = values
		}
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w\nIs a server running there? `skerry serve` starts one; --server names another address", err)
	}
	if res.StatusCode >= 400 {
		defer res.Body.Close()
		return nil, readProblem(res)
	}
	return res, nil
}

func readProblem(res *http.Response) error {
	var p problem
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil || json.Unmarshal(raw, &p) != nil || p.Code == "" {
		return fmt.Errorf("the server answered %s", res.Status)
	}
	text := p.Detail
	for _, e := range p.Errors {
		text += fmt.Sprintf("\n  %s: %s", e.Field, e.Detail)
	}
	return sandbox.Errorf(sandbox.Kind(p.Code), "%s (%s)", text, p.Code)
}

// call sends body and decodes the answer into out, which may be nil.
func (c *apiClient) call(ctx context.Context, method, path string, body, out any) error {
	res, err := c.request(ctx, method, path, body, "")
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if out == nil {
		return nil
	}
	return json.NewDecoder(io.LimitReader(res.Body, maxAnswer)).Decode(out)
}

// execResult is the part of an exec's result that the command line shows.
type execResult struct {
	ExecID      string  `json:"exec_id"`
	Status      string  `json:"status"`
	ExitCode    *int    `json:"exit_code"`
	Stdout      string  `json:"stdout"`
	Stderr      string  `json:"stderr"`
	Millis      int64   `json:"duration_ms"`
	StdoutPath  *string `json:"stdout_path"`
	ToolsCalled []struct {
		Tool   string `json:"tool"`
		Status string `json:"status"`
		Millis int64  `json:"ms"`
	} `json:"tools_called"`
	Files []struct {
		Path   string `json:"path"`
		Bytes  int64  `json:"bytes"`
		SHA256 string `json:"sha256"`
		Change string `json:"change"`
	} `json:"files"`
	// Of a run in a context.
	Results []richResult    `json:"results,omitempty"`
	Context *contextOutcome `json:"context,omitempty"`
}

// contextOutcome is what became of the context that code ran in.
type contextOutcome struct {
	ContextID string `json:"context_id"`
	State     string `json:"state"`
	Detail    string `json:"detail,omitempty"`
}

// stream sends body, writes the output of the exec as it comes, and returns its result.
func (c *apiClient) stream(ctx context.Context, path string, body any, stdout, stderr io.Writer) (execResult, error) {
	res, err := c.request(ctx, http.MethodPost, path, body, "text/event-stream")
	if err != nil {
		return execResult{}, err
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(make([]byte, 64<<10), maxAnswer)
	event := ""
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "event":
			event = value
		case "data":
			done, err := takeEvent(event, value, stdout, stderr)
			if done != nil || err != nil {
				return deref(done), err
			}
		}
	}
	return execResult{}, errors.Join(errors.New("the stream ended before the exec did"), lines.Err())
}

func deref(r *execResult) execResult {
	if r == nil {
		return execResult{}
	}
	return *r
}

// takeEvent writes one event's output. A result ends the stream.
func takeEvent(event, data string, stdout, stderr io.Writer) (*execResult, error) {
	switch event {
	case "stdout", "stderr":
		var out struct{ Data, Encoding string }
		if err := json.Unmarshal([]byte(data), &out); err != nil {
			return nil, err
		}
		raw := []byte(out.Data)
		if out.Encoding == "base64" {
			var err error
			if raw, err = base64.StdEncoding.DecodeString(out.Data); err != nil {
				return nil, err
			}
		}
		w := stdout
		if event == "stderr" {
			w = stderr
		}
		_, err := w.Write(raw)
		return nil, err
	case "approval_required":
		var a sandbox.Approval
		if err := json.Unmarshal([]byte(data), &a); err != nil {
			return nil, err
		}
		id := argform.Line(a.ID, 64)
		_, err := fmt.Fprintf(stderr, "skerry: %s waits for an approval: skerry approvals show %s, approve %s, deny %s\n", argform.Line(a.Tool, 200), id, id, id)
		return nil, err
	case "exit":
		var r execResult
		return &r, json.Unmarshal([]byte(data), &r)
	case "error":
		var p problem
		if err := json.Unmarshal([]byte(data), &p); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%s (%s)", p.Detail, p.Code)
	}
	return nil, nil
}

// printJSON writes v for a program to read.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// ending is how an exec that ended otherwise than by itself ends the command line.
func ending(r execResult) error {
	if r.ExitCode == nil && r.Context != nil {
		return fmt.Errorf("the exec ended by %s after %d ms; its context is %s: %s", r.Status, r.Millis, r.Context.State, r.Context.Detail)
	}
	if r.ExitCode == nil {
		return fmt.Errorf("the exec ended by %s after %d ms", r.Status, r.Millis)
	}
	if *r.ExitCode != 0 {
		return exitCode(*r.ExitCode)
	}
	return nil
}
