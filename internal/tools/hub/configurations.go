package hub

import (
	"log/slog"
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
	// Taken says which of the servers that many users have would be printed as name is; "": none. May be nil.
	Taken func(name string) string
}

// maxUsers bounds the users whose configuration is kept.
const maxUsers = 10_000

// configurations are what is in force: the file's, and for each user those with the user's own servers.
// When one changes, they close the connections that it does not want any more.
type configurations struct {
	file    *serverconfig.File
	users   UserServers
	pool    *pool
	changes *changes
	log     *slog.Logger

	mu  sync.Mutex
	all map[sandbox.Owner]*userConfig
}

// current returns the file's configuration in force, after a look at the file.
func (c *configurations) current() *serverconfig.Set {
	cfg, changed := c.file.Check(time.Now())
	if changed {
		c.pool.retireStale(cfg)
		c.changes.bump(true)
	}
	return cfg
}

// userConfig is the configuration of one user: the file's, and the user's own.
type userConfig struct {
	file   *serverconfig.Set
	list   *sandbox.UserServers
	config *serverconfig.Set
	used   time.Time
	failed string // why the list was not to be had the last time
}

// of returns the configuration in force for a user, after a look at everything that it comes from.
func (c *configurations) of(o sandbox.Owner) *serverconfig.Set { return c.look(o, time.Now()) }

// look does the work of of. The zero time says that the caller only looks, and does not use it.
func (c *configurations) look(o sandbox.Owner, now time.Time) *serverconfig.Set {
	file := c.current()
	if c.users.Of == nil {
		return file
	}
	list, err := c.users.Of(o)
	c.mu.Lock()
	u := c.all[o]
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
			c.log.Error("MCP servers of plugins: not known", "tenant", o.Tenant, "user", o.User, "error", err)
		}
	} else {
		u.failed = ""
	}
	if u.config != nil && u.file == file && u.list == list {
		c.mu.Unlock()
		return u.config
	}
	known := u.config != nil
	u.file, u.list, u.config = file, list, serverconfig.Merge(file, list, c.users.Egress)
	if c.all == nil || len(c.all) >= maxUsers {
		c.all = map[sandbox.Owner]*userConfig{}
	}
	c.all[o] = u
	cfg := u.config
	c.mu.Unlock()
	if known {
		c.pool.retireOf(o, cfg)
	}
	c.changes.bump(known)
	return cfg
}

// again looks at the servers of those who were here since then.
func (c *configurations) again(since time.Time) {
	c.mu.Lock()
	var owners []sandbox.Owner
	for o, u := range c.all {
		if !u.used.Before(since) {
			owners = append(owners, o)
		}
	}
	c.mu.Unlock()
	for _, o := range owners {
		c.look(o, time.Time{})
	}
}

// refresh looks at the servers of users who were here a short while ago, because another process may change
// them. It forgets users who were not here for long.
func (c *configurations) refresh(now time.Time) {
	if c.users.Of == nil {
		return
	}
	c.mu.Lock()
	for o, u := range c.all {
		if now.Sub(u.used) > forgetAfter {
			delete(c.all, o)
		}
	}
	c.mu.Unlock()
	c.again(now.Add(-retryFor))
}
