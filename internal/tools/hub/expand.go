package hub

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/platform/redact"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/excerpt"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/login"
)

// Secrets returns the values of secrets by name. An error is for callers, and names the secret; there is never an
// empty value.
type Secrets interface {
	ForServer(ctx context.Context, a sandbox.SecretAsker, name string) (string, error)
}

// Sealer encrypts what is kept in files. Only with the same purpose a text is opened again.
type Sealer = login.Sealer

// expander replaces ${NAME}, ${NAME:-default} and ${secret:NAME} and remembers what it put in, so that none
// of it shows up in an error, nor a secret in an answer.
type expander struct {
	lookup  func(string) (string, bool)
	secret  func(field, name string) (string, error)
	lend    func(value string) (string, error) // what a user's value stands for; nil: for itself
	secrets []string
	guessed []string
}

const secretPrefix = "secret:"

// text returns s with every ${…} replaced. An error names the variable that is not set, and field.
func (e *expander) text(field, s string) (string, error) {
	var b strings.Builder
	for {
		i := strings.Index(s, "${")
		if i < 0 {
			b.WriteString(s)
			return b.String(), nil
		}
		b.WriteString(s[:i])
		name, rest, ok := strings.Cut(s[i+2:], "}")
		if !ok {
			return "", invalidField(field, "a ${ without its }")
		}
		name, fallback, hasDefault := strings.Cut(name, ":-")
		if secret, ok := strings.CutPrefix(name, secretPrefix); ok {
			value, err := e.named(field, secret, hasDefault)
			if err != nil {
				return "", err
			}
			b.WriteString(value)
			s = rest
			continue
		}
		value, set := e.lookup(name)
		if set && e.lend != nil {
			lent, err := e.lend(value)
			if err != nil {
				return "", asField(field, err)
			}
			if lent != value {
				e.secrets = append(e.secrets, lent)
			}
			value = lent
		}
		switch {
		case set && (value != "" || !hasDefault):
			e.hide(value)
		case hasDefault:
			value = fallback
		default:
			return "", invalidField(field, "the environment variable %.80q is not set", name)
		}
		b.WriteString(value)
		s = rest
	}
}

// minSecret is how long a value must be before it is hidden: hiding "1" would hide too much.
const minSecret = 6

// named returns the value of a secret.
func (e *expander) named(field, name string, hasDefault bool) (string, error) {
	switch {
	case hasDefault:
		return "", invalidField(field, "a secret has no default: write ${secret:%.80s}", name)
	case field == "command" || strings.HasPrefix(field, "args["):
		return "", invalidField(field, "the secret %.80q cannot be here, where every process of the host sees it; put it into env", name)
	}
	value, err := e.secret(field, name)
	if err != nil {
		return "", asField(field, err)
	}
	e.secrets = append(e.secrets, value)
	return value, nil
}

// asField is an error about one field of a configuration.
func asField(field string, err error) error {
	detail := excerpt.Detail(err)
	return &sandbox.Error{Kind: sandbox.KindOf(err), Detail: field + ": " + detail, Fields: []sandbox.Field{{Name: field, Detail: detail}}, Err: err}
}

func (e *expander) hide(value string) {
	if len(value) >= minSecret {
		e.guessed = append(e.guessed, value)
	}
}

// sure hides what is a secret by where it stands, also in answers.
func (e *expander) sure(value string) {
	if e.hide(value); len(value) >= minSecret {
		e.secrets = append(e.secrets, value)
	}
}

// target is a server's configuration with everything put in.
type target struct {
	command string
	args    []string
	env     []string
	url     string
	headers map[string]string
	redact  *redactor
	oauth   login.Settings
}

// expand puts in the variables and secrets for the connection of a scope. home is what ${HOME} stands for: the
// server's own home folder.
func (h *Hub) expand(ctx context.Context, s *serverConfig, scope scopeKey, home string) (*target, error) {
	lookup := s.lookup(h.o.LookupEnv)
	e := &expander{
		lookup: func(name string) (string, bool) {
			if name == "HOME" && home != "" {
				return home, true
			}
			return lookup(name)
		},
		secret: func(field, name string) (string, error) { return h.secret(ctx, s, scope, field, name) },
	}
	if s.user != nil {
		e.lend = func(value string) (string, error) { return h.lent(ctx, s, scope, value) }
	}
	return s.expand(e, home)
}

