// Package oidc identifies the sender of a signed token of an identity provider. It checks the token against
// the provider's published keys, and reads tenant, user, role and capabilities from its claims.
//
// A token cannot choose how it is checked. Its key comes from the configured issuer alone (never from jwk,
// jku or x5u); its algorithm must be allowed there and fit the key.
//
// Locks: keySet.mu guards the keys of an issuer. Nothing is asked of the issuer while it is held: one
// goroutine asks, and those who wait hold no lock.
package oidc
