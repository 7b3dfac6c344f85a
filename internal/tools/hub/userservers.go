package hub

import (
	"net/netip"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/serverconfig"
)

// This file is about users' own servers, from plugins. Each belongs to one user and is on no surface of
// another one. The configuration file goes before them: they never replace, rename or hide a server of it. Their values are
// their user's, a program of theirs runs in a sandbox and nowhere else, and their addresses are public ones.

// UserServers says where the servers of users come from.
type UserServers struct {
	// Of returns those of a user, as of now. It is asked often: as long as nothing changes it returns the same pointer.
	Of func(sandbox.Owner) (*sandbox.UserServers, error)
	// Addresses may be connected to besides the public internet.
	Addresses []netip.Prefix
	// Egress are the hosts that their programs may reach: see package egress.
	Egress []string
}

// maxUsers bounds the users whose configuration is kept.
const maxUsers = 10_000

// users keeps what the configuration is for each user.
type users struct {
	mu  sync.Mutex
	all map[sandbox.Owner]*userConfig
}

// userConfig is the configuration of one user: the file's, and the user's own.
type userConfig struct {
	file   *serverconfig.Set
	list   *sandbox.UserServers
	config *serverconfig.Set
	used   time.Time
	failed string // why the list was not to be had the last time
}

// configOf returns the configuration in force for a user, after a look at everything that it comes from.
func (h *Hub) configOf(o sandbox.Owner) *serverconfig.Set { return h.userConfig(o, time.Now()) }

// userConfig does the work of configOf. The zero time says that the caller only looks, and does not use it.
func (h *Hub) userConfig(o sandbox.Owner, now time.Time) *serverconfig.Set {
	file := h.config()
	if h.o.UserServers.Of == nil {
		return file
	}
	list, err := h.o.UserServers.Of(o)
	h.users.mu.Lock()
	u := h.users.all[o]
	if u == nil {
		u = &userConfig{}
	}
	if !now.IsZero() {
		u.used = now
	}
	if err != nil { // fail closed: the file's alone
		list = nil
		if text := err.Error(); text != u.failed {
			u.failed = text
			h.o.Log.Error("MCP servers of plugins: not known", "tenant", o.Tenant, "user", o.User, "error", err)
		}
	} else {
		u.failed = ""
	}
	if u.config != nil && u.file == file && u.list == list {
		h.users.mu.Unlock()
		return u.config
	}
	known := u.config != nil
	u.file, u.list, u.config = file, list, serverconfig.Merge(file, list, h.o.UserServers.Egress)
	if h.users.all == nil || len(h.users.all) >= maxUsers {
		h.users.all = map[sandbox.Owner]*userConfig{}
	}
	h.users.all[o] = u
	cfg := u.config
	h.users.mu.Unlock()
	if known {
		h.retireOf(o, cfg)
	}
	h.changes.bump(known)
	return cfg
}

// retireOf closes a user's connections to removed servers of their own.
func (h *Hub) retireOf(o sandbox.Owner, cfg *serverconfig.Set) {
	h.retire(func(c *conn) bool {
		if c.cfg.User == nil || c.key.scope.Tenant != o.Tenant || c.key.scope.User != o.User {
			return false
		}
		s := cfg.ByName[c.key.server]
		return s == nil || s.Err != nil || !c.cfg.SameDial(s)
	})
}

// LookAgain looks at the servers of all users that are known here: what has changed is in force, and told, when it returns.
func (h *Hub) LookAgain() { h.lookAgain(time.Time{}) }

// lookAgain looks at the servers of those who were here since then.
func (h *Hub) lookAgain(since time.Time) {
	h.users.mu.Lock()
	var owners []sandbox.Owner
	for o, u := range h.users.all {
		if !u.used.Before(since) {
			owners = append(owners, o)
		}
	}
	h.users.mu.Unlock()
	for _, o := range owners {
		h.userConfig(o, time.Time{})
	}
}

// mindUsers looks at the servers of users who were here a short while ago, because another process may change
// them, and forgets who was not here for long.
func (h *Hub) mindUsers(now time.Time) {
	if h.o.UserServers.Of == nil {
		return
	}
	h.users.mu.Lock()
	for o, u := range h.users.all {
		if now.Sub(u.used) > forgetAfter {
			delete(h.users.all, o)
		}
	}
	h.users.mu.Unlock()
	h.lookAgain(now.Add(-retryFor))
}
