package mcpstdio

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
)

// Headers of the protocol.
const (
	sessionHeader = "Mcp-Session-Id"
	versionHeader = "MCP-Protocol-Version"
	methodHeader  = "Mcp-Method"
	nameHeader    = "Mcp-Name"
	lastEvent     = "Last-Event-ID"
	// metaVersion is where a request of the era without sessions names its version.
	metaVersion = "io.modelcontextprotocol/protocolVersion"
)

// errNoSession is that the server does not know the session any more.
var errNoSession = errors.New("the server does not know the session any more")

// send sends a message. In a session that the server has lost it is sent again, in a new one.
func (b *Bridge) send(ctx context.Context, m *message) error {
	at := b.session.state()
	err := b.post(ctx, m, at)
	if !errors.Is(err, errNoSession) || m.Method == "initialize" {
		return err
	}
	if err := b.session.renew(ctx, b, at.number); err != nil {
		return err
	}
	return b.post(ctx, m, b.session.state())
}

// aboutRequest is what the headers of a request repeat of its parameters.
type aboutRequest struct {
	Name      string                     `json:"name"`
	URI       string                     `json:"uri"`
	Arguments map[string]json.RawMessage `json:"arguments"`
	Meta      map[string]json.RawMessage `json:"_meta"`
}

// post sends a message once, and passes on what is answered.
func (b *Bridge) post(ctx context.Context, m *message, at state) error {
	req, err := b.request(ctx, http.MethodPost, bytes.NewReader(m.raw))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	var p aboutRequest
	_ = json.Unmarshal(m.Params, &p) // what has no such members has no such headers
	var version string
	if json.Unmarshal(p.Meta[metaVersion], &version) == nil && version != "" { // the era without sessions
		req.Header.Set(versionHeader, version)
		req.Header.Set(methodHeader, m.Method)
		if name := cmp.Or(p.Name, p.URI); name != "" {
			req.Header.Set(nameHeader, name)
		}
		if m.Method == "tools/call" {
			b.params.set(req.Header, p.Name, p.Arguments)
		}
	} else if m.Method != "initialize" {
		at.set(req.Header)
	}
	res, err := b.do(req) //nolint:bodyclose // it is closed below, whichever function reads it
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusNotFound && req.Header.Get(sessionHeader) != "" {
		return errNoSession
	}
	pass := b.out.write
	if m.Method == "tools/list" {
		pass = func(msg []byte) { b.params.learn(msg); b.out.write(msg) }
	}
	if m.Method == "initialize" {
		pass = func(msg []byte) { b.session.begin(m.raw, msg, res.Header.Get(sessionHeader)); b.out.write(msg) }
	}
	return passOn(res, m, pass)
}

// passOn passes on the messages of an answer.
func passOn(res *http.Response, m *message, pass func([]byte)) error {
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")) //nolint:errcheck // then it is none of these
	switch {
	case kind == "text/event-stream" && res.StatusCode == http.StatusOK:
		answered := false
		_, err := events(res.Body, func(data []byte) {
			answered = answered || answers(data, m.ID)
			pass(data)
		})
		if err == nil && !answered && m.isRequest() {
			err = errors.New("the server ended its answer early; the request may have been done")
		}
		return err
	case res.StatusCode == http.StatusAccepted || res.StatusCode == http.StatusNoContent:
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return fmt.Errorf("the answer broke off: %w", err)
	case len(text) > maxAnswer:
		return fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	case kind == "application/json" && m.isRequest() && answers(text, m.ID):
		pass(text)
		return nil
	case res.StatusCode >= http.StatusBadRequest:
		return refusal(res, text)
	}
	return nil
}

// answers reports whether a message is the answer to the request with this id.
func answers(msg []byte, id json.RawMessage) bool {
	var m struct {
		message
		Result json.RawMessage `json:"result"`
		Error  json.RawMessage `json:"error"`
	}
	return json.Unmarshal(msg, &m) == nil && m.Method == "" && (m.Result != nil || m.Error != nil) && bytes.Equal(m.ID, id)
}

// maxRefusal bounds what is shown of an error that is no problem document.
const maxRefusal = 300

// refusal is the error of an answer with a status of 400 and up.
func refusal(res *http.Response, text []byte) error {
	var p struct {
		Code   string `json:"code"`
		Detail string `json:"detail"`
	}
	if json.Unmarshal(text, &p) == nil && p.Code != "" {
		return fmt.Errorf("%s: %s", p.Code, p.Detail)
	}
	text = bytes.TrimSpace(text)
	return fmt.Errorf("the server answered %s: %s", res.Status, text[:min(len(text), maxRefusal)])
}

func (b *Bridge) request(ctx context.Context, method string, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, b.o.Endpoint, body)
	if err != nil {
		return nil, err
	}
	for name, values := range b.o.Header {
		req.Header[name] = values
	}
	return req, nil
}

// do sends a request, and tells a person when the server is away.
func (b *Bridge) do(req *http.Request) (*http.Response, error) {
	res, err := b.o.HTTP.Do(req)
	if err != nil {
		if req.Context().Err() == nil {
			err = fmt.Errorf("the server does not answer: %w", err)
			b.report(err)
		}
		return nil, err
	}
	b.report(nil)
	return res, nil
}
