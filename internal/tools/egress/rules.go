package egress

import (
	"net"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/net/idna"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Limits of a list.
const (
	maxRules    = 100
	maxHost     = 253 // of a name in the DNS
	defaultPort = 443
)

// Rules is a list of hosts that may be reached.
type Rules struct{ list []rule }

type rule struct {
	host string // lower case, ASCII; below: the part after "*."
	wild bool   // names below host, host itself not
	port uint16
}

// ParseRules reads a list such as ["api.example.com", "*.example.org", "example.net:8443"]. An entry
// without a port means 443. Errors (Invalid) name the entry: an address in place of a name, a wildcard
// in another place than the first label, a bad port.
func ParseRules(list []string) (Rules, error) {
	if len(list) > maxRules {
		return Rules{}, sandbox.Errorf(sandbox.Invalid, "egress: %d hosts, at most %d", len(list), maxRules)
	}
	var r Rules
	for _, text := range list {
		one, why := parseRule(text)
		if why != "" {
			return Rules{}, sandbox.Errorf(sandbox.Invalid, "egress: %.260q %s; write a host such as api.example.com, *.example.com or api.example.com:8443", text, why)
		}
		r.list = append(r.list, one)
	}
	return r, nil
}

func parseRule(text string) (r rule, why string) {
	host, port := text, uint16(defaultPort)
	if h, p, err := net.SplitHostPort(text); err == nil {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return rule{}, "has a bad port"
		}
		host, port = h, uint16(n)
	}
	rest, wild := strings.CutPrefix(host, "*.")
	name, ok := hostName(rest)
	switch {
	case !ok:
		return rule{}, "is not the name of a host"
	case wild && !strings.Contains(name, "."):
		return rule{}, "would allow a whole top-level domain"
	}
	return rule{host: name, wild: wild, port: port}, ""
}

// hostName is a name as it is compared: ASCII, lower case, without the dot at the end. An address is
// no name: what it stands for is not checked by name.
func hostName(s string) (string, bool) {
	name, err := idna.Lookup.ToASCII(strings.TrimSuffix(s, "."))
	if err != nil || name == "" || len(name) > maxHost {
		return "", false
	}
	name = strings.ToLower(name)
	if _, err := netip.ParseAddr(name); err == nil || numeric(name) {
		return "", false
	}
	return name, true
}

// numeric tells a name that a resolver may read as an address: 127.1, 0x7f.1, 2130706433.
func numeric(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	_, err := strconv.ParseUint(last, 0, 64)
	return err == nil
}

// Allow reports whether a connection to host:port is wanted. It returns the name to resolve.
func (r Rules) Allow(hostport string) (name string, port uint16, ok bool) {
	host, p, err := net.SplitHostPort(hostport)
	if err != nil {
		return "", 0, false
	}
	n, err := strconv.ParseUint(p, 10, 16)
	if err != nil {
		return "", 0, false
	}
	name, valid := hostName(host)
	if !valid {
		return "", 0, false
	}
	for _, one := range r.list {
		same := name == one.host && !one.wild || one.wild && strings.HasSuffix(name, "."+one.host)
		if same && one.port == uint16(n) {
			return name, uint16(n), true
		}
	}
	return "", 0, false
}

// Empty reports whether nothing may be reached.
func (r Rules) Empty() bool { return len(r.list) == 0 }
