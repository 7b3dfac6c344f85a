package mcphub

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/mcphub/login"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// expander replaces ${NAME} and ${NAME:-default} and remembers what it put in, so that none of it shows
// up in an error.
type expander struct {
	lookup  func(string) (string, bool)
	secrets []string
}

// text gives s with every ${…} replaced. An error names the variable that is not set, and field.
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
		value, set := e.lookup(name)
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

func (e *expander) hide(value string) {
	if len(value) >= minSecret {
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

// expand puts in the variables. home is what ${HOME} stands for: the server's own home folder.
func (s *serverConfig) expand(lookup func(string) (string, bool), home string) (*target, error) {
	e := &expander{lookup: func(name string) (string, bool) {
		if name == "HOME" && home != "" {
			return home, true
		}
		return lookup(name)
	}}
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
		e.hide(value)
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
		if _, token, ok := strings.Cut(value, " "); ok { // Bearer …
			e.hide(token)
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
	t.redact = newRedactor(e.secrets)
	return t, nil
}

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
			e.hide(value)
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
		e.hide(p)
	}
	for _, values := range u.Query() {
		for _, v := range values {
			e.hide(v)
			e.hide(url.QueryEscape(v))
		}
	}
}

// configError makes what is wrong with a server's configuration the error of a call.
func configError(server string, err error) error {
	return sandbox.Errorf(sandbox.Unavailable, "the MCP server %q is not usable: %s", server, detailOf(err))
}
