package mcphub

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	dialTimeout = 10 * time.Second
	maxErrBody  = 64 << 10
	maxErrText  = 500 // characters of a server's message that are passed on
	maxHeaders  = 64 << 10
	// slack is what a message has around a result.
	slack = 64 << 10
)

// remote is the HTTP side of a server that is reached by a URL.
type remote struct {
	base    *http.Transport
	origin  *url.URL
	headers map[string]string
	limit   int // bytes of a result
}

// newRemote gives the transport for the SDK and what closes its idle connections.
func (s *serverConfig) newRemote(t *target, limit int) (mcp.Transport, *remote, error) {
	origin, err := url.Parse(t.url)
	if err != nil {
		return nil, nil, invalidField("url", "is not an http or https URL")
	}
	r := &remote{origin: origin, headers: t.headers, limit: limit, base: &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout: dialTimeout, ForceAttemptHTTP2: true,
		MaxIdleConnsPerHost: 32, IdleConnTimeout: 90 * time.Second, MaxResponseHeaderBytes: maxHeaders,
	}}
	client := &http.Client{Transport: r, CheckRedirect: r.checkRedirect}
	if s.Type == transportSSE {
		return &mcp.SSEClientTransport{Endpoint: t.url, HTTPClient: client}, r, nil
	}
	return &mcp.StreamableClientTransport{Endpoint: t.url, HTTPClient: client, MaxEventSize: limit + slack}, r, nil
}

// checkRedirect follows a server only to itself: another one must not get its credentials.
func (r *remote) checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) >= 5 || !r.isOrigin(req.URL) {
		return errRedirect
	}
	return nil
}

var errRedirect = errors.New("the server redirects to another one")

func (r *remote) isOrigin(u *url.URL) bool {
	return u.Scheme == r.origin.Scheme && u.Host == r.origin.Host
}

// RoundTrip implements http.RoundTripper: it adds the configured headers, bounds what comes back, and
// notes what the SDK does not tell: the status and text of an error, and the result as it was.
func (r *remote) RoundTrip(req *http.Request) (*http.Response, error) {
	if !r.isOrigin(req.URL) {
		return nil, errRedirect
	}
	req = req.Clone(req.Context())
	for k, v := range r.headers {
		req.Header.Set(k, v)
	}
	res, err := r.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	c := captureOf(req.Context())
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return res, r.noteError(res, c)
	}
	kind, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if err != nil || req.Method != http.MethodPost {
		return res, nil
	}
	call := callOf(req)
	switch kind {
	case "application/json":
		return res, r.bufferJSON(res, c, call)
	case "text/event-stream":
		res.Body = &eventBody{body: res.Body, limit: r.limit + slack, call: call, capture: c}
	}
	return res, nil
}

// noteError buffers the body of an error and notes what it says.
func (r *remote) noteError(res *http.Response, c *capture) error {
	body, err := io.ReadAll(io.LimitReader(res.Body, maxErrBody))
	_ = res.Body.Close()
	if err != nil {
		return err
	}
	res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	if c != nil && res.StatusCode >= 400 {
		c.setStatus(res.StatusCode, errorText(res, body))
	}
	return nil
}

// errorText finds the message in the body of an error: that of JSON-RPC, of problem+json, of the many
// {"error": …} and {"message": …}, or the body itself when it is a short plain text.
func errorText(res *http.Response, body []byte) string {
	var j struct {
		Error            json.RawMessage `json:"error"`
		Message          string          `json:"message"`
		Detail           string          `json:"detail"`
		ErrorDescription string          `json:"error_description"`
	}
	text := ""
	if json.Unmarshal(body, &j) == nil {
		var inner struct {
			Message string `json:"message"`
		}
		var plain string
		if json.Unmarshal(j.Error, &inner) != nil || inner.Message == "" {
			_ = json.Unmarshal(j.Error, &plain) // it stays "" when it is neither
		}
		for _, t := range []string{inner.Message, j.ErrorDescription, j.Detail, j.Message, plain} {
			if text == "" {
				text = t
			}
		}
	} else if strings.HasPrefix(res.Header.Get("Content-Type"), "text/plain") {
		text = string(body)
	}
	if text = oneLine(text); text == "" {
		text = http.StatusText(res.StatusCode)
	}
	return text
}

// oneLine makes a stranger's text fit into an error.
func oneLine(s string) string {
	return cut(strings.Join(strings.Fields(cut(s, 8*maxErrText)), " "), maxErrText)
}

// rpcCall is the request that a POST carries.
type rpcCall struct {
	id     json.RawMessage
	method string
}

func callOf(req *http.Request) rpcCall {
	if req.GetBody == nil {
		return rpcCall{}
	}
	body, err := req.GetBody()
	if err != nil {
		return rpcCall{}
	}
	defer body.Close()
	var msg struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	if err := json.NewDecoder(body).Decode(&msg); err != nil {
		return rpcCall{}
	}
	return rpcCall{msg.ID, msg.Method}
}

// bufferJSON reads an answer that is one message. One that is too large becomes an error of its call.
func (r *remote) bufferJSON(res *http.Response, c *capture, call rpcCall) error {
	body, err := io.ReadAll(io.LimitReader(res.Body, int64(r.limit+slack)+1))
	_ = res.Body.Close()
	if err != nil {
		return err
	}
	body = call.see(body, r.limit+slack, c)
	res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	res.Header.Del("Content-Length")
	return nil
}

// see looks at a message and gives what the SDK is to read in its place.
func (call rpcCall) see(body []byte, limit int, c *capture) []byte {
	if len(body) > limit {
		if c != nil {
			c.setTooLarge()
		}
		if call.id == nil {
			return []byte("null")
		}
		return tooLargeAnswer(call.id, limit)
	}
	if c == nil {
		return body
	}
	msg, err := jsonrpc.DecodeMessage(body)
	if err != nil {
		return body
	}
	res, ok := msg.(*jsonrpc.Response)
	if !ok || res.Error != nil || !sameID(res.ID, call.id) {
		return body
	}
	c.answer(res, call.method)
	if out, err := jsonrpc.EncodeMessage(res); err == nil {
		return out
	}
	return body
}

func sameID(id jsonrpc.ID, raw json.RawMessage) bool {
	text, err := json.Marshal(id.Raw())
	return err == nil && bytes.Equal(text, bytes.TrimSpace(raw))
}

// close gives the connections back.
func (r *remote) close() { r.base.CloseIdleConnections() }

// networkError says in a few words, without addresses, why a server was not reached.
func networkError(err error) string {
	var dns *net.DNSError
	var op *net.OpError
	switch {
	case errors.Is(err, errRedirect):
		return errRedirect.Error()
	case errors.As(err, &dns):
		return "its host name is not known"
	case errors.Is(err, context.DeadlineExceeded):
		return "it did not answer in time"
	case errors.As(err, &op) && op.Op == "dial":
		return "it does not accept connections"
	case isTLS(err):
		return "its TLS certificate is not trusted"
	}
	return "the connection failed"
}

func isTLS(err error) bool {
	text := fmt.Sprint(err)
	return strings.Contains(text, "tls: ") || strings.Contains(text, "x509: ")
}
