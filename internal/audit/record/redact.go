package record

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"regexp"
	"unicode/utf8"
)

// hidden stands for a value that the log does not keep.
const hidden = "***"

// secretName finds a telling name. Each exec's arguments are searched through. Nearly all of them are ASCII,
// which is searched without the expression, in a tenth of the time.
var secretName = regexp.MustCompile(`(?i)pass|secret|token|key|authorization|cookie|credential`)

// secretWords are those of secretName by their first letter.
var secretWords = func() (words ['z' + 1][]string) {
	for _, w := range []string{"pass", "secret", "token", "key", "authorization", "cookie", "credential"} {
		words[w[0]] = append(words[w[0]], w)
		words[w[0]-'a'+'A'] = words[w[0]]
	}
	return words
}()

// telling reports whether secretName is in the text.
func telling(text []byte) bool {
	for i, c := range text {
		if c >= utf8.RuneSelf { // some of those count as ASCII letters to the expression
			return secretName.Match(text)
		}
		if int(c) >= len(secretWords) {
			continue
		}
		for _, w := range secretWords[c] {
			if len(text)-i >= len(w) && asciiFold(text[i:i+len(w)], w) {
				return true
			}
		}
	}
	return false
}

// asciiFold compares text with a word in small letters.
func asciiFold(text []byte, word string) bool {
	for i := range len(word) {
		if c := text[i]; c != word[i] && c != word[i]-'a'+'A' {
			return false
		}
	}
	return true
}

// Args returns what a Record keeps of a call's arguments: their JSON with the values of telling names
// ("password", "api_key", "Authorization" …) as "***", at most 4 KiB; and the sha256 hex of their
// JSON as it was. A json.RawMessage is hashed byte by byte as it came.
func Args(v any) (args json.RawMessage, hash string) {
	text, ok := v.(json.RawMessage)
	if !ok {
		var err error
		if text, err = json.Marshal(v); err != nil {
			return json.RawMessage(`{"unreadable":true}`), ""
		}
	}
	sum := sha256.Sum256(text)
	return redact(text), hex.EncodeToString(sum[:])
}

// needsRedaction is a cheap look at arguments that are most likely redacted already.
func needsRedaction(text json.RawMessage) bool {
	return len(text) > maxArgs || telling(text) || bytes.Contains(text, []byte(`\u`)) || !json.Valid(text)
}

// redact returns valid JSON of at most maxArgs bytes. Arguments that are longer become
// {"bytes": …, "begin": …, "truncated": true}, where begin is a part of the redacted text.
func redact(text json.RawMessage) json.RawMessage {
	if len(text) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return summary(len(text), "")
	}
	if _, err := d.Token(); err != io.EOF {
		return summary(len(text), "")
	}
	out, err := json.Marshal(hide(v))
	if err != nil {
		return summary(len(text), "")
	}
	if len(out) <= maxArgs {
		return out
	}
	return summary(len(text), string(out))
}

// summary stands for arguments that are too long or no JSON.
func summary(size int, text string) json.RawMessage {
	for keep := maxArgs - 128; ; keep /= 2 { // escaping may make the text longer
		out, err := json.Marshal(map[string]any{"truncated": true, "bytes": size, "begin": cut(text, keep)})
		if err == nil && len(out) <= maxArgs {
			return out
		}
	}
}

func hide(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			if telling([]byte(name)) && value != nil {
				v[name] = hidden
			} else {
				v[name] = hide(value)
			}
		}
	case []any:
		for i := range v {
			v[i] = hide(v[i])
		}
	}
	return v
}
