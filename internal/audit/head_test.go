package audit

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"

	"github.com/skerry-sandbox/skerry/internal/audit/record"
	"github.com/skerry-sandbox/skerry/internal/audit/verify"
)

// seedKey signs with a key made of a number.
type seedKey struct{ ed25519.PrivateKey }

func testKey(n byte) seedKey {
	seed := sha256.Sum256([]byte{n})
	return seedKey{ed25519.NewKeyFromSeed(seed[:])}
}

func (k seedKey) public() verify.PublicKey {
	pub := k.Public().(ed25519.PublicKey) //nolint:forcetypeassert // it is
	return verify.PublicKey{ID: record.KeyID(pub), Key: pub}
}

func (k seedKey) Sign(_ context.Context, h Head) (Head, error) {
	h.Signer = k.public().ID
	h.Signature = ed25519.Sign(k.PrivateKey, h.Text())
	return h, nil
}
