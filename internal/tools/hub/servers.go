package hub

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/platform/jsonedit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/login"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/serverconfig"
)

// Servers is the configured servers, for administration.
type Servers struct {
	configs *configurations
	pool    *pool
	catalog *Catalog
	vault   *login.Vault
	// installs has a token for each installation under way.
	installs places
}

// ServerConfigs returns the configuration of every server as it is in the file. It masks the values of env
// and headers, and what looks like a secret in args and url.
func (a *Servers) ServerConfigs(context.Context) (map[string]json.RawMessage, error) {
	all := map[string]json.RawMessage{}
	for _, s := range a.configs.current().List {
		all[s.Name] = serverconfig.Masked(s.Raw)
	}
	return all, nil
}

// PutServer adds a server or replaces its configuration, in the file and at once in force. "***" as a
// value of env or headers, or where args and url were shown with it, keeps what is stored. Everything else in the file stays as it is, and ${…}
// is stored as it was sent. An error is Invalid (naming the field), Conflict (its tools would be
// printed as another server's or a pack's are, or the file is broken), or Unavailable.
func (a *Servers) PutServer(ctx context.Context, name string, raw json.RawMessage) error {
	if err := serverconfig.CheckName(name); err != nil {
		return err
	}
	if len(raw) > serverconfig.MaxBytes {
		return sandbox.Errorf(sandbox.Invalid, "more than %d bytes", serverconfig.MaxBytes)
	}
	err := a.configs.file.Edit(ctx, func(text []byte, cfg *serverconfig.Set) ([]byte, error) {
		merged, err := serverconfig.Unmasked(raw, cfg.ByName[name])
		if err != nil {
			return nil, err
		}
		s := serverconfig.ParseServer(name, merged)
		if s.Err != nil {
			return nil, s.Err
		}
		for _, other := range cfg.List {
			if other.Name != name && other.IsEnabled() && s.IsEnabled() && sandbox.PrintedServer(other.Name) == sandbox.PrintedServer(name) {
				return nil, sandbox.Errorf(sandbox.Conflict, "the tools of %q would be printed %s__…, as those of the server %q are", name, sandbox.PrintedServer(name), other.Name)
			}
		}
		if owner := a.taken(name); owner != "" && cfg.ByName[name] == nil {
			return nil, sandbox.Errorf(sandbox.Conflict, "the name %q is taken by %s", name, owner)
		}
		return jsonedit.Set(text, []string{"mcpServers"}, name, merged)
	})
	a.configs.current()
	return err
}

// taken says which server of users has a name; "": none.
func (a *Servers) taken(name string) string {
	if a.configs.users.Taken == nil {
		return ""
	}
	return a.configs.users.Taken(name)
}

// Named returns the server of the file whose tools would be printed as those of name; "": there is none.
func (a *Servers) Named(name string) string {
	for _, s := range a.configs.current().List {
		if sandbox.PrintedServer(s.Name) == sandbox.PrintedServer(name) {
			return s.Name
		}
	}
	return ""
}

// DeleteServer takes a server out of the file, ends its connections and forgets all logins there. NotFound
// when it is not there.
func (a *Servers) DeleteServer(ctx context.Context, name string) error {
	err := a.configs.file.Edit(ctx, func(text []byte, _ *serverconfig.Set) ([]byte, error) {
		out, found, err := jsonedit.Remove(text, []string{"mcpServers"}, name)
		if err == nil && !found {
			err = sandbox.Errorf(sandbox.NotFound, "there is no MCP server %.80q", name)
		}
		return out, err
	})
	a.configs.current()
	if err != nil {
		return err
	}
	return a.vault.ForgetServer(name)
}

// ReconnectServer ends the connections to a server; the next use makes new ones, without any back-off.
func (a *Servers) ReconnectServer(_ context.Context, name string) error {
	if _, err := enabledServer(a.configs.current(), name); err != nil {
		return err
	}
	a.pool.reconnect(func(c *conn) bool { return c.key.server == name })
	return nil
}

func enabledServer(cfg *serverconfig.Set, name string) (*serverconfig.Server, error) {
	s := cfg.ByName[name]
	switch {
	case s == nil:
		return nil, sandbox.Errorf(sandbox.NotFound, "there is no MCP server %.80q%s", name, orMaybe(nearest(name, serverNames(cfg, everything))))
	case s.Err != nil:
		return nil, configError(name, s.Err)
	case !s.IsEnabled():
		return nil, sandbox.Errorf(sandbox.Conflict, "the MCP server %q is not enabled", name)
	}
	return s, nil
}

// ServerTools returns the tools of one server, connecting as the caller's own user. It is for
// administration: why there are none is the error. Quarantined tools are among them, and marked.
func (a *Servers) ServerTools(ctx context.Context, c sandbox.Caller, name string) ([]sandbox.Tool, error) {
	s, err := enabledServer(a.configs.of(c.Owner), name)
	if err != nil {
		return nil, err
	}
	con, err := a.pool.get(s, sandbox.Thread{Owner: c.Owner})
	if err != nil {
		return nil, err
	}
	con.firstContact(ctx, a.pool.o.ConnectTimeout)
	tools, _, err := con.known()
	if tools == nil {
		if err == nil {
			err = sandbox.Errorf(sandbox.Unavailable, "the MCP server %q is still connecting", name)
		}
		return nil, err
	}
	list := make([]sandbox.Tool, len(tools.tools))
	for i, t := range tools.tools {
		list[i] = t.Tool
	}
	for _, t := range tools.listed {
		if tools.quarantined[t.Name] && s.Offers(t.Name) {
			away := t.Tool
			away.Quarantined = true
			list = append(list, away)
		}
	}
	slices.SortFunc(list, func(a, b sandbox.Tool) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// ServerStates lists the enabled servers in the order of the configuration, as the connections of the
// caller's user have them now. It connects to none; a server that was not needed yet is idle.
func (a *Servers) ServerStates(c sandbox.Caller) []sandbox.ToolServer {
	t := sandbox.Thread{Owner: c.Owner}
	v := a.catalog.view(t)
	var list []sandbox.ToolServer
	for _, s := range a.configs.current().List {
		if s.IsEnabled() {
			list = append(list, a.catalog.server(s, v, t))
		}
	}
	return list
}
