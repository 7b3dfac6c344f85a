package transport

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
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skerry-sandbox/skerry/internal/tools/egress"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/excerpt"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/login"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/serverconfig"
)

const (
	dialTimeout = 10 * time.Second
	maxErrBody  = 64 << 10
	maxHeaders  = 64 << 10
	// Slack is what a message has around a result.
	Slack = 64 << 10
)

// Remote is the HTTP side of a server that is reached by a URL.
type Remote struct {
	base    *http.Transport
	origin  *url.URL
	headers map[string]string
	traffic *Traffic
	login   *login.Client // nil: what the headers say is all
	old     bool          // the transport of 2024-11-05, which begins with a GET
}

// NewRemote returns the transport for the SDK and what closes its idle connections.
func NewRemote(s *serverconfig.Server, t *serverconfig.Target, traffic *Traffic) (mcp.Transport, *Remote, error) {
	origin, err := url.Parse(t.URL)
	if err != nil {
		return nil, nil, serverconfig.InvalidField("url", "is not an http or https URL")
	}
	r := &Remote{origin: origin, headers: t.Headers, traffic: traffic, old: s.Type == serverconfig.TransportSSE, base: &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout: dialTimeout, ForceAttemptHTTP2: true,
		MaxIdleConnsPerHost: 32, IdleConnTimeout: 90 * time.Second, MaxResponseHeaderBytes: maxHeaders,
	}}
	client := &http.Client{Transport: r, CheckRedirect: r.checkRedirect}
	if s.Type == serverconfig.TransportSSE {
		return &mcp.SSEClientTransport{Endpoint: t.URL, HTTPClient: client, MaxEventSize: traffic.limit + Slack}, r, nil
	}
	return &mcp.StreamableClientTransport{Endpoint: t.URL, HTTPClient: client, MaxEventSize: traffic.limit + Slack}, r, nil
}

// checkRedirect follows a server only to itself: another one must not get its credentials.
func (r *Remote) checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) >= 5 || !r.isOrigin(req.URL) {
		return errRedirect
	}
	return nil
}

var errRedirect = errors.New("the server redirects to another one")

func (r *Remote) isOrigin(u *url.URL) bool {
	return u.Scheme == r.origin.Scheme && u.Host == r.origin.Host
}

// RoundTrip implements http.RoundTripper: it adds the configured headers, bounds what comes back, and
// notes what the SDK does not tell: the status and text of an error, and the result as it was.
func (r *Remote) RoundTrip(req *http.Request) (*http.Response, error) {
	if !r.isOrigin(req.URL) {
		return nil, errRedirect
	}
	req = req.Clone(req.Context())
	for k, v := range r.headers {
		req.Header.Set(k, v)
	}
	c, call := CaptureOf(req.Context()), callOf(req)
	var id json.RawMessage
	if call != nil {
		if c != nil {
			r.traffic.await(call, c)
		}
		id, _ = json.Marshal(call.ID.Raw()) // a number or a string
	}
	res, err := r.send(req, c)
	if err != nil {
		return nil, err
	}
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")) // "" when it cannot be read
	switch {
	case res.StatusCode < 200 || res.StatusCode > 299:
		if req.Method != http.MethodPost && !r.old {
			c = nil // a stream that a server need not have says nothing about the request
		}
		if c != nil && res.StatusCode == http.StatusNotFound && req.Header.Get("Mcp-Session-Id") != "" {
			c.setForgot()
		}
		err = r.noteError(res, c)
	case kind == "application/json" && call != nil:
		err = r.bufferJSON(res, c, id)
	case kind == "text/event-stream":
		if call == nil {
			c = nil // a stream of its own, not that of the request whose context it has
		}
		res.Body = &eventBody{body: res.Body, traffic: r.traffic, id: id, by: c}
	}
	if err != nil {
		return nil, err
	}
	return res, nil
}

// send sends a request, with a token when there is one, and once more when another token may help.
func (r *Remote) send(req *http.Request, c *Capture) (*http.Response, error) {
	if r.login == nil {
		return r.base.RoundTrip(req)
	}
	for first := true; ; first = false {
		used, err := r.login.Sign(req.Context(), req)
		if err != nil {
			return nil, c.noLogin(0, err)
		}
		res, err := r.base.RoundTrip(req)
		if err != nil || res.StatusCode != http.StatusUnauthorized && res.StatusCode != http.StatusForbidden {
			return res, err
		}
		again, err := r.login.Refused(req.Context(), res, used, first)
		if err != nil {
			_ = res.Body.Close()
			return nil, c.noLogin(res.StatusCode, err)
		}
		if !again || !first || req.Body != nil && req.GetBody == nil {
			return res, nil
		}
		_, _ = io.CopyN(io.Discard, res.Body, maxErrBody) // the connection is used again
		_ = res.Body.Close()
		req = req.Clone(req.Context())
		req.Header.Del("Authorization")
		if req.GetBody != nil {
			if req.Body, err = req.GetBody(); err != nil {
				return nil, err
			}
		}
	}
}

// noLogin notes why a request fails and returns the error. Nothing is noted for a nil c.
func (c *Capture) noLogin(status int, err error) error {
	if c != nil {
		c.setLogin(status, err)
	}
	return err
}

// noteError buffers the body of an error and notes what it says.
func (r *Remote) noteError(res *http.Response, c *Capture) error {
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
	if text = excerpt.Line(text); text == "" {
		text = http.StatusText(res.StatusCode)
	}
	return text
}

// callOf returns the request that a POST carries, or nil when it carries something else.
func callOf(req *http.Request) *jsonrpc.Request {
	if req.Method != http.MethodPost || req.GetBody == nil {
		return nil
	}
	body, err := req.GetBody()
	if err != nil {
		return nil
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	if err != nil {
		return nil
	}
	msg, err := jsonrpc.DecodeMessage(text)
	if call, ok := msg.(*jsonrpc.Request); ok && err == nil && call.IsCall() {
		return call
	}
	return nil
}

// bufferJSON reads an answer that is one message. A message that is too large becomes an error of its call.
func (r *Remote) bufferJSON(res *http.Response, c *Capture, id json.RawMessage) error {
	body, err := io.ReadAll(io.LimitReader(res.Body, int64(r.traffic.limit)+1))
	_ = res.Body.Close()
	switch {
	case err != nil:
		return err
	case len(body) <= r.traffic.limit:
		body = r.traffic.text(body, c)
	case id == nil:
		body = []byte("null")
	default:
		body = r.traffic.skipped(id)
	}
	res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	res.Header.Del("Content-Length")
	return nil
}

// Close closes the idle connections.
func (r *Remote) Close() {
	r.base.CloseIdleConnections()
	if r.login != nil {
		r.login.Close()
	}
}

// NetworkError says in a few words, without addresses, why a server was not reached.
func NetworkError(err error) string {
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

// Confine makes a server reach public addresses, and those within, alone. A proxy would not, so there is none.
func (r *Remote) Confine(within []netip.Prefix) {
	r.base.Proxy = nil
	r.base.DialContext = egress.PublicDialer(within).DialContext
}

// SignWith adds the tokens of a login to requests. nil: what the headers say is all.
func (r *Remote) SignWith(c *login.Client) { r.login = c }
