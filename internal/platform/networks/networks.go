// Package networks reads lists of networks, as people write them into settings.
package networks

import (
	"fmt"
	"net/netip"
)

// Parse reads networks such as 10.1.0.0/16. A single address is a network of one. An error says what is wrong, and what
// would be right.
func Parse(list []string) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for _, text := range list {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			a, e := netip.ParseAddr(text)
			if e != nil {
				return nil, fmt.Errorf("%w; write networks such as 10.1.0.0/16", err)
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}
		all = append(all, p.Masked())
	}
	return all, nil
}
