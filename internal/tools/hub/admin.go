package hub

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/platform/jsonedit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/login"
)

// mask stands for a secret in what is shown, and for the stored secret in what is sent back.
const mask = "***"

// secretSections are the parts of a server's configuration whose values are not shown; of those with a list
// only its members are secrets.
var secretSections = map[string][]string{"env": nil, "headers": nil, "oauth": login.Secrets}

// isSecret reports whether a member of a section is not shown. The decoder ignores case.
func isSecret(section, key string) bool {
	only := secretSections[section]
	return only == nil || strings.Contains(strings.ToLower(key), "secret") || slices.ContainsFunc(only, func(s string) bool { return strings.EqualFold(s, key) })
}

// ServerConfigs returns the configuration of every server as it is in the file, the values of env and
// headers masked, and what looks like a secret in args and url.
func (h *Hub) ServerConfigs(context.Context) (map[string]json.RawMessage, error) {
	all := map[string]json.RawMessage{}
	for _, s := range h.config().servers {
		all[s.name] = masked(s.raw)
	}
	return all, nil
}

func masked(raw []byte) json.RawMessage {
	const hidden = `"` + mask + `"`
	out, err := maskGuessed(raw)
	if err != nil {
		return json.RawMessage(`{}`)
	}
	for name, only := range secretSections {
		for _, m := range sections(raw, name) {
			values, err := m.Members(raw, name)
			switch {
			case err == nil:
				for _, v := range values.All {
					if !isSecret(name, v.Key) {
						continue
					}
					if out, err = jsonedit.Set(out, []string{m.Key}, v.Key, []byte(hidden)); err != nil {
						break
					}
				}
			case only != nil && !bytes.ContainsAny(m.Value(raw), "{[\""):
				err = nil // oauth: false
			default:
				out, err = jsonedit.Set(out, nil, m.Key, []byte(hidden))
			}
			if err != nil {
				return json.RawMessage(`{}`)
			}
		}
	}
	return compacted(out)
}

// sections returns the members of a configuration that are read as name: the decoder ignores case.
func sections(raw []byte, name string) []jsonedit.Member {
	o, err := jsonedit.Members(raw, "")
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(o.All, func(m jsonedit.Member) bool { return !strings.EqualFold(m.Key, name) })
}

func compacted(raw []byte) json.RawMessage {
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return json.RawMessage(`{}`)
	}
	return b.Bytes()
}

// PutServer adds a server or replaces its configuration, in the file and at once in force. "***" as a
// value of env or headers, or where args and url were shown with it, keeps what is stored. Everything else in the file stays as it is, and ${…}
// is stored as it was sent. An error is Invalid (naming the field), Conflict (its tools would be
// printed as another server's are, or the file is broken), or Unavailable.
func (h *Hub) PutServer(ctx context.Context, name string, raw json.RawMessage) error {
	if err := checkServerName(name); err != nil {
		return err
	}
	if len(raw) > maxConfigBytes {
		return sandbox.Errorf(sandbox.Invalid, "more than %d bytes", maxConfigBytes)
	}
	err := h.file.edit(ctx, func(text []byte, cfg *config) ([]byte, error) {
		merged, err := unmasked(raw, cfg.byName[name])
		if err != nil {
			return nil, err
		}
		s := parseServer(name, merged)
		if s.err != nil {
			return nil, s.err
		}
		for _, other := range cfg.servers {
			if other.name != name && other.enabled() && s.enabled() && printedServer(other.name) == printedServer(name) {
				return nil, sandbox.Errorf(sandbox.Conflict, "the tools of %q would be printed %s__…, as those of the server %q are", name, printedServer(name), other.name)
			}
		}
		return jsonedit.Set(text, []string{"mcpServers"}, name, merged)
	})
	h.config()
	return err
}

// unmasked puts the stored secrets in place of the masks.
func unmasked(raw json.RawMessage, stored *serverConfig) ([]byte, error) {
	if _, err := jsonedit.Members(raw, ""); err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "the configuration of a server is a JSON object: %s", err)
	}
	out, err := unmaskGuessed(raw, stored)
	if err != nil {
		return nil, err
	}
	for name, only := range secretSections {
		for _, section := range sections(raw, name) {
			values, err := section.Members(raw, name)
			if err != nil && only != nil {
				continue // oauth: false, or what the configuration's check refuses
			}
			if err != nil {
				return nil, invalidField(name, "is not an object, or has a name twice")
			}
			for _, m := range values.All {
				if !isSecret(name, m.Key) || string(m.Value(raw)) != `"`+mask+`"` {
					continue
				}
				kept, ok := storedValue(stored, name, m.Key)
				if !ok {
					return nil, invalidField(name+"."+m.Key, "is %q, but no value is stored that it could stand for", mask)
				}
				if out, err = jsonedit.Set(out, []string{section.Key}, m.Key, kept); err != nil {
					return nil, sandbox.Wrap(sandbox.Invalid, err, "the configuration cannot be read")
				}
			}
		}
	}
	return out, nil
}

func storedValue(stored *serverConfig, name, key string) ([]byte, bool) {
	if stored == nil {
		return nil, false
	}
	for _, section := range sections(stored.raw, name) {
		if values, err := section.Members(stored.raw, name); err == nil {
			if m, ok := values.Find(key); ok {
				return m.Value(stored.raw), true
			}
		}
	}
	return nil, false
}

// DeleteServer takes a server out of the file, ends its connections and forgets all logins there. NotFound
// when it is not there.
func (h *Hub) DeleteServer(ctx context.Context, name string) error {
	err := h.file.edit(ctx, func(text []byte, _ *config) ([]byte, error) {
		out, found, err := jsonedit.Remove(text, []string{"mcpServers"}, name)
		if err == nil && !found {
			err = sandbox.Errorf(sandbox.NotFound, "there is no MCP server %.80q", name)
		}
		return out, err
	})
	h.config()
	if err != nil {
		return err
	}
	return h.vault.ForgetServer(name)
}

// ReconnectServer ends the connections to a server; the next use makes new ones, without any back-off.
func (h *Hub) ReconnectServer(_ context.Context, name string) error {
	if _, err := h.enabledServer(h.config(), name); err != nil {
		return err
	}
	h.retire(func(c *conn) bool { return c.key.server == name })
	h.bump(true)
	return nil
}

func (h *Hub) enabledServer(cfg *config, name string) (*serverConfig, error) {
	s := cfg.byName[name]
	switch {
	case s == nil:
		return nil, sandbox.Errorf(sandbox.NotFound, "there is no MCP server %.80q%s", name, orMaybe(nearest(name, serverNames(cfg, everything))))
	case s.err != nil:
		return nil, configError(name, s.err)
	case !s.enabled():
		return nil, sandbox.Errorf(sandbox.Conflict, "the MCP server %q is not enabled", name)
	}
	return s, nil
}

// ServerTools returns the tools of one server, connecting as the caller's own user. It is for
// administration: why there are none is the error. Those that are quarantined are among them, and marked.
func (h *Hub) ServerTools(ctx context.Context, c sandbox.Caller, name string) ([]sandbox.Tool, error) {
	s, err := h.enabledServer(h.configOf(c.Owner), name)
	if err != nil {
		return nil, err
	}
	con, err := h.connOf(s, sandbox.Thread{Owner: c.Owner})
	if err != nil {
		return nil, err
	}
	con.firstContact(ctx)
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
		if tools.quarantined[t.Name] && s.offers(t.Name) {
			away := t.Tool
			away.Quarantined = true
			list = append(list, away)
		}
	}
	slices.SortFunc(list, func(a, b sandbox.Tool) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}
