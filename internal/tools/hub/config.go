package hub

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/skerry-sandbox/skerry/internal/platform/jsonedit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/excerpt"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/login"
)

// The transports by which a server is reached.
const (
	transportStdio = "stdio"
	transportHTTP  = "http"
	transportSSE   = "sse"
)

// Limits of a configuration.
const (
	maxConfigBytes = 4 << 20
	maxServers     = 500
	maxServerName  = 64
	maxTimeout     = time.Hour
	minTimeout     = 100 * time.Millisecond
)

// serverConfig is one value of mcpServers. Keys that it does not name are kept in the file and mean
// nothing here.
type serverConfig struct {
	name string
	raw  []byte              // as it is in the file, compacted
	dial []byte              // what decides over a connection: it outlives a change of the rest
	err  error               // why it cannot be used
	user *sandbox.UserServer // of a user's plugin; nil for one of the file

	Type          string                `json:"type"`
	Transport     string                `json:"transport"` // another name of type
	Command       string                `json:"command"`
	Args          []string              `json:"args"`
	Env           map[string]string     `json:"env"`
	URL           string                `json:"url"`
	Headers       map[string]string     `json:"headers"`
	TimeoutMillis int64                 `json:"timeout"` // of a call; 0 takes the hub's
	Description   string                `json:"description"`
	Enabled       *bool                 `json:"enabled"`
	Concurrency   int                   `json:"concurrency"` // calls at once on a connection; 0 takes the hub's
	DisabledTools []string              `json:"disabledTools"`
	Capabilities  []string              `json:"capabilities"` // that its users need
	Tools         map[string]toolConfig `json:"tools"`        // by the server's name of them
	Scope         string                `json:"scope"`        // "thread", "user" (default) or "shared"
	RunAs         *uint32               `json:"run_as"`       // uid of a stdio server
	Sandbox       isolationConfig       `json:"sandbox"`
	Drift         string                `json:"drift"` // "record" or "quarantine"; "" takes the hub's
	OAuth         *login.Settings       `json:"oauth"` // of an HTTP server; nil: what its own metadata says
}

func (s *serverConfig) enabled() bool { return s.Enabled == nil || *s.Enabled }

// timeout is how long a call of a tool may take.
func (s *serverConfig) timeout(tool string, fallback time.Duration) time.Duration {
	for _, millis := range []int64{s.Tools[tool].TimeoutMillis, s.TimeoutMillis} {
		if millis > 0 {
			return time.Duration(millis) * time.Millisecond
		}
	}
	return fallback
}

// dialKey is the part of a configuration that a connection depends on.
func (s *serverConfig) dialKey() ([]byte, error) {
	d := *s
	d.Transport, d.TimeoutMillis, d.Description, d.Enabled = "", 0, "", nil
	d.Concurrency, d.DisabledTools, d.Tools, d.Drift, d.Capabilities = 0, nil, nil, "", nil
	return json.Marshal(d)
}

// sameDial reports whether a connection made for one configuration serves the other.
func (s *serverConfig) sameDial(other *serverConfig) bool { return bytes.Equal(s.dial, other.dial) }

// shownTransport is "stdio" or "http".
func (s *serverConfig) shownTransport() string {
	if s.Type == transportSSE {
		return transportHTTP
	}
	return s.Type
}

// config is the servers of one state of the file. It does not change.
type config struct {
	servers []*serverConfig // in the order of the file
	byName  map[string]*serverConfig
}

var noServers = &config{byName: map[string]*serverConfig{}}

// scope is the widest division that any server makes.
func (c *config) threadScoped() bool {
	return slices.ContainsFunc(c.servers, func(s *serverConfig) bool { return s.Scope == scopeThread })
}

// parseConfig reads extensions_config.json. A server that is wrong has its err set and disturbs no
// other; an error is about the file as a whole and names the place.
func parseConfig(text []byte) (*config, error) {
	if len(text) > maxConfigBytes {
		return nil, fmt.Errorf("more than %d bytes", maxConfigBytes)
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return noServers, nil
	}
	if !utf8.Valid(text) {
		return nil, fmt.Errorf("not UTF-8")
	}
	top, err := jsonedit.Members(text, "")
	if err != nil {
		return nil, err
	}
	cfg := &config{byName: map[string]*serverConfig{}}
	section, ok := top.Find("mcpServers")
	if !ok || string(section.Value(text)) == "null" {
		return cfg, nil
	}
	list, err := section.Members(text, "mcpServers")
	if err != nil {
		return nil, err
	}
	if len(list.All) > maxServers {
		return nil, fmt.Errorf("mcpServers: %d servers, at most %d", len(list.All), maxServers)
	}
	for _, m := range list.All {
		s := parseServer(m.Key, m.Value(text))
		cfg.servers = append(cfg.servers, s)
		cfg.byName[m.Key] = s
	}
	cfg.refuseCollisions()
	return cfg, nil
}

// refuseCollisions marks a server whose printed prefix another one has: their tools would bear the same
// names. The first by name keeps it, wherever the two are in the file.
func (c *config) refuseCollisions() {
	owner := map[string]string{}
	for _, s := range slices.SortedFunc(slices.Values(c.servers), byName) {
		if !s.enabled() || s.err != nil {
			continue
		}
		prefix := printedServer(s.name)
		if first, taken := owner[prefix]; taken {
			s.err = sandbox.Errorf(sandbox.Conflict, "its tools would be printed %s__…, as those of the server %q are; rename one of the two", prefix, first)
			continue
		}
		owner[prefix] = s.name
	}
}

func byName(a, b *serverConfig) int { return strings.Compare(a.name, b.name) }

