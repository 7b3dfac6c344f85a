package serverconfig

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
	TransportStdio = "stdio"
	transportHTTP  = "http"
	TransportSSE   = "sse"
	TransportPack  = "pack" // of a tool pack, which no configuration file can name
)

// Limits of a configuration.
const (
	MaxBytes      = 4 << 20
	maxServers    = 500
	maxServerName = 64
	maxTimeout    = time.Hour
	minTimeout    = 100 * time.Millisecond
)

// Server is one value of mcpServers. Keys that it does not name are kept in the file and mean
// nothing here.
type Server struct {
	Name string              `json:"-"`
	Raw  []byte              `json:"-"` // as it is in the file, compacted
	Err  error               `json:"-"` // why it cannot be used
	User *sandbox.UserServer `json:"-"` // of a user's plugin; nil for one of the file
	dial []byte              // what decides over a connection: it outlives a change of the rest

	Type      string `json:"type"`
	Transport string `json:"transport"` // another name of type
	Scope     string `json:"scope"`     // "thread", "user" (default) or "shared"
	Program
	Remote
	Terms
}

// Program is how a stdio server is started.
type Program struct {
	Command string            `json:"command"`
	Args    []string          `json:"args"`
	Env     map[string]string `json:"env"`
	RunAs   *uint32           `json:"run_as"` // its uid
	Sandbox Isolation         `json:"sandbox"`
}

// Remote is how a server is reached by HTTP.
type Remote struct {
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
	OAuth   *login.Settings   `json:"oauth"` // nil: what the server's own metadata says
}

// Terms are how a connection is used. A connection outlives their change.
type Terms struct {
	TimeoutMillis int64              `json:"timeout"` // of a call; 0 takes the hub's
	Description   string             `json:"description"`
	Enabled       *bool              `json:"enabled"`
	Concurrency   int                `json:"concurrency"`  // calls at once on a connection; 0 takes the hub's
	EnabledTools  []string           `json:"enabledTools"` // the only ones that are offered; nil: all
	DisabledTools []string           `json:"disabledTools"`
	Disclosure    sandbox.Disclosure `json:"disclosure"`   // of its tools that have none of their own
	Capabilities  []string           `json:"capabilities"` // that its users need
	Tools         map[string]Tool    `json:"tools"`        // by the server's name of them
	Drift         string             `json:"drift"`        // "record" or "quarantine"; "" takes the hub's
}

// IsEnabled reports whether the configuration switches the server on.
func (s *Server) IsEnabled() bool { return s.Enabled == nil || *s.Enabled }

// Timeout is how long a call of a tool may take.
func (s *Server) Timeout(tool string, fallback time.Duration) time.Duration {
	for _, millis := range []int64{s.Tools[tool].TimeoutMillis, s.TimeoutMillis} {
		if millis > 0 {
			return time.Duration(millis) * time.Millisecond
		}
	}
	return fallback
}

// dialKey is the part of a configuration that a connection depends on.
func (s *Server) dialKey() ([]byte, error) {
	d := *s
	d.Transport, d.Terms = "", Terms{}
	return json.Marshal(d)
}

// SameDial reports whether a connection made for one configuration serves the other.
func (s *Server) SameDial(other *Server) bool { return bytes.Equal(s.dial, other.dial) }

// ShownTransport is "stdio", "http" or "pack".
func (s *Server) ShownTransport() string {
	if s.Type == TransportSSE {
		return transportHTTP
	}
	return s.Type
}

// Set is the servers of one state of the file. It does not change.
type Set struct {
	List   []*Server // in the order of the file
	ByName map[string]*Server
}

var noServers = &Set{ByName: map[string]*Server{}}

// ThreadScoped reports whether any server keeps threads apart.
func (c *Set) ThreadScoped() bool {
	return slices.ContainsFunc(c.List, func(s *Server) bool { return s.Scope == ScopeThread })
}

// Parse reads extensions_config.json. A server that is wrong has its err set and disturbs no
// other; an error is about the file as a whole and names the place.
func Parse(text []byte) (*Set, error) {
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("more than %d bytes", MaxBytes)
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
	cfg := &Set{ByName: map[string]*Server{}}
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
		s := ParseServer(m.Key, m.Value(text))
		cfg.List = append(cfg.List, s)
		cfg.ByName[m.Key] = s
	}
	cfg.refuseCollisions()
	return cfg, nil
}

// refuseCollisions marks a server whose printed prefix another one has: their tools would bear the same
// names. The first by name keeps it, wherever the two are in the file.
func (c *Set) refuseCollisions() {
	owner := map[string]string{}
	for _, s := range slices.SortedFunc(slices.Values(c.List), Compare) {
		if !s.IsEnabled() || s.Err != nil {
			continue
		}
		prefix := sandbox.PrintedServer(s.Name)
		if first, taken := owner[prefix]; taken {
			s.Err = sandbox.Errorf(sandbox.Conflict, "its tools would be printed %s__…, as those of the server %q are; rename one of the two", prefix, first)
			continue
		}
		owner[prefix] = s.Name
	}
}

// Compare orders servers by their names.
func Compare(a, b *Server) int { return strings.Compare(a.Name, b.Name) }

