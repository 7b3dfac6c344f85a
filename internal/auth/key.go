// Package auth says who a caller is: bearer keys, kept only as hashes.
package auth

import "time"

// Key is a bearer key as it is stored and listed: without the secret, which is shown once, when the
// key is made.
type Key struct {
	ID        string     `json:"id"`
	Name      string     `json:"name"`
	Tenant    string     `json:"tenant"`
	User      string     `json:"user"`
	Admin     bool       `json:"admin"`
	ActFor    bool       `json:"act_for"` // may send On-Behalf-Of
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	Hash      string     `json:"-"` // sha256 hex of the secret; the store keeps it as the record's name
}
