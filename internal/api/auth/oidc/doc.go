// Package oidc says who sends a signed token of an identity provider: it checks the token against the
// provider's published keys, and reads tenant, user, role and capabilities out of its claims.
//
// What a token says of how it is to be checked is not followed: its key comes from the configured issuer alone
// (never from jwk, jku or x5u), and its algorithm must be allowed there and fit the key.
//
// Locks: keySet.mu guards the keys of an issuer. Nothing is asked of the issuer while it is held: one
// goroutine asks, and those who wait hold no lock.
package oidc
