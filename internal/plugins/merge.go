package plugins

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// reference finds ${NAME}, ${NAME:-default} and ${user_config.KEY}.
var reference = regexp.MustCompile(`\$\{([^}:]*)(:-[^}]*)?\}`)

// rootNames stand for folders in the sandbox of a stdio server.
var rootNames = sandbox.PluginFolders()

const userConfigPrefix = "user_config."

// mergeServers returns the MCP servers of the enabled plugins, and what became of each declared one. Nothing is
// overwritten: of servers that are equal, the first one is used, those of the global configuration before any. With
// without, none is used.
func mergeServers(list []*member, named, global map[string]string, without bool) (*sandbox.UserServers, map[string]sandbox.PluginServer) {
	servers, states := &sandbox.UserServers{}, map[string]sandbox.PluginServer{}
	first := map[string]string{}
	maps.Copy(first, global)
	for _, m := range list {
		if !m.enabled {
			continue
		}
		values := m.expansions(named)
		for _, s := range m.plugin.Servers {
			shown := sandbox.PluginServer{Name: s.Name, Registered: Registered(m.name, s.Name), Transport: s.Transport, State: "ok"}
			key := s.identity(m.name)
			problem := s.Problem
			if problem == "" {
				problem = s.missing(m.plugin.Format, values)
			}
			switch other := first[key]; {
			case without:
				shown.State, shown.Reason = "unusable", "the server leaves MCP servers of plugins out: its setting plugins.auto_merge_mcp is false"
			case problem != "":
				shown.State, shown.Reason = "unusable", problem
			case other != "":
				shown.State, shown.Reason = "duplicate", fmt.Sprintf("the server %q is the same and is used", other)
			default:
				first[key] = shown.Registered
				servers.List = append(servers.List, sandbox.UserServer{Name: shown.Registered, Config: s.config(m.plugin.Format), Values: values, Root: m.dir, Key: m.record.Digest})
			}
			states[shown.Registered] = shown
		}
	}
	return servers, states
}

// expansions returns what ${…} stands for in the servers of a plugin.
func (m *member) expansions(named map[string]string) map[string]string {
	all := map[string]string{}
	if m.plugin.Format == FormatClaude { // Agent Plugins knows folders alone
		maps.Copy(all, named)
		for _, o := range m.plugin.Options {
			value := m.values[o.Key]
			if text, _ := value.(string); value == nil || !fits(o.Type, value) && !strings.HasPrefix(text, sandbox.SealedValue) {
				value = o.Default
			}
			if value == nil {
				continue
			}
			all[userConfigPrefix+o.Key] = fmt.Sprint(value)
			if o.Variable && m.values[o.Key] != nil { // else it is the user's own, or what stands in ${KEY:-…}
				all[o.Key] = fmt.Sprint(value)
			}
		}
	}
	maps.Copy(all, rootNames)
	return all
}

// texts are the parts of a server in which ${…} stands for something.
func (s *Server) texts(format string) []string {
	list := append(slices.Clone(s.Args), s.Cwd)
	for _, k := range sorted(s.Env) {
		list = append(list, s.Env[k])
	}
	if format == FormatAgent {
		return list
	}
	list = append(list, s.Command, s.URL)
	for _, k := range sorted(s.Headers) {
		list = append(list, s.Headers[k])
	}
	return list
}

// missing says which value a server cannot do without, "" for none.
func (s *Server) missing(format string, values map[string]string) string {
	for _, text := range s.texts(format) {
		for _, m := range reference.FindAllStringSubmatch(text, -1) {
			if _, ok := values[m[1]]; ok || m[2] != "" {
				continue
			}
			if key, ok := strings.CutPrefix(m[1], userConfigPrefix); ok {
				return fmt.Sprintf("it needs the value %.80q, which is not set for this plugin", key)
			}
			return fmt.Sprintf("it needs ${%.80s}, which is not set for this plugin", m[1])
		}
	}
	return ""
}