// parseServer reads one server. What is wrong with it is in err.
func parseServer(name string, raw []byte) *serverConfig {
	s := &serverConfig{name: name}
	var compact bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		s.err = sandbox.Errorf(sandbox.Invalid, "not JSON")
		return s
	}
	s.raw = compact.Bytes()
	if err := checkServerName(name); err != nil {
		s.err = err
		return s
	}
	if err := json.Unmarshal(raw, s); err != nil {
		s.err = describeJSON(raw, err)
		return s
	}
	if s.err = s.check(); s.err == nil {
		s.dial, s.err = s.dialKey()
	}
	return s
}

func checkServerName(name string) error {
	bad := strings.ContainsFunc(name, func(r rune) bool { return unicode.IsControl(r) || r == '/' || r == '\\' || r == utf8.RuneError })
	if name == "" || utf8.RuneCountInString(name) > maxServerName || bad || strings.TrimSpace(name) != name || strings.Trim(name, ".") == "" {
		return invalidField("name", "server name %.80q: use 1 to %d characters without / and control characters, and no spaces around them", name, maxServerName)
	}
	return nil
}

func invalidField(field, format string, args ...any) error {
	detail := fmt.Sprintf(format, args...)
	return &sandbox.Error{Kind: sandbox.Invalid, Detail: field + ": " + detail, Fields: []sandbox.Field{{Name: field, Detail: detail}}}
}

// check completes a configuration and reports the first thing wrong with it.
func (s *serverConfig) check() error {
	if s.Type == "" {
		s.Type = s.Transport
	}
	switch s.Type {
	case "":
		s.Type = transportStdio
		if s.Command == "" && s.URL != "" {
			s.Type = transportHTTP
		}
	case "streamable-http", "streamable_http", "streamableHttp":
		s.Type = transportHTTP
	case transportStdio, transportHTTP, transportSSE:
	default:
		return invalidField("type", "%.40q is not stdio, http or sse", s.Type)
	}
	switch s.Scope {
	case "":
		s.Scope = scopeUser
	case scopeThread, scopeUser, scopeShared:
	default:
		return invalidField("scope", "%.40q is not thread, user or shared", s.Scope)
	}
	if err := checkTimeout("timeout", s.TimeoutMillis); err != nil {
		return err
	}
	if err := checkConcurrency("concurrency", s.Concurrency); err != nil {
		return err
	}
	if s.Drift != "" && s.Drift != driftRecord && s.Drift != driftQuarantine {
		return invalidField("drift", "%.40q is not record or quarantine", s.Drift)
	}
	var err error
	if s.Capabilities, err = sandbox.CheckCapabilities(s.Capabilities); err != nil {
		return invalidField("capabilities", "%s", excerpt.Detail(err))
	}
	if err := s.checkTools(); err != nil {
		return err
	}
	if s.Type == transportStdio {
		if s.OAuth != nil {
			return invalidField("oauth", "is for HTTP servers")
		}
		return s.checkStdio()
	}
	if s.Sandbox.on {
		return invalidField("sandbox", "is for stdio servers")
	}
	return s.checkRemote()
}

func (s *serverConfig) checkStdio() error {
	if s.Command == "" {
		return invalidField("command", "is empty")
	}
	for _, w := range append(slices.Clone(s.Args), s.Command) {
		if strings.ContainsRune(w, 0) {
			return invalidField("args", "has a NUL character")
		}
	}
	for k, v := range s.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			return invalidField("env."+k, "a name is empty, has a = or NUL, or its value has a NUL")
		}
	}
	return s.checkIsolation()
}

func (s *serverConfig) checkRemote() error {
	if strings.TrimSpace(s.URL) == "" {
		return invalidField("url", "is empty")
	}
	// What ${…} stands for is not known yet; the URL is checked again when it is.
	if !strings.Contains(s.URL, "${") {
		if err := checkURL(s.URL); err != nil {
			return err
		}
	}
	for k, v := range s.Headers {
		if !isToken(k) || strings.ContainsAny(v, "\r\n\x00") {
			return invalidField("headers."+k, "is not a header")
		}
		if http.CanonicalHeaderKey(k) == "Host" {
			return invalidField("headers."+k, "cannot be set; it comes from the url")
		}
		if http.CanonicalHeaderKey(k) == "Authorization" && s.OAuth != nil && !s.OAuth.Off {
			return invalidField("headers."+k, "and oauth exclude each other")
		}
	}
	if s.OAuth != nil {
		if field, problem := s.OAuth.Check(); field != "" {
			return invalidField("oauth."+field, "%s", problem)
		}
	}
	return nil
}

func checkURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return invalidField("url", "is not an http or https URL")
	}
	return nil
}

// isToken reports whether s can be the name of a header.
func isToken(s string) bool {
	for _, r := range s {
		if r <= ' ' || r >= 0x7f || strings.ContainsRune(`()<>@,;:\"/[]?={}`, r) {
			return false
		}
	}
	return s != ""
}

// printedServer is the part of a printed name that stands for the server.
func printedServer(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, name)
}

// describeJSON says which field of a server's configuration has the wrong type.
func describeJSON(raw []byte, err error) error {
	var known *sandbox.Error
	if errors.As(err, &known) {
		return known
	}
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) && wrong.Field != "" {
		return invalidField(wrong.Field, "has the wrong type: %s", wrong.Value)
	}
	if errors.As(err, &wrong) {
		return sandbox.Errorf(sandbox.Invalid, "a server is an object, not a %s", wrong.Value)
	}
	return sandbox.Errorf(sandbox.Invalid, "not JSON (%d bytes)", len(raw))
}
