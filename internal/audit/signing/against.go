package signing

import (
	"crypto/ed25519"

	"github.com/skerry-sandbox/skerry/internal/audit/verify"
)

// Against is what a log is verified against: the keys that go with a public one, and the heads that are kept.
func Against(dir string, public ed25519.PublicKey, keep string) (o verify.Options, err error) {
	if keep != "" {
		if o.Expect, err = Kept(keep, dir); err != nil {
			return o, err
		}
	}
	list, err := List(dir)
	if err != nil {
		return o, err
	}
	o.Keys = Trusted(list, public)
	return o, nil
}