// identity is the same for servers that are the same. What depends on the plugin makes it another one.
func (s *Server) identity(plugin string) string {
	c := *s
	c.Name, c.File, c.Problem, c.TimeoutMillis = "", "", "", 0
	c.URL = canonicalURL(c.URL)
	if len(c.OAuth) > 0 {
		var v any
		if json.Unmarshal(c.OAuth, &v) == nil {
			c.OAuth, _ = json.Marshal(v) //nolint:errcheck // it was decoded; the order of its keys is sorted now
		}
	}
	raw, err := json.Marshal(c)
	if err != nil {
		return plugin + " " + s.Name
	}
	text := string(raw)
	if strings.Contains(text, "PLUGIN_ROOT") || strings.Contains(text, "PLUGIN_DATA") || strings.Contains(text, userConfigPrefix) {
		text += " " + plugin
	}
	return text
}

func canonicalURL(text string) string {
	u, err := url.Parse(text)
	if err != nil || strings.Contains(text, "${") {
		return text
	}
	u.Scheme, u.Host = strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	if u.Scheme == "https" {
		u.Host = strings.TrimSuffix(u.Host, ":443")
	}
	if u.Path == "/" {
		u.Path = ""
	}
	return u.String()
}

// config writes a server as the configuration of the hub. Only what is named here gets there: whatever a plugin says
// of uids, mounts or scopes means nothing.
func (s *Server) config(format string) []byte {
	c := map[string]any{"type": s.Transport}
	literal := func(text string) string { return text }
	if format == FormatAgent {
		literal = escapeReferences
	}
	if s.Transport == transportStdio {
		command, args := literal(s.Command), s.Args
		if s.Cwd != "" {
			command, args = "/bin/sh", append([]string{"-c", `cd -- "$0" && exec "$@"`, s.Cwd, literal(s.Command)}, s.Args...)
		}
		c["command"], c["args"], c["env"] = command, args, s.Env
		c["sandbox"] = true
	} else {
		headers := map[string]string{}
		for k, v := range s.Headers {
			headers[k] = literal(v)
		}
		c["url"], c["headers"] = literal(s.URL), headers
		if oauth := s.oauth(); len(oauth) > 0 {
			c["oauth"] = oauth
		}
	}
	if s.TimeoutMillis >= 100 && s.TimeoutMillis <= 3_600_000 {
		c["timeout"] = s.TimeoutMillis
	}
	raw, err := json.Marshal(c)
	if err != nil {
		return []byte(`{}`) // no text fails
	}
	return raw
}

// oauth returns what a plugin may say of a login: which client it is, where it is sent back to on loopback, and what it asks for.
func (s *Server) oauth() map[string]any {
	var o struct {
		ClientID     string          `json:"clientId"`
		CallbackPort int             `json:"callbackPort"`
		Scopes       json.RawMessage `json:"scopes"`
		MetadataURL  string          `json:"authServerMetadataUrl"`
	}
	if json.Unmarshal(s.OAuth, &o) != nil || s.OAuth == nil {
		return nil
	}
	c := map[string]any{}
	if o.ClientID != "" {
		c["client_id"] = o.ClientID
		if o.CallbackPort > 1023 && o.CallbackPort < 65536 {
			c["redirect_uri"] = fmt.Sprintf("http://localhost:%d/callback", o.CallbackPort)
		}
	}
	if o.MetadataURL != "" {
		c["metadata_url"] = o.MetadataURL
	}
	var text string
	var list []string
	if json.Unmarshal(o.Scopes, &text) == nil || json.Unmarshal(o.Scopes, &list) == nil {
		c["scopes"] = o.Scopes
	}
	return c
}

// escapeReferences keeps ${…} from being read as one, where the format does not know it.
func escapeReferences(text string) string { return strings.ReplaceAll(text, "${", "${:-$}{") }

// globalServers returns the servers of extensions_config.json by identity.
func globalServers(raw json.RawMessage) map[string]string {
	found := map[string]string{}
	all, err := object(raw)
	if err != nil {
		return found
	}
	for _, name := range sorted(all) {
		f, err := object(all[name])
		if err != nil || string(f["enabled"]) == "false" {
			continue
		}
		s := Server{Name: name}
		if s.fill(f, FormatClaude) == "" {
			if key := s.identity(""); found[key] == "" {
				found[key] = name
			}
		}
	}
	return found
}
