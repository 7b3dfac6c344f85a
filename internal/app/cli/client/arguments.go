package client

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
	"github.com/skerry-sandbox/skerry/internal/platform/buildinfo"
)

// maxArguments bounds the arguments of a tool that are read, as the API bounds a request.
const maxArguments = 32 << 20

// ArgumentsHelp says what a flag with the arguments of a tool takes.
const ArgumentsHelp = "arguments as a JSON object, @FILE, or - to read them from standard input"

// Arguments reads the arguments of a tool: text is what the flag has. Without a text they are {}.
func Arguments(flag, text string, stdin io.Reader) (json.RawMessage, error) {
	raw := []byte(text)
	file, isFile := strings.CutPrefix(text, "@")
	switch {
	case text == "":
		return json.RawMessage("{}"), nil
	case isFile:
		f, err := os.Open(file)
		if err != nil {
			return nil, exit.With(exit.Usage, "%s: %w", flag, err)
		}
		defer f.Close() //nolint:errcheck // read-only
		stdin = f
	}
	if isFile || text == "-" {
		var err error
		if raw, err = io.ReadAll(io.LimitReader(stdin, maxArguments+1)); err != nil {
			return nil, exit.With(exit.Usage, "%s: %w", flag, err)
		}
		if len(raw) > maxArguments {
			return nil, exit.With(exit.Usage, "%s: more than %d bytes", flag, maxArguments)
		}
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(raw, &object); err != nil || object == nil {
		why := ""
		if err != nil {
			why = ": " + err.Error()
		}
		return nil, exit.With(exit.Usage, `%s wants a JSON object, such as '{"name": "Ada"}', in single quotes for the shell; a file is @FILE%s`, flag, why)
	}
	return bytes.TrimSpace(raw), nil
}

// Header is that of requests which the SDK does not make.
func (c *Client) Header() http.Header {
	h := http.Header{"User-Agent": {"skerry/" + buildinfo.Version()}}
	if c.Key != "" {
		h.Set("Authorization", "Bearer "+c.Key)
	}
	return h
}

// Transport sends requests with Header, for libraries that want a transport.
func (c *Client) Transport() http.RoundTripper { return withHeader{c.Header()} }

type withHeader struct{ header http.Header }

// RoundTrip implements http.RoundTripper.
func (w withHeader) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, values := range w.header {
		r.Header[name] = values
	}
	return http.DefaultTransport.RoundTrip(r)
}
