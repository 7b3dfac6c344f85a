package auth

import (
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
)

const (
	// maxKeys bounds the keys of a tenant, maxName the name of one in characters.
	maxKeys = 10_000
	maxName = 128
	// maxThreads bounds the threads that a key names.
	maxThreads = 100
)

// Key is a bearer key as it is stored and listed: without the secret, which is shown once, when the
// key is made.
type Key struct {
	ID           string       `json:"id"`
	Name         string       `json:"name"`
	Tenant       string       `json:"tenant"`
	User         string       `json:"user"`
	Admin        bool         `json:"admin"` // the role is admin
	Role         sandbox.Role `json:"role"`
	ActFor       bool         `json:"act_for"`                // may send On-Behalf-Of
	Capabilities []string     `json:"capabilities,omitempty"` // tools may require them
	Threads      []string     `json:"threads,omitempty"`      // the only threads it is good for: names, or "prefix*"
	CreatedAt    time.Time    `json:"created_at"`
	ExpiresAt    *time.Time   `json:"expires_at,omitempty"`
	LastUsedAt   *time.Time   `json:"last_used_at,omitempty"` // to half a minute; absent when never
	Hash         string       `json:"-"`                      // sha256 hex of the secret; the store keeps it as the record's name
	Parent       string       `json:"-"`                      // Hash of the key that this one was derived from; "": of none
}

// keyOf reads a stored key. One from before there were roles keeps what it could do: all that is its user's.
func keyOf(r store.KeyRecord) Key {
	k := Key(r)
	switch {
	case k.Role != "":
	case k.Admin:
		k.Role = sandbox.RoleAdmin
	default:
		k.Role = sandbox.RoleDeveloper
	}
	return k
}

// check says what is wrong with a key that is asked for, and puts in what was left out.
func (k *Key) check(now time.Time) error {
	if err := sandbox.CheckOwnerName("tenant", k.Tenant); err != nil {
		return err
	}
	if err := sandbox.CheckOwnerName("user", k.User); err != nil {
		return err
	}
	bad := func(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }
	if utf8.RuneCountInString(k.Name) > maxName || strings.ContainsFunc(k.Name, bad) {
		return sandbox.Errorf(sandbox.Invalid, "name: use at most %d printable characters", maxName)
	}
	if k.ExpiresAt != nil && !k.ExpiresAt.After(now) {
		return sandbox.Errorf(sandbox.Invalid, "expires_at: %s has passed", k.ExpiresAt.UTC().Format(time.RFC3339))
	}
	if err := k.checkRole(); err != nil {
		return err
	}
	var err error
	if k.Capabilities, err = sandbox.CheckCapabilities(k.Capabilities); err != nil {
		return err
	}
	return k.checkThreads()
}

func (k *Key) checkRole() error {
	switch {
	case k.Role == "" && k.Admin:
		k.Role = sandbox.RoleAdmin
	case k.Role == "":
		k.Role = sandbox.RoleAgent
	case !slices.Contains(sandbox.Roles(), k.Role):
		return sandbox.Errorf(sandbox.Invalid, "role: %.64q is not one of agent, developer, admin, auditor, pack", k.Role)
	case k.Admin && k.Role != sandbox.RoleAdmin:
		return sandbox.Errorf(sandbox.Invalid, "role: admin is true, and the role is %s", k.Role)
	}
	if k.ActFor && (k.Role == sandbox.RoleAuditor || k.Role == sandbox.RolePack) {
		return sandbox.Errorf(sandbox.Invalid, "act_for: the role %s cannot act for users", k.Role)
	}
	k.Admin = k.Role == sandbox.RoleAdmin
	return nil
}

func (k *Key) checkThreads() error {
	if len(k.Threads) > maxThreads {
		return sandbox.Errorf(sandbox.Invalid, "threads: at most %d", maxThreads)
	}
	if len(k.Threads) == 0 {
		k.Threads = nil
	}
	for _, p := range k.Threads {
		if name := strings.TrimSuffix(p, "*"); name == "" || sandbox.CheckThreadID(name) != nil {
			return sandbox.Errorf(sandbox.Invalid, "threads: %.140q is not a thread, nor the beginning of some, such as ci-*", p)
		}
	}
	if k.Threads != nil && k.Role == sandbox.RolePack {
		return sandbox.Errorf(sandbox.Invalid, "threads: a pack serves all threads of its tenant")
	}
	if k.Threads != nil && k.Role == sandbox.RoleAuditor {
		return sandbox.Errorf(sandbox.Invalid, "threads: an auditor reads the audit log, which is not a thread's")
	}
	return nil
}
