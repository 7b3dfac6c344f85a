package serverconfig

import (
	"encoding/json"
	"net/url"
	"regexp"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/platform/jsonedit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/excerpt"
)

// People write secrets into arguments and URLs, which have no place of their own for them. What looks
// like one is not shown. It is a guess that errs on the side of hiding: a mask that is sent back stands
// for what is stored.
var (
	secretName = regexp.MustCompile(`(?i)(token|secret|passw|pwd|api[-_]?key|access[-_]?key|private[-_]?key|auth|bearer|credential|signature|^-*(key|sig|pat)$)`)
	// secretText is how the tokens of well-known services begin, and JSON Web Tokens.
	secretText = regexp.MustCompile(`\b(sk-|pk_live_|sk_live_|gh[opsru]_|github_pat_|glpat-|xox[abeprs]-|AKIA|ASIA|AIza|npm_|dop_v1_|hf_|ntn_|secret_|lin_api_|sntrys_|eyJ)[A-Za-z0-9_\-.=/+]{8,}`)
	// longWord is what a path's segment looks like that is a key.
	longWord = regexp.MustCompile(`^[A-Za-z0-9_\-]{20,}$`)
	anyDigit = regexp.MustCompile(`[0-9]`)
)

// isReference reports whether a text names its secret, as ${NAME}, and does not have it.
func isReference(s string) bool { return strings.Contains(s, "${") }

// maskedArgs returns arguments as they are shown.
func maskedArgs(args []string) []string {
	out := make([]string, len(args))
	next := false // the argument is the value of a flag that takes a secret
	for i, a := range args {
		flag := strings.HasPrefix(a, "-")
		name, value, assigned := strings.Cut(a, "=")
		switch {
		case next && !flag && !isReference(a):
			out[i] = Mask
		case assigned && !strings.ContainsAny(name, "/?") && secretName.MatchString(name) && value != "" && !isReference(value):
			out[i] = name + "=" + Mask
		default:
			out[i] = maskedText(a)
		}
		next = flag && !assigned && secretName.MatchString(a)
	}
	return out
}

// maskedText masks what looks like a secret within a text, which may be a URL.
func maskedText(s string) string {
	if i := strings.Index(s, "://"); i >= 0 && !strings.ContainsAny(s, " \n") {
		s = maskedURL(s)
	}
	return secretText.ReplaceAllString(s, Mask)
}

// maskedURL masks the password, the secret parameters and the long words of a URL. It works on the
// text: a URL with ${NAME} in it need not parse.
func maskedURL(s string) string {
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok {
		return s
	}
	rest, fragment, hasFragment := strings.Cut(rest, "#")
	rest, query, hasQuery := strings.Cut(rest, "?")
	host, path, hasPath := strings.Cut(rest, "/")
	if i := strings.LastIndexByte(host, '@'); i >= 0 {
		if user, password, ok := strings.Cut(host[:i], ":"); ok && !isReference(password) {
			host = user + ":" + Mask + host[i:]
		}
	}
	out := scheme + "://" + host
	if hasPath {
		parts := strings.Split(path, "/")
		for i, p := range parts {
			if longWord.MatchString(p) && anyDigit.MatchString(p) {
				parts[i] = Mask
			}
		}
		out += "/" + strings.Join(parts, "/")
	}
	if hasQuery {
		parts := strings.Split(query, "&")
		for i, p := range parts {
			name, value, _ := strings.Cut(p, "=")
			plain, err := url.QueryUnescape(name)
			if err != nil {
				plain = name
			}
			if value != "" && !isReference(value) && (secretName.MatchString(plain) || longWord.MatchString(value) && anyDigit.MatchString(value)) {
				parts[i] = name + "=" + Mask
			}
		}
		out += "?" + strings.Join(parts, "&")
	}
	if hasFragment {
		out += "#" + fragment
	}
	return secretText.ReplaceAllString(out, Mask)
}

// maskGuessed masks arguments and URL of a configuration.
func maskGuessed(raw []byte) ([]byte, error) {
	out := raw
	for _, m := range sections(raw, "args") {
		var args []string
		if json.Unmarshal(m.Value(raw), &args) != nil {
			continue // it is not used, and checked elsewhere
		}
		text, err := json.Marshal(maskedArgs(args))
		if err != nil {
			return nil, err
		}
		if out, err = jsonedit.Set(out, nil, m.Key, text); err != nil {
			return nil, err
		}
	}
	for _, m := range sections(raw, "url") {
		var text string
		if json.Unmarshal(m.Value(raw), &text) != nil {
			continue
		}
		var err error
		if out, err = jsonedit.Set(out, nil, m.Key, excerpt.JSON(maskedURL(text))); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// unmaskGuessed puts what is stored in the place of arguments and a URL that were sent back masked.
func unmaskGuessed(raw []byte, stored *Server) ([]byte, error) {
	out := raw
	for _, m := range sections(raw, "args") {
		var args []string
		if json.Unmarshal(m.Value(raw), &args) != nil || !strings.Contains(strings.Join(args, " "), Mask) {
			continue
		}
		if err := unmaskArgs(args, stored); err != nil {
			return nil, err
		}
		text, err := json.Marshal(args)
		if err != nil {
			return nil, err
		}
		if out, err = jsonedit.Set(out, nil, m.Key, text); err != nil {
			return nil, err
		}
	}
	for _, m := range sections(raw, "url") {
		var text string
		if json.Unmarshal(m.Value(raw), &text) != nil || !strings.Contains(text, Mask) {
			continue
		}
		if stored == nil || maskedURL(stored.URL) != text {
			return nil, InvalidField("url", "has %q, and differs from the stored one; write it whole", Mask)
		}
		var err error
		if out, err = jsonedit.Set(out, nil, m.Key, excerpt.JSON(stored.URL)); err != nil {
			return nil, sandbox.Wrap(sandbox.Invalid, err, "the configuration cannot be read")
		}
	}
	return out, nil
}

// unmaskArgs replaces each masked argument by the next stored one with the same mask.
func unmaskArgs(args []string, stored *Server) error {
	var kept, shown []string
	if stored != nil {
		kept, shown = stored.Args, maskedArgs(stored.Args)
	}
	from := 0
	for i, a := range args {
		if !strings.Contains(a, Mask) {
			continue
		}
		for from < len(shown) && shown[from] != a {
			from++
		}
		if from == len(shown) {
			return InvalidField("args", "the %dth is %.80q, but none is stored that it could stand for", i+1, a)
		}
		args[i] = kept[from]
		from++
	}
	return nil
}
