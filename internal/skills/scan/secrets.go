package scan

import (
	"bytes"
	"math"
	"regexp"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// secret is a form of credential. The first group, or else the whole match, is the secret itself.
type secret struct {
	what    string
	hint    string // in lower case
	pattern *regexp.Regexp
	entropy float64 // bits a character that it has at least; 0 = not asked
	generic bool    // only looks like one: a warning
}

var secretForms = []secret{
	{"a private key", privateKey, re(`-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----`), 0, false},
	{"an AWS access key", "a", re(`\b((?:AKIA|ASIA)[0-9A-Z]{16})\b`), 3, false},
	{"a GitHub token", "gh", re(`\b(gh[pousr]_[A-Za-z0-9]{36,})\b`), 3.5, false},
	{"a GitHub token", "github_pat_", re(`\b(github_pat_[A-Za-z0-9_]{60,})\b`), 3.5, false},
	{"a GitLab token", "glpat-", re(`\b(glpat-[A-Za-z0-9_-]{20,})\b`), 3, false},
	{"a Slack token", "xox", re(`\b(xox[abprs]-[0-9A-Za-z-]{20,})\b`), 3, false},
	{"an Anthropic key", "sk-ant-", re(`\b(sk-ant-[A-Za-z0-9_-]{32,})`), 3.5, false},
	{"an OpenAI key", "sk-", re(`\b(sk-(?:proj-)?[A-Za-z0-9_]{40,})\b`), 4, false},
	{"a Google API key", "aiza", re(`\b(AIza[0-9A-Za-z_-]{35})\b`), 3.5, false},
	{"a Stripe key", "_live_", re(`\b([rs]k_live_[0-9A-Za-z]{20,})\b`), 3.5, false},
	{"an npm token", "npm_", re(`\b(npm_[A-Za-z0-9]{36})\b`), 3.5, false},
	{"a Hugging Face token", "hf_", re(`\b(hf_[A-Za-z0-9]{34,})\b`), 3.5, false},
	{"a PyPI token", "pypi-", re(`\b(pypi-AgEI[A-Za-z0-9_-]{50,})`), 3.5, false},
	{"a signed token (JWT)", "eyj", re(`\b(eyJ[A-Za-z0-9_-]{15,}\.eyJ[A-Za-z0-9_-]{15,}\.[A-Za-z0-9_-]{20,})`), 4, true},
	{"a password in an address", "://", re(`[a-z][a-z0-9+]*://[^/\s:@'"<>{}$]+:([^/\s@'"<>{}$]{12,})@`), 3.3, true},
	{"a secret", "key", re(assigned), 3.7, true},
	{"a secret", "secret", re(assigned), 3.7, true},
	{"a secret", "token", re(assigned), 3.7, true},
	{"a secret", "passw", re(assigned), 3.7, true},
}

const assigned = `(?i)(?:api_?-?key|secret(?:_?key)?|access_?token|auth_?token|bearer_?token|passw(?:or)?d|client_?secret|private_?key)["']?\s*(?::|=|:=|=>)\s*["']([A-Za-z0-9+/_=.~!@#%^&*-]{20,})["']`

const privateKey = "private key"

// exampleLine says of itself that what looks like a secret is none.
var exampleLine = regexp.MustCompile(`(?i)\b(?:examples?|sample|dummy|fake|placeholder)\b`)

// abridged reports whether the header of a key stands before what documents write in the place of one.
func (s *scanner) abridged(line string) bool {
	_, after, _ := strings.Cut(line, "PRIVATE KEY-----")
	body := strings.TrimSpace(strings.ReplaceAll(after, `\n`, " "))
	if body = strings.Trim(body, `"'`); body == "" {
		next, _, _ := bytes.Cut(s.rest, []byte("\n"))
		body = strings.TrimSpace(string(next[:min(len(next), maxLine)]))
	}
	return body != "" && (placeholder.MatchString(body) || len(body) < 16)
}

// placeholder is what documents write in the place of a secret.
var placeholder = regexp.MustCompile(`(?i)example|xxxx|\*\*\*|your[_-]?|placeholder|change[_-]?me|dummy|sample|redacted|insert|replace|1234567|abcdef|test|\.\.\.|<|\$\{|process\.env|environ`)

func (s *scanner) secrets(line, lower string, number int) {
	for i := range secretForms {
		f := &secretForms[i]
		if !strings.Contains(lower, f.hint) {
			continue
		}
		m := f.pattern.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		text := m[len(m)-1]
		if f.entropy > 0 && (entropy(text) < f.entropy || placeholder.MatchString(text)) {
			continue
		}
		if f.hint == privateKey && s.abridged(line) {
			continue
		}
		severity := sandbox.SeverityError
		if f.generic || f.hint != privateKey && exampleLine.MatchString(line) {
			severity = sandbox.SeverityWarning
		}
		s.add("secret", severity, number, "looks like "+f.what+": take it out, and revoke it")
		return
	}
}

// entropy is Shannon's, in bits a character: a word has less than 3, a random text of 20 or more
// characters above 3.5.
func entropy(text string) float64 {
	count := map[rune]float64{}
	n := 0.0
	for _, r := range text {
		count[r]++
		n++
	}
	sum := 0.0
	for _, c := range count {
		sum -= c / n * math.Log2(c/n)
	}
	return sum
}
