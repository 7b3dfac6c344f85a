package policy

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"strings"
)

// Redaction is what rules hide: of arguments in records and approvals, of results before code or agents see them.
type Redaction struct {
	Args, Result Hidden
}

// Hidden are parts of a JSON value that are replaced by "[redacted]".
type Hidden struct {
	// Fields are names, at any depth and in any case, or paths that end in them ("user.ssn"); in an array every
	// element is looked at.
	Fields []string
	// Patterns are hidden within texts.
	Patterns []*regexp.Regexp
}

const redacted = "[redacted]"

func (h Hidden) empty() bool { return len(h.Fields) == 0 && len(h.Patterns) == 0 }

// apply returns text without what is hidden. Of a text that is no JSON nothing is left.
func (h Hidden) apply(text []byte) json.RawMessage {
	if h.empty() || len(bytes.TrimSpace(text)) == 0 {
		return text
	}
	v, err := parse(text)
	if err == nil {
		var out bytes.Buffer
		enc := json.NewEncoder(&out)
		enc.SetEscapeHTML(false)
		if err = enc.Encode(h.value(v, nil)); err == nil {
			return bytes.TrimRight(out.Bytes(), "\n")
		}
	}
	return json.RawMessage(`"` + redacted + `"`)
}

// value hides in place and returns what takes the value's place.
func (h Hidden) value(v any, path []string) any {
	switch v := v.(type) {
	case map[string]any:
		for name, x := range maps.Clone(v) {
			at := append(path[:len(path):len(path)], name)
			shown := h.found(name)
			if shown != name { // two names may become one: then the value of one of them is left
				delete(v, name)
			}
			if v[shown] = h.value(x, at); h.hides(at) {
				v[shown] = redacted
			}
		}
	case []any:
		for i := range v {
			v[i] = h.value(v[i], path)
		}
	case string:
		return h.text(v)
	case json.Number:
		if h.found(string(v)) != string(v) {
			return redacted
		}
	}
	return v
}

// text hides what the patterns find. A text that is itself JSON is looked into.
func (h Hidden) text(s string) string {
	if t := strings.TrimSpace(s); len(h.Fields) > 0 && len(t) > 1 && (t[0] == '{' || t[0] == '[') {
		v, err := parse([]byte(t))
		if err == nil {
			if out, err := json.Marshal(h.value(v, nil)); err == nil {
				return string(out)
			}
		}
		if json.Valid([]byte(t)) { // its fields cannot be told: a name is there twice
			return redacted
		}
	}
	return h.found(s)
}

// found hides what the patterns find.
func (h Hidden) found(s string) string {
	for _, p := range h.Patterns {
		s = p.ReplaceAllLiteralString(s, redacted)
	}
	return s
}

// hides reports whether the path ends in one of the fields.
func (h Hidden) hides(path []string) bool {
	for _, f := range h.Fields {
		parts := strings.Split(f, ".")
		if len(parts) > len(path) {
			continue
		}
		tail, same := path[len(path)-len(parts):], true
		for i := range parts {
			same = same && foldName(parts[i]) == foldName(tail[i])
		}
		if same {
			return true
		}
	}
	return false
}
