// Package fold finds texts whatever their case, without a copy of what is searched.
package fold

import (
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// The signs outside of ASCII whose small letters, k and i, are in it.
const kelvin, dottedI = "\u212a", "\u0130"

// Text is what is looked for.
type Text struct {
	lower string
	at    int // of a byte that has one form only; -1: there is none, or not all of it is ASCII
}

// New returns the text to look for.
func New(text string) Text {
	t := Text{lower: strings.ToLower(text), at: -1}
	for i := range len(t.lower) {
		b := t.lower[i]
		if b >= utf8.RuneSelf {
			return Text{t.lower, -1}
		}
		if t.at < 0 && (b < 'a' || b > 'z') {
			t.at = i
		}
	}
	return t
}

// In reports whether the text is in s, as its small letters are in those of s.
func (t Text) In(s string) bool {
	if t.at < 0 || strings.Contains(s, kelvin) || strings.Contains(s, dottedI) {
		return strings.Contains(strings.ToLower(s), t.lower)
	}
	last := len(s) - (len(t.lower) - t.at) // the last place of the byte
	for from := t.at; from <= last; from++ {
		n := strings.IndexByte(s[from:last+1], t.lower[t.at])
		if n < 0 {
			return false
		}
		from += n
		if same(s[from-t.at:from-t.at+len(t.lower)], t.lower) {
			return true
		}
	}
	return false
}

// PlainInJSON reports whether a string of JSON has the text as it is: JSON without the text then has it in no string.
func PlainInJSON(text string) bool {
	quoted, err := json.Marshal(text)
	return err == nil && string(quoted) == `"`+text+`"`
}

func same(s, lower string) bool {
	for i := range len(s) {
		b := s[i]
		if b >= 'A' && b <= 'Z' {
			b += 'a' - 'A'
		}
		if b != lower[i] {
			return false
		}
	}
	return true
}
