package serverconfig

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"net/url"
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

// expansion replaces ${NAME}, ${NAME:-default} and ${secret:NAME} and remembers what it put in. So none of
// it shows up in an error, nor a secret in an answer.
type expansion struct {
	lookup  func(string) (string, bool)
	secret  func(field, name string) (string, error)
	lend    func(value string) (string, error) // what a user's value stands for; nil: for itself
	secrets []string
	guessed []string
}

const secretPrefix = "secret:"

// text returns s with every ${…} replaced. An error names the variable that is not set, and field.
func (e *expansion) text(field, s string) (string, error) {
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
			return "", InvalidField(field, "a ${ without its }")
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
			return "", InvalidField(field, "the environment variable %.80q is not set", name)
		}
		b.WriteString(value)
		s = rest
	}
}

// minSecret is how long a value must be before it is hidden: hiding "1" would hide too much.
const minSecret = 6

// named returns the value of a secret.
func (e *expansion) named(field, name string, hasDefault bool) (string, error) {
	switch {
	case hasDefault:
		return "", InvalidField(field, "a secret has no default: write ${secret:%.80s}", name)
	case field == "command" || strings.HasPrefix(field, "args["):
		return "", InvalidField(field, "the secret %.80q cannot be here, where every process of the host sees it; put it into env", name)
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

func (e *expansion) hide(value string) {
	if len(value) >= minSecret {
		e.guessed = append(e.guessed, value)
	}
}

// sure hides what is a secret by where it stands, also in answers.
func (e *expansion) sure(value string) {
	if e.hide(value); len(value) >= minSecret {
		e.secrets = append(e.secrets, value)
	}
}

// Target is a server's configuration with everything put in.
type Target struct {
	Command string
	Args    []string
	Env     []string
	URL     string
	Headers map[string]string
	Redact  *Redactor
	OAuth   login.Settings
}

// Expander puts values into the configurations of servers.
type Expander struct {
	// LookupEnv returns the values that ${NAME} stands for.
	LookupEnv func(name string) (string, bool)
	// Secrets returns the values that ${secret:NAME} stands for; nil: a server that names one is not usable.
	Secrets Secrets
	// Sealer opens the values that users gave to plugins; nil: they are not encrypted.
	Sealer login.Sealer
}

// Expand puts in the variables and secrets for the connection of a scope. home is what ${HOME} stands for: the
// server's own home folder.
func (x *Expander) Expand(ctx context.Context, s *Server, scope Scope, home string) (*Target, error) {
	lookup := s.lookup(x.LookupEnv)
	e := &expansion{
		lookup: func(name string) (string, bool) {
			if name == "HOME" && home != "" {
				return home, true
			}
			return lookup(name)
		},
		secret: func(field, name string) (string, error) { return x.secret(ctx, s, scope, field, name) },
	}
	if s.User != nil {
		e.lend = func(value string) (string, error) { return x.lent(ctx, s, scope, value) }
	}
	return s.expand(e, home)
}

// secret returns the value of a secret for one field. A user's own counts where it is sent to the server, and not where it
// would say which server that is.
func (x *Expander) secret(ctx context.Context, s *Server, scope Scope, field, name string) (string, error) {
	if s.User != nil {
		return "", sandbox.Errorf(sandbox.Invalid, "a plugin cannot name secrets; set a value that it asks for to ${secret:%.80s}", name)
	}
	if x.Secrets == nil {
		return "", sandbox.Errorf(sandbox.Invalid, "the secret %.80q is known to a Skerry server only", name)
	}
	where, what, _ := strings.Cut(field, ".")
	own := where == "env" || where == "headers" || where == "oauth" && (slices.Contains(login.Secrets, what) || what == "client_id")
	ctx, cancel := context.WithTimeout(ctx, secretTime)
	defer cancel()
	return x.Secrets.ForServer(ctx, sandbox.SecretAsker{Owner: sandbox.Owner{Tenant: scope.Tenant, User: scope.User}, Server: s.Name, NotOwn: !own}, name)
}

// secretTime bounds the questions for one secret.
const secretTime = 5 * time.Second

// lent returns what a value stands for that a user has given to a plugin: one of the user's own secrets, or what is
// kept encrypted, or itself.
func (x *Expander) lent(ctx context.Context, s *Server, scope Scope, value string) (string, error) {
	o := sandbox.Owner{Tenant: scope.Tenant, User: scope.User}
	if sealed, ok := strings.CutPrefix(value, sandbox.SealedValue); ok && x.Sealer != nil {
		raw, err := base64.StdEncoding.DecodeString(sealed)
		if err != nil {
			return "", sandbox.Errorf(sandbox.Unavailable, "a value that is kept is damaged; set it anew")
		}
		plain, err := x.Sealer.Open(sandbox.PluginValuePurpose(o), raw)
		if err != nil {
			return "", sandbox.Wrap(sandbox.Unavailable, err, "a value that is kept cannot be read: %s", excerpt.Detail(err))
		}
		return string(plain), nil
	}
	name, ok := strings.CutPrefix(value, "${"+secretPrefix)
	if !ok || !strings.HasSuffix(name, "}") || x.Secrets == nil {
		return value, nil
	}
	ctx, cancel := context.WithTimeout(ctx, secretTime)
	defer cancel()
	return x.Secrets.ForServer(ctx, sandbox.SecretAsker{Owner: o, Server: s.Name, OwnOnly: true}, strings.TrimSuffix(name, "}"))
}

// expand puts in what the expansion knows.
func (s *Server) expand(e *expansion, home string) (*Target, error) {
	t := &Target{Headers: map[string]string{}}
	var err error
	if t.Command, err = e.text("command", s.Command); err != nil {
		return nil, err
	}
	for i, a := range s.Args {
		word, err := e.text(fmt.Sprintf("args[%d]", i), a)
		if err != nil {
			return nil, err
		}
		t.Args = append(t.Args, word)
	}
	for k, v := range s.Env {
		value, err := e.text("env."+k, v)
		if err != nil {
			return nil, err
		}
		if e.hide(value); secretName.MatchString(k) {
			e.sure(value)
		}
		t.Env = append(t.Env, k+"="+value)
	}
	for k, v := range s.Headers {
		value, err := e.text("headers."+k, v)
		if err != nil {
			return nil, err
		}
		if strings.ContainsAny(value, "\r\n\x00") {
			return nil, InvalidField("headers."+k, "its value has a line break")
		}
		e.hide(value)
		if telling := secretName.MatchString(k) || http.CanonicalHeaderKey(k) == "Cookie"; telling {
			e.sure(value)
		}
		if scheme, token, ok := strings.Cut(value, " "); ok && authScheme.MatchString(scheme) { // Bearer …
			e.sure(token)
		}
		t.Headers[k] = value
	}
	if t.URL, err = e.text("url", s.URL); err != nil {
		return nil, err
	}
	if s.Type != TransportStdio {
		if err := checkURL(t.URL); err != nil {
			return nil, err
		}
		e.hideURL(t.URL)
	}
	if home != "" {
		e.hide(home) // a folder of this host
	}
	if err := s.expandLogin(e, t); err != nil {
		return nil, err
	}
	if t.Redact, err = NewRedactor(e.secrets, e.guessed); err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "its secrets have more than %d bytes together", redact.MaxTotal)
	}
	return t, nil
}

// authScheme is what stands before a token.
var authScheme = regexp.MustCompile(`(?i)^(bearer|basic|token|apikey|key)$`)

// expandLogin puts the variables into "oauth".
func (s *Server) expandLogin(e *expansion, t *Target) error {
	if s.OAuth == nil {
		return nil
	}
	t.OAuth = *s.OAuth
	for name, text := range t.OAuth.Texts() {
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
func (e *expansion) hideURL(text string) {
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

// Sum changes when what a connection is made with does.
func (t *Target) Sum() [sha256.Size]byte {
	env := slices.Sorted(slices.Values(t.Env))
	text := fmt.Appendf(nil, "%q %q %q %q", t.Command, t.Args, env, t.URL)
	for _, k := range slices.Sorted(maps.Keys(t.Headers)) {
		text = fmt.Appendf(text, " %q:%q", k, t.Headers[k])
	}
	texts := t.OAuth.Texts()
	for _, name := range login.Secrets {
		text = fmt.Appendf(text, " %q:%q", name, *texts[name])
	}
	return sha256.Sum256(text)
}
