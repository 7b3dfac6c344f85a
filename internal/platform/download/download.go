// Package download reads what is at an address of the internet that a user named. An address of a private
// network is refused unless the operator allows it: before it is asked, at each redirect, and when a
// connection is made.
package download

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/egress"
)

const (
	maxRedirects  = 5
	answerTimeout = 30 * time.Second
)

// Client asks addresses. All methods may be called at the same time.
type Client struct {
	http      *http.Client
	addresses []netip.Prefix // that may be reached besides the public internet
}

// New makes a client that reaches these networks besides the public internet. Only these may be reached by
// http.
func New(addresses []netip.Prefix) *Client {
	c := &Client{addresses: addresses}
	c.http = &http.Client{
		Transport: &http.Transport{
			DialContext: egress.PublicDialer(addresses).DialContext, TLSHandshakeTimeout: 10 * time.Second,
			ResponseHeaderTimeout: answerTimeout, MaxIdleConnsPerHost: 1, IdleConnTimeout: 10 * time.Second,
		},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) > maxRedirects {
				return sandbox.Errorf(sandbox.Invalid, "more than %d redirects", maxRedirects)
			}
			return c.Allow(r.URL)
		},
	}
	return c
}

// HTTP is the client of all requests. It checks redirects and connections; Allow is for the first address.
func (c *Client) HTTP() *http.Client { return c.http }

// Close ends connections that are kept.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// Allow refuses addresses before they are asked. Forbidden, Invalid, NotSupported.
func (c *Client) Allow(u *url.URL) error {
	a, err := netip.ParseAddr(u.Hostname())
	named := err == nil && slices.ContainsFunc(c.addresses, func(p netip.Prefix) bool { return p.Contains(a.Unmap()) })
	switch {
	case u.Host == "":
		return sandbox.Errorf(sandbox.Invalid, "the address has no host")
	case u.Scheme == "http" && !named:
		return sandbox.Errorf(sandbox.Forbidden, "only https is allowed, but for addresses that the server is configured for")
	case u.Scheme != "http" && u.Scheme != "https":
		return sandbox.Errorf(sandbox.NotSupported, "%.20q is no address that is fetched from", u.Scheme)
	}
	return nil
}

// Fetch returns what is at an address; the caller closes it and bounds what it reads. Forbidden, Invalid,
// NotFound, NotSupported, Timeout, Unavailable.
func (c *Client) Fetch(ctx context.Context, address string) (io.ReadCloser, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "the address is no URL")
	}
	if err := c.Allow(u); err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "the address is no URL")
	}
	res, err := c.http.Do(r)
	var whole *url.Error
	if errors.As(err, &whole) { // it has the address, whose query may be a secret
		err = whole.Err
	}
	var known *sandbox.Error
	var timeout net.Error
	switch {
	case err == nil:
	case egress.Refused(err):
		return nil, Explain(err)
	case errors.As(err, &known):
		return nil, known
	case ctx.Err() != nil || whole != nil && whole.Timeout() || errors.As(err, &timeout) && timeout.Timeout():
		return nil, sandbox.Wrap(sandbox.Timeout, err, "the address took too long")
	default:
		return nil, sandbox.Wrap(sandbox.Unavailable, err, "the address cannot be reached")
	}
	if res.StatusCode == http.StatusOK {
		return res.Body, nil
	}
	kind := sandbox.Unavailable
	if res.StatusCode < http.StatusInternalServerError {
		kind = sandbox.NotFound
	}
	return nil, errors.Join(sandbox.Errorf(kind, "the address answers with status %d", res.StatusCode), res.Body.Close())
}

// Explain makes the refusal of a connection an error for callers. Other errors stay as they are.
func Explain(err error) error {
	if egress.Refused(err) {
		return sandbox.Wrap(sandbox.Forbidden, err, "the address leads to a private network, which the server is not configured for")
	}
	return err
}

// Shown is an address without credentials and query, "" for a text that is none: what lists and logs have of
// it.
func Shown(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}
