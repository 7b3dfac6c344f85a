package skerry

import (
	"log/slog"
	"net/http"
	"sync"
)

// maxWarned bounds what is remembered of routes that a server calls deprecated.
const maxWarned = 1000

var warned struct {
	mu     sync.Mutex
	routes map[string]bool
}

// warnDeprecated logs once a route that the server calls deprecated (RFC 9745). Its header Link names the route.
func warnDeprecated(r Request, h http.Header) {
	since := h.Get("Deprecation")
	if since == "" {
		return
	}
	route := h.Get("Link")
	if route == "" {
		route = r.Method
	}
	warned.mu.Lock()
	first := !warned.routes[route] && len(warned.routes) < maxWarned
	if first {
		if warned.routes == nil {
			warned.routes = map[string]bool{}
		}
		warned.routes[route] = true
	}
	warned.mu.Unlock()
	if first {
		slog.Warn("skerry: the server deprecates a route that this program uses", "method", r.Method, "path", r.Path, "deprecation", since, "sunset", h.Get("Sunset"), "link", h.Get("Link"))
	}
}
