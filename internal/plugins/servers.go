package plugins

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/skerry-sandbox/skerry/internal/platform/oneline"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// serverLoader reads the MCP servers of a plugin.
type serverLoader struct{ *loader }

// The transports of MCP servers.
const (
	transportStdio = "stdio"
	transportHTTP  = "http"
	transportSSE   = "sse"
)

// Server is an MCP server that a plugin declares. Its texts are as the plugin has them, with ${…}.
type Server struct {
	Name      string
	Transport string // "stdio", "http" or "sse"
	Problem   string // why it cannot be used; "" when nothing is known to be wrong
	File      string // where it is declared

	Command string
	Args    []string
	Env     map[string]string
	Cwd     string

	URL           string
	Headers       map[string]string
	OAuth         json.RawMessage // an object, nil when there is none
	TimeoutMillis int64           // of a call; 0 when it says nothing
}

const maxServerName = 64

// loadServers reads the MCP servers: those of the default file, and those of the manifest.
func (l serverLoader) loadServers() {
	seen := map[string]bool{}
	file := ".mcp.json"
	if l.p.Format == FormatAgent {
		file = "mcp.json"
	}
	if l.isFile(file) && !l.listed {
		l.serverFile(file, seen)
	}
	raw, ok := l.fields["mcpServers"]
	if !ok || l.p.Format == FormatAgent || string(raw) == "null" {
		return
	}
	var items []json.RawMessage
	if json.Unmarshal(raw, &items) != nil {
		items = []json.RawMessage{raw}
	}
	if len(items) > maxPaths {
		l.add("too-many", sandbox.SeverityError, l.manifest, "mcpServers: %d entries, at most %d; the rest is ignored", len(items), maxPaths)
		items = items[:maxPaths]
	}
	for _, item := range items {
		var p string
		if json.Unmarshal(item, &p) != nil {
			l.serverMap(l.manifest, item, seen)
			continue
		}
		switch clean, ok := l.inside("mcpServers", p); {
		case !ok:
		case strings.HasSuffix(clean, ".mcpb") || strings.HasSuffix(clean, ".dxt"):
			l.add("not-supported", sandbox.SeverityWarning, clean, "bundles of MCP servers are not read here")
		case !l.isFile(clean):
			l.add("missing", sandbox.SeverityError, l.manifest, "mcpServers: there is no file %.200q", clean)
		default:
			l.serverFile(clean, seen)
		}
	}
}

// serverFile reads {"mcpServers": {…}}, or the inner object alone.
func (l serverLoader) serverFile(file string, seen map[string]bool) {
	text, err := l.read(file, maxManifest)
	if err != nil {
		l.add("unreadable", sandbox.SeverityError, file, "%s", detail(err))
		return
	}
	top, err := object(text)
	if err != nil {
		l.add("json", sandbox.SeverityError, file, "not a JSON object: %s", err)
		return
	}
	if raw, ok := top["mcpServers"]; ok {
		text = raw
	}
	l.serverMap(file, text, seen)
}

func (l serverLoader) serverMap(file string, raw json.RawMessage, seen map[string]bool) {
	all, err := object(raw)
	if err != nil {
		l.add("wrong-type", sandbox.SeverityError, file, "mcpServers should be an object of servers; it is ignored")
		return
	}
	for _, name := range sorted(all) {
		switch {
		case name == "$schema":
			continue
		case seen[name]:
			l.add("server-twice", sandbox.SeverityWarning, file, "the server %.80q is declared already; this one is ignored", name)
			continue
		case len(seen) == maxServers:
			l.add("too-many", sandbox.SeverityError, file, "more than %d MCP servers; the rest is ignored", maxServers)
			return
		}
		seen[name] = true
		l.server(file, name, all[name])
	}
}

// server reads one server. What is wrong with it is a finding, and its Problem when it cannot be used so.
func (l serverLoader) server(file, name string, raw json.RawMessage) {
	s := Server{Name: oneline.Of(name, maxServerName), File: file}
	f, err := object(raw)
	if err != nil {
		s.Problem = "it is not an object"
	} else {
		s.Problem = s.fill(f, l.p.Format)
	}
	rule := "server"
	switch {
	case s.Problem == "":
	case s.Problem == emptyURL:
		rule = "server-url-empty"
		fallthrough
	default:
		l.add(rule, sandbox.SeverityWarning, file, "the MCP server %q cannot be used: %s", s.Name, s.Problem)
	}
	if strings.ContainsFunc(name, unicode.IsSpace) {
		l.add("server-name-space", sandbox.SeverityInfo, file, "the MCP server's name %q has blanks; in names of tools they are written _", s.Name)
	}
	for _, key := range []string{"headersHelper", "alwaysLoad"} {
		if _, ok := f[key]; ok {
			l.add("not-supported", sandbox.SeverityInfo, file, "the MCP server %q: this server does nothing with %s", s.Name, key)
		}
	}
	l.p.Servers = append(l.p.Servers, s)
}