// ParseServer reads one server. What is wrong with it is in err.
func ParseServer(name string, raw []byte) *Server {
	s := &Server{Name: name}
	var compact bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		s.Err = sandbox.Errorf(sandbox.Invalid, "not JSON")
		return s
	}
	s.Raw = compact.Bytes()
	if !utf8.Valid(raw) { // the file that it is written to would be read no more
		s.Err = sandbox.Errorf(sandbox.Invalid, "not UTF-8")
		return s
	}
	if err := CheckName(name); err != nil {
		s.Err = err
		return s
	}
	if err := json.Unmarshal(raw, s); err != nil {
		s.Err = describeJSON(raw, err)
		return s
	}
	if s.Err = s.check(); s.Err == nil {
		s.dial, s.Err = s.dialKey()
	}
	return s
}

// CheckName refuses what cannot be the name of a server.
func CheckName(name string) error {
	bad := strings.ContainsFunc(name, func(r rune) bool { return unicode.IsControl(r) || r == '/' || r == '\\' || r == utf8.RuneError })
	if name == "" || utf8.RuneCountInString(name) > maxServerName || bad || strings.TrimSpace(name) != name || strings.Trim(name, ".") == "" {
		return InvalidField("name", "server name %.80q: use 1 to %d characters without / and control characters, and no spaces around them", name, maxServerName)
	}
	return nil
}

// InvalidField is an error about one field of a configuration.
func InvalidField(field, format string, args ...any) error {
	detail := fmt.Sprintf(format, args...)
	return &sandbox.Error{Kind: sandbox.Invalid, Detail: field + ": " + detail, Fields: []sandbox.Field{{Name: field, Detail: detail}}}
}

// Check completes a configuration and reports the first thing wrong with it.
func (s *Server) check() error {
	if s.Type == "" {
		s.Type = s.Transport
	}
	switch s.Type {
	case "":
		s.Type = TransportStdio
		if s.Command == "" && s.URL != "" {
			s.Type = transportHTTP
		}
	case "streamable-http", "streamable_http", "streamableHttp":
		s.Type = transportHTTP
	case TransportStdio, transportHTTP, TransportSSE:
	default:
		return InvalidField("type", "%.40q is not stdio, http or sse", s.Type)
	}
	switch s.Scope {
	case "":
		s.Scope = ScopeUser
	case ScopeThread, ScopeUser, ScopeShared:
	default:
		return InvalidField("scope", "%.40q is not thread, user or shared", s.Scope)
	}
	if err := checkTimeout("timeout", s.TimeoutMillis); err != nil {
		return err
	}
	if err := checkConcurrency("concurrency", s.Concurrency); err != nil {
		return err
	}
	if s.Drift != "" && s.Drift != driftRecord && s.Drift != DriftQuarantine {
		return InvalidField("drift", "%.40q is not record or quarantine", s.Drift)
	}
	if err := s.checkForeign(); err != nil {
		return err
	}
	var err error
	if s.Capabilities, err = sandbox.CheckCapabilities(s.Capabilities); err != nil {
		return InvalidField("capabilities", "%s", excerpt.Detail(err))
	}
	if err := s.checkTools(); err != nil {
		return err
	}
	if s.Type == TransportStdio {
		if s.OAuth != nil {
			return InvalidField("oauth", "is for HTTP servers")
		}
		return s.checkStdio()
	}
	if s.Sandbox.On {
		return InvalidField("sandbox", "is for stdio servers")
	}
	return s.checkRemote()
}

// checkForeign refuses the key by which another program's configuration names its variables: a server that ignored it
// would start without them.
func (s *Server) checkForeign() error {
	if len(sections(s.Raw, foreignEnv)) > 0 {
		return InvalidField(foreignEnv, "is no key here: write env, with ${NAME} where the value is that of a variable of this server")
	}
	return nil
}

func (s *Server) checkStdio() error {
	if s.Command == "" {
		return InvalidField("command", "is empty")
	}
	for _, w := range append(slices.Clone(s.Args), s.Command) {
		if strings.ContainsRune(w, 0) {
			return InvalidField("args", "has a NUL character")
		}
	}
	for k, v := range s.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			return InvalidField("env."+k, "a name is empty, has a = or NUL, or its value has a NUL")
		}
	}
	return s.checkIsolation()
}

func (s *Server) checkRemote() error {
	if strings.TrimSpace(s.URL) == "" {
		return InvalidField("url", "is empty")
	}
	// What ${…} stands for is not known yet; the URL is checked again when it is.
	if !strings.Contains(s.URL, "${") {
		if err := checkURL(s.URL); err != nil {
			return err
		}
	}
	for k, v := range s.Headers {
		if !isToken(k) || strings.ContainsAny(v, "\r\n\x00") {
			return InvalidField("headers."+k, "is not a header")
		}
		if http.CanonicalHeaderKey(k) == "Host" {
			return InvalidField("headers."+k, "cannot be set; it comes from the url")
		}
		if http.CanonicalHeaderKey(k) == "Authorization" && s.OAuth != nil && !s.OAuth.Off {
			return InvalidField("headers."+k, "and oauth exclude each other")
		}
	}
	if s.OAuth != nil {
		if field, problem := s.OAuth.Check(); field != "" {
			return InvalidField("oauth."+field, "%s", problem)
		}
	}
	return nil
}

func checkURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return InvalidField("url", "is not an http or https URL")
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

// describeJSON says which field of a server's configuration has the wrong type.
func describeJSON(raw []byte, err error) error {
	var known *sandbox.Error
	if errors.As(err, &known) {
		return known
	}
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) && wrong.Field != "" {
		return InvalidField(wrong.Field, "has the wrong type: %s", wrong.Value)
	}
	if errors.As(err, &wrong) {
		return sandbox.Errorf(sandbox.Invalid, "a server is an object, not a %s", wrong.Value)
	}
	return sandbox.Errorf(sandbox.Invalid, "not JSON (%d bytes)", len(raw))
}
