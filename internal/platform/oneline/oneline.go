// Package oneline makes texts of strangers fit to be shown.
package oneline

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Of makes one line of at most so many characters of a text that strangers wrote.
func Of(s string, most int) string {
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) || r == utf8.RuneError }), " ")
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most-1]) + "…"
}
