package exchange

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/api/rest/problem"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Guard keeps web pages away. A page in a browser on the same machine could otherwise send requests to a
// server without authentication. It could use its own origin, or a DNS name that it points here.
type Guard struct {
	hosts      map[string]bool // "name" (any port) or "name:port"
	anyHost    bool
	origins    map[string]bool // "https://name[:port]"
	loopOrigin bool            // no list: pages of this machine may call
}

// NewGuard returns the guard for hosts ("name", "name:port" or "*") and origins ("https://name[:port]").
func NewGuard(hosts, origins []string) (*Guard, error) {
	g := &Guard{hosts: map[string]bool{}, origins: map[string]bool{}, loopOrigin: len(origins) == 0}
	for _, h := range hosts {
		if h == "*" {
			g.anyHost = true
			continue
		}
		if h == "" || strings.ContainsAny(h, "/@ ") {
			return nil, sandbox.Errorf(sandbox.Invalid, "allowed host %q: write a name, or name:port", h)
		}
		g.hosts[strings.ToLower(h)] = true
	}
	for _, o := range origins {
		u, err := url.Parse(o)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.Path != "" {
			return nil, sandbox.Errorf(sandbox.Invalid, "allowed origin %q: write https://name or http://name:port", o)
		}
		g.origins[strings.ToLower(o)] = true
	}
	return g, nil
}

// check says why a request may not be answered. It adds the headers that let an allowed page of
// another origin read the answer.
func (g *Guard) check(w http.ResponseWriter, r *http.Request) *problem.Problem {
	if !g.hostOK(r.Host) {
		return problem.New(sandbox.Forbidden, "this server does not answer for that Host; add it to the allowed hosts")
	}
	origins := r.Header["Origin"]
	if len(origins) == 0 {
		return nil
	}
	if len(origins) > 1 {
		return problem.New(sandbox.Forbidden, "more than one Origin")
	}
	origin := strings.ToLower(origins[0])
	if g.origins[origin] {
		w.Header().Set("Access-Control-Allow-Origin", origins[0])
		w.Header().Set("Access-Control-Expose-Headers", "X-Request-Id, ETag, Retry-After, Idempotent-Replayed")
		w.Header().Add("Vary", "Origin")
		return nil
	}
	u, err := url.Parse(origin)
	if err == nil && (u.Scheme == "http" || u.Scheme == "https") {
		if u.Host == strings.ToLower(r.Host) || g.loopOrigin && loopback(hostName(u.Host)) {
			return nil
		}
	}
	return problem.New(sandbox.Forbidden, "pages of that Origin may not call this server; add it to the allowed origins")
}

// preflight answers the question of a browser whether an allowed page may send a request.
func (g *Guard) preflight(w http.ResponseWriter, r *http.Request) bool {
	if r.Header.Get("Access-Control-Request-Method") == "" || w.Header().Get("Access-Control-Allow-Origin") == "" {
		return false
	}
	w.Header().Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, DELETE")
	w.Header().Set("Access-Control-Allow-Headers",
		"Authorization, X-API-Key, On-Behalf-Of, Idempotency-Key, Idempotency-Age, Content-Type, Last-Event-ID, X-Request-Id, Skerry-Thread, Range, If-Match, If-None-Match")
	w.Header().Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}

func (g *Guard) hostOK(host string) bool {
	if host == "" {
		return false
	}
	if g.anyHost {
		return true
	}
	name := hostName(host)
	if loopback(name) {
		return true
	}
	if len(g.hosts) == 0 {
		return false
	}
	return g.hosts[name] || g.hosts[strings.ToLower(host)]
}

// hostName is a Host header without its port, in lower case.
func hostName(host string) string {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
	}
	return strings.ToLower(strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"), "."))
}

func loopback(name string) bool {
	if name == "localhost" || name == "127.0.0.1" {
		return true
	}
	ip, err := netip.ParseAddr(name)
	return err == nil && ip.IsLoopback()
}
