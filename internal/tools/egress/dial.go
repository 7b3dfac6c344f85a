package egress

import (
	"errors"
	"net"
	"net/netip"

	"code.dny.dev/ssrf"
)

// PublicDialer makes a Dialer that reaches addresses of the public internet, and the ones in allowed. It
// refuses private, loopback, link-local (the metadata services of clouds), multicast and other special
// addresses. It does so at the moment of the connection, after the name was resolved: a name that answers
// differently the next time gains nothing.
func PublicDialer(allowed []netip.Prefix) *net.Dialer {
	var v4, v6 []netip.Prefix
	for _, p := range allowed {
		if p.Addr().Is4() {
			v4 = append(v4, p)
		} else {
			v6 = append(v6, p)
		}
	}
	guard := ssrf.New(ssrf.WithAnyPort(), ssrf.WithAllowedV4Prefixes(v4...), ssrf.WithAllowedV6Prefixes(v6...),
		ssrf.WithDeniedV4Prefixes(netip.MustParsePrefix("224.0.0.0/4")))
	return &net.Dialer{Timeout: dialWait, Control: guard.Safe}
}

// Refused reports whether a connection failed because PublicDialer does not reach its address.
func Refused(err error) bool {
	return errors.Is(err, ssrf.ErrProhibitedIP) || errors.Is(err, ssrf.ErrProhibitedNetwork) || errors.Is(err, ssrf.ErrProhibitedPort)
}