const emptyURL = "its url is empty; fill it in, and it is used"

// fill reads a server and returns what is wrong with it, or "".
func (s *Server) fill(f fields, format string) string {
	r := memberReader{f: f}
	kind := r.text("type")
	if kind == "" {
		kind = r.text("transport")
	}
	s.Command, s.URL, s.Cwd = r.text("command"), strings.TrimSpace(r.text("url")), r.text("cwd")
	s.Args, s.Env, s.Headers = r.list("args"), r.values("env"), r.values("headers")
	if raw, ok := f["oauth"]; ok && len(raw) > 0 && raw[0] == '{' {
		s.OAuth = raw
	}
	if n, ok := r.number("timeout"); ok {
		s.TimeoutMillis = n
	}
	_, remote := f["url"]
	switch kind {
	case "":
		s.Transport = transportStdio
		if s.Command == "" && remote {
			s.Transport = transportHTTP
		}
	case transportStdio, transportSSE, transportHTTP:
		s.Transport = kind
	case "streamable-http", "streamable_http", "streamableHttp":
		s.Transport = transportHTTP
	default:
		s.Transport = transportHTTP
		return fmt.Sprintf("%.40q is no transport that is known here", kind)
	}
	switch {
	case r.bad != "":
		return r.bad
	case checkServerName(s.Name) != "":
		return checkServerName(s.Name)
	case s.Transport == transportStdio && strings.TrimSpace(s.Command) == "":
		return "its command is empty"
	case s.Transport == transportStdio:
		return s.checkWords()
	}
	return s.checkURL(format)
}

func checkServerName(name string) string {
	if name == "" || strings.TrimSpace(name) != name || strings.ContainsAny(name, `/\`) || utf8.RuneCountInString(name) > maxServerName || strings.Trim(name, ".") == "" {
		return fmt.Sprintf("its name has to have 1 to %d characters without / and without blanks around them", maxServerName)
	}
	return ""
}

func (s *Server) checkWords() string {
	for _, w := range append(slices.Clone(s.Args), s.Command, s.Cwd) {
		if strings.ContainsRune(w, 0) {
			return "its command has a NUL character"
		}
	}
	for _, k := range sorted(s.Env) {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(s.Env[k], 0) {
			return "its env has a name or value that no environment can have"
		}
	}
	return ""
}

func (s *Server) checkURL(format string) string {
	switch {
	case s.URL == "":
		return emptyURL
	case strings.Contains(s.URL, "${"):
		return "" // checked when it is known what it stands for
	}
	u, err := url.Parse(s.URL)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return "its url is no http or https address"
	}
	if format == FormatAgent && u.Scheme == "http" && !loopback(u.Hostname()) {
		return "its url has to be https, for Agent Plugins"
	}
	return ""
}

func loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

// memberReader reads members of an object and remembers the first that is of a wrong type.
type memberReader struct {
	f   fields
	bad string
}

func (r *memberReader) fail(key, want string) {
	if r.bad == "" {
		r.bad = key + " should be " + want
	}
}

func (r *memberReader) get(key string) (json.RawMessage, bool) {
	raw, ok := r.f[key]
	return raw, ok && string(raw) != "null"
}

func (r *memberReader) text(key string) string {
	var s string
	if raw, ok := r.get(key); ok && json.Unmarshal(raw, &s) != nil {
		r.fail(key, "text")
	}
	return s
}

func (r *memberReader) number(key string) (int64, bool) {
	var n int64
	raw, ok := r.get(key)
	if ok && json.Unmarshal(raw, &n) != nil {
		r.fail(key, "a whole number")
		return 0, false
	}
	return n, ok
}

func (r *memberReader) list(key string) []string {
	var list []string
	raw, ok := r.get(key)
	switch {
	case !ok:
	case json.Unmarshal(raw, &list) != nil:
		r.fail(key, "a list of texts")
	case len(list) > 200:
		r.fail(key, "a list of at most 200 texts")
		return nil
	}
	return list
}

// values reads an object of texts; numbers and booleans are taken as they are written.
func (r *memberReader) values(key string) map[string]string {
	raw, ok := r.get(key)
	if !ok {
		return nil
	}
	all, err := object(raw)
	if err != nil || len(all) > 200 {
		r.fail(key, "an object of at most 200 texts")
		return nil
	}
	out := map[string]string{}
	for k, v := range all {
		var s string
		switch {
		case json.Unmarshal(v, &s) == nil && string(v) != "null":
			out[k] = s
		case len(v) > 0 && v[0] != '{' && v[0] != '[' && string(v) != "null":
			out[k] = string(v)
		default:
			r.fail(key, "an object of texts")
		}
	}
	return out
}