// secret returns the value of a secret for one field. A user's own counts where it is sent to the server, and not where it
// would say which server that is.
func (h *Hub) secret(ctx context.Context, s *serverConfig, scope scopeKey, field, name string) (string, error) {
	if s.user != nil {
		return "", sandbox.Errorf(sandbox.Invalid, "a plugin cannot name secrets; set a value that it asks for to ${secret:%.80s}", name)
	}
	if h.o.Secrets == nil {
		return "", sandbox.Errorf(sandbox.Invalid, "the secret %.80q is known to a Skerry server only", name)
	}
	where, what, _ := strings.Cut(field, ".")
	own := where == "env" || where == "headers" || where == "oauth" && (slices.Contains(login.Secrets, what) || what == "client_id")
	ctx, cancel := context.WithTimeout(ctx, secretTime)
	defer cancel()
	return h.o.Secrets.ForServer(ctx, sandbox.SecretAsker{Owner: sandbox.Owner{Tenant: scope.tenant, User: scope.user}, Server: s.name, NotOwn: !own}, name)
}

// secretTime bounds the questions for one secret.
const secretTime = 5 * time.Second

// lent returns what a value stands for that a user has given to a plugin: one of the user's own secrets, or what is
// kept encrypted, or itself.
func (h *Hub) lent(ctx context.Context, s *serverConfig, scope scopeKey, value string) (string, error) {
	o := sandbox.Owner{Tenant: scope.tenant, User: scope.user}
	if sealed, ok := strings.CutPrefix(value, sandbox.SealedValue); ok && h.o.Sealer != nil {
		raw, err := base64.StdEncoding.DecodeString(sealed)
		if err != nil {
			return "", sandbox.Errorf(sandbox.Unavailable, "a value that is kept is damaged; set it anew")
		}
		plain, err := h.o.Sealer.Open(sandbox.PluginValuePurpose(o), raw)
		if err != nil {
			return "", sandbox.Wrap(sandbox.Unavailable, err, "a value that is kept cannot be read: %s", excerpt.Detail(err))
		}
		return string(plain), nil
	}
	name, ok := strings.CutPrefix(value, "${"+secretPrefix)
	if !ok || !strings.HasSuffix(name, "}") || h.o.Secrets == nil {
		return value, nil
	}
	ctx, cancel := context.WithTimeout(ctx, secretTime)
	defer cancel()
	return h.o.Secrets.ForServer(ctx, sandbox.SecretAsker{Owner: o, Server: s.name, OwnOnly: true}, strings.TrimSuffix(name, "}"))
}

// expand puts in what the expander knows.
func (s *serverConfig) expand(e *expander, home string) (*target, error) {
	t := &target{headers: map[string]string{}}
	var err error
	if t.command, err = e.text("command", s.Command); err != nil {
		return nil, err
	}
	for i, a := range s.Args {
		word, err := e.text(fmt.Sprintf("args[%d]", i), a)
		if err != nil {
			return nil, err
		}
		t.args = append(t.args, word)
	}
	for k, v := range s.Env {
		value, err := e.text("env."+k, v)
		if err != nil {
			return nil, err
		}
		if e.hide(value); secretName.MatchString(k) {
			e.sure(value)
		}
		t.env = append(t.env, k+"="+value)
	}
	for k, v := range s.Headers {
		value, err := e.text("headers."+k, v)
		if err != nil {
			return nil, err
		}
		if strings.ContainsAny(value, "\r\n\x00") {
			return nil, invalidField("headers."+k, "its value has a line break")
		}
		e.hide(value)
		if telling := secretName.MatchString(k) || http.CanonicalHeaderKey(k) == "Cookie"; telling {
			e.sure(value)
		}
		if scheme, token, ok := strings.Cut(value, " "); ok && authScheme.MatchString(scheme) { // Bearer …
			e.sure(token)
		}
		t.headers[k] = value
	}
	if t.url, err = e.text("url", s.URL); err != nil {
		return nil, err
	}
	if s.Type != transportStdio {
		if err := checkURL(t.url); err != nil {
			return nil, err
		}
		e.hideURL(t.url)
	}
	if home != "" {
		e.hide(home) // a folder of this host
	}
	if err := s.expandLogin(e, t); err != nil {
		return nil, err
	}
	if t.redact, err = newRedactor(e.secrets, e.guessed); err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "its secrets have more than %d bytes together", redact.MaxTotal)
	}
	return t, nil
}

