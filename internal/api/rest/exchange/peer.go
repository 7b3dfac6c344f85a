package exchange

import (
	"context"
	"net"
	"net/http"
	"strings"
)

// SourceHeader says, between servers, where a request comes from. From other senders it is ignored.
const SourceHeader = "Skerry-Forwarded-Source"

type fromPeerKey struct{}

// FromPeer makes the handler for the socket of the other servers: what they pass on was checked there for
// Host and Origin, and goes no further.
func FromPeer(api http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if source := r.Header.Get(SourceHeader); source != "" {
			r.RemoteAddr = net.JoinHostPort(source, "0")
		}
		r.Header.Del(SourceHeader)
		api.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), fromPeerKey{}, true)))
	})
}

// IsFromPeer reports whether another server passed the request on.
func IsFromPeer(r *http.Request) bool { return r.Context().Value(fromPeerKey{}) != nil }

// Source is the address of the peer. Forwarding headers are not believed.
func Source(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// UserAgent returns the beginning of what the client calls itself.
func UserAgent(r *http.Request) string {
	ua := r.UserAgent()
	if len(ua) > 200 {
		ua = strings.ToValidUTF8(ua[:200], "")
	}
	return ua
}
