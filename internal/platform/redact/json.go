package redact

import (
	"bytes"
	"encoding/json"

	"github.com/skerry-sandbox/skerry/internal/platform/jsonedit"
)

// maxEscaped bounds the texts with \u in them that are decoded for what the escapes may hide.
const maxEscaped = 4 << 20

// maxValues bounds the texts that are decoded, too: a value has two bytes and takes a hundred.
const maxValues = 200_000

// JSON returns a JSON text without secrets, as JSON: where a secret is more than a part of a string, such as a
// number, a string stands in its place. text itself when none is in it. What is no JSON is hidden as Bytes does.
func (s *Secrets) JSON(text json.RawMessage) json.RawMessage {
	if s == nil || len(text) == 0 {
		return text
	}
	found := s.in(text)
	if jsonedit.Values(text) > maxValues {
		return s.undecoded(text, found)
	}
	if !found && (len(text) > maxEscaped || !bytes.Contains(text, []byte(`\u`))) {
		return text
	}
	if found {
		if out := s.Bytes(text); json.Valid(out) || !json.Valid(text) {
			text = out
			if !bytes.Contains(text, []byte(`\u`)) {
				return text
			}
		}
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return s.Bytes(text)
	}
	v, changed := s.value(v)
	if !changed {
		return text
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if enc.Encode(v) != nil {
		return json.RawMessage(`"` + Marker + `"`)
	}
	return bytes.TrimSpace(out.Bytes())
}

// undecoded is JSON for a text that has too many values to be decoded.
func (s *Secrets) undecoded(text json.RawMessage, found bool) json.RawMessage {
	if !found {
		return text
	}
	if out := s.Bytes(text); json.Valid(out) || !json.Valid(text) {
		return out
	}
	return json.RawMessage(`"` + Marker + `"`)
}

// value hides secrets in a decoded value.
func (s *Secrets) value(v any) (out any, changed bool) {
	switch v := v.(type) {
	case string:
		hidden := s.String(v)
		return hidden, hidden != v
	case json.Number:
		if hidden := s.String(v.String()); hidden != v.String() {
			return hidden, true
		}
	case []any:
		for i := range v {
			item, is := s.value(v[i])
			v[i], changed = item, changed || is
		}
		return v, changed
	case map[string]any:
		for name, member := range v {
			hidden := s.String(name)
			item, is := s.value(member)
			if hidden != name {
				delete(v, name)
				is = true
			}
			if is {
				v[hidden], changed = item, true
			}
		}
		return v, changed
	}
	return v, false
}