// authScheme is what stands before a token.
var authScheme = regexp.MustCompile(`(?i)^(bearer|basic|token|apikey|key)$`)

// expandLogin puts the variables into "oauth".
func (s *serverConfig) expandLogin(e *expander, t *target) error {
	if s.OAuth == nil {
		return nil
	}
	t.oauth = *s.OAuth
	for name, text := range t.oauth.Texts() {
		value, err := e.text("oauth."+name, *text)
		if err != nil {
			return err
		}
		if slices.Contains(login.Secrets, name) {
			e.sure(value)
		}
		*text = value
	}
	return nil
}

// hideURL hides what people put into URLs.
func (e *expander) hideURL(text string) {
	u, err := url.Parse(text)
	if err != nil {
		return
	}
	if p, ok := u.User.Password(); ok {
		e.sure(p)
	}
	for name, values := range u.Query() {
		for _, v := range values {
			e.hide(v)
			if e.hide(url.QueryEscape(v)); secretName.MatchString(name) {
				e.sure(v)
			}
		}
	}
}

// configError makes what is wrong with a server's configuration the error of a call.
func configError(server string, err error) error {
	return sandbox.Errorf(sandbox.Unavailable, "the MCP server %q is not usable: %s", server, excerpt.Detail(err))
}

// sum changes when what a connection is made with does.
func (t *target) sum() [sha256.Size]byte {
	env := slices.Sorted(slices.Values(t.env))
	text := fmt.Appendf(nil, "%q %q %q %q", t.command, t.args, env, t.url)
	for _, k := range slices.Sorted(maps.Keys(t.headers)) {
		text = fmt.Appendf(text, " %q:%q", k, t.headers[k])
	}
	texts := t.oauth.Texts()
	for _, name := range login.Secrets {
		text = fmt.Appendf(text, " %q:%q", name, *texts[name])
	}
	return sha256.Sum256(text)
}

// SecretsChanged looks at all connections: a connection that would be made with other values now ends after its calls, and
// is made anew when it is needed.
func (h *Hub) SecretsChanged() {
	h.spawn(func() {
		h.mu.Lock()
		conns := make([]*conn, 0, len(h.conns))
		for _, c := range h.conns {
			conns = append(conns, c)
		}
		h.mu.Unlock()
		for _, c := range conns {
			if c.outdated() {
				h.retire(func(other *conn) bool { return other == c })
			}
		}
	})
}

// outdated reports whether the connection has, or waits with an error for, other values than there are now.
func (c *conn) outdated() bool {
	if !bytes.Contains(c.cfg.raw, []byte("${"+secretPrefix)) && c.cfg.user == nil {
		return false
	}
	c.mu.Lock()
	l, err := c.link, c.err
	c.mu.Unlock()
	if l == nil {
		return err != nil // what was missing may be there now
	}
	home := ""
	switch {
	case c.cfg.Type == transportStdio && c.cfg.Sandbox.on:
		home = isolatedHome
	case c.cfg.Type == transportStdio:
		home = filepath.Join(c.h.homes.dir, dialer{c}.homeName())
	}
	t, err := c.h.expand(c.h.ctx, c.cfg, c.key.scope, home)
	return sandbox.KindOf(err) != sandbox.Unavailable && (err != nil || t.sum() != l.made)
}
