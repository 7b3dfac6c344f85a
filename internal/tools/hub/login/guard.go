package login

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"code.dny.dev/ssrf"
)

// Limits of a request to an authorization server or for metadata.
const (
	requestTimeout = 15 * time.Second
	dialTimeout    = 10 * time.Second
	maxBody        = 1 << 20
	maxHeaders     = 64 << 10
	maxRedirects   = 3
)

// A server's metadata says which addresses are asked next, so a hostile server could have the hub ask
// whatever the hub can reach. guard lets it reach public addresses, and others only of the kind that the
// MCP server itself is at: who configured a server on this host, or in this network, meant that.
type guard struct {
	target       *url.URL // of the MCP server
	allowPrivate bool
	confined     bool           // the target's own address is no exception
	within       []netip.Prefix // that confined may reach besides the public internet
	resolver     *net.Resolver
	direct       *http.Transport
	proxied      *http.Transport
	proxy        func(*http.Request) (*url.URL, error)
}

var (
	errAddress  = errors.New("it leads to an address that is not on the public internet (allow_private permits that)")
	errPlain    = errors.New("it does not use https")
	errRedirect = errors.New("it redirects where it must not")
)

var (
	loopback = prefixes("127.0.0.0/8", "::1/128")
	private  = prefixes("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
	// Of private ranges, and yet where clouds hand out credentials of machines.
	metadata = prefixes("100.100.100.200/32", "fd00:ec2::254/128", "fd20:ce::254/128")
)

func prefixes(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, t := range texts {
		list[i] = netip.MustParsePrefix(t)
	}
	return list
}

func within(list []netip.Prefix, ip netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// newClient returns the client for all that concerns one server's tokens.
func newClient(target *url.URL, o Options) *http.Client {
	g := &guard{target: target, allowPrivate: o.Settings.AllowPrivate, resolver: net.DefaultResolver, proxy: http.ProxyFromEnvironment}
	if o.Confined {
		g.confined, g.within, g.allowPrivate = true, o.Within, false
		g.proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	}
	g.direct = &http.Transport{
		DialContext: g.dial, TLSHandshakeTimeout: dialTimeout, ForceAttemptHTTP2: true,
		MaxResponseHeaderBytes: maxHeaders, DisableKeepAlives: true, ResponseHeaderTimeout: requestTimeout,
	}
	g.proxied = g.direct.Clone()
	g.proxied.Proxy, g.proxied.DialContext = func(r *http.Request) (*url.URL, error) { return g.proxy(r) }, (&net.Dialer{Timeout: dialTimeout}).DialContext
	return &http.Client{Transport: g, Timeout: requestTimeout, CheckRedirect: checkRedirect}
}

// checkRedirect follows questions for metadata only: what carries a secret goes where it was meant to.
func checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects || via[0].Method != http.MethodGet || via[len(via)-1].URL.Scheme == "https" && req.URL.Scheme != "https" {
		return errRedirect
	}
	return nil
}

// RoundTrip implements http.RoundTripper.
func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	if !g.mayBePlain(req.URL) && req.URL.Scheme != "https" {
		return nil, errPlain
	}
	transport := g.direct
	through, err := g.proxy(req)
	if err != nil {
		return nil, err
	}
	if through != nil {
		if err := g.checkName(req.Context(), req.URL.Hostname()); err != nil {
			return nil, err
		}
		transport = g.proxied
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	res.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(res.Body, maxBody), res.Body}
	return res, nil
}

// mayBePlain: secrets go over http within this machine, and where the configuration allows it. They also go
// so to the host of an MCP server that is itself reached so, and nowhere else.
func (g *guard) mayBePlain(u *url.URL) bool {
	return u.Scheme == "http" && (g.allowPrivate || isLoopback(u.Hostname()) || g.target.Scheme == "http" && strings.EqualFold(u.Hostname(), g.target.Hostname()))
}

func isLoopback(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().IsLoopback()
	}
	return strings.EqualFold(host, "localhost")
}

func (g *guard) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := &net.Dialer{Timeout: dialTimeout, Resolver: g.resolver, Control: func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("%w: %w", errAddress, err)
		}
		return g.check(ctx, at.Addr())
	}}
	return d.DialContext(ctx, network, address)
}

// checkName checks a host that a proxy will resolve. The proxy judges a host that is unknown here.
func (g *guard) checkName(ctx context.Context, host string) error {
	all, err := g.resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	for _, ip := range all {
		if err := g.check(ctx, ip); err != nil {
			return err
		}
	}
	return nil
}

// check says whether an address may be connected to.
func (g *guard) check(ctx context.Context, ip netip.Addr) error {
	ip = ip.Unmap().WithZone("")
	own, err := g.resolver.LookupNetIP(ctx, "ip", g.target.Hostname())
	if err != nil {
		own = nil // then it is at no special address
	}
	var allowed []netip.Prefix
	if g.confined {
		own, allowed = nil, slices.Clone(g.within)
	}
	if g.allowPrivate {
		allowed = slices.Concat(private, loopback)
	}
	denied := within(metadata, ip)
	for _, o := range own {
		switch o = o.Unmap().WithZone(""); {
		case o == ip:
			allowed, denied = append(allowed, netip.PrefixFrom(ip, ip.BitLen())), false
		case o.IsLoopback():
			allowed = append(allowed, loopback...)
		case within(private, o):
			allowed = append(allowed, private...)
		}
	}
	is4 := func(p netip.Prefix) bool { return p.Addr().Is4() }
	is6 := func(p netip.Prefix) bool { return p.Addr().Is6() }
	err = ssrf.New(ssrf.WithAnyPort(), ssrf.WithDeniedV4Prefixes(netip.MustParsePrefix("224.0.0.0/4")),
		ssrf.WithAllowedV4Prefixes(slices.DeleteFunc(slices.Clone(allowed), is6)...),
		ssrf.WithAllowedV6Prefixes(slices.DeleteFunc(slices.Clone(allowed), is4)...)).SafeAddr(ip)
	if denied || err != nil {
		return errAddress
	}
	return nil
}
