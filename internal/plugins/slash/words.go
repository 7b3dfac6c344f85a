package slash

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Limits of the arguments of a command.
const (
	MaxArguments = 64 << 10 // bytes
	maxWords     = 1000
)

// Words splits the arguments of a command as a shell does: blanks part words; '…' holds everything, "…" all but \" \\
// \$ and \`, and a backslash the next character. Nothing is expanded. A quote that is never closed
// stands for itself, because people write don't. Invalid when there are too many.
func Words(args string) ([]string, error) {
	if len(args) > MaxArguments {
		return nil, sandbox.Errorf(sandbox.Invalid, "the arguments have more than %d bytes", MaxArguments)
	}
	var words []string
	rest := args
	for {
		rest = strings.TrimLeftFunc(rest, unicode.IsSpace)
		if rest == "" {
			return words, nil
		}
		if len(words) == maxWords {
			return nil, sandbox.Errorf(sandbox.Invalid, "more than %d arguments", maxWords)
		}
		var w string
		w, rest = word(rest)
		words = append(words, w)
	}
}

// word takes one word off the front of s, which does not begin with a blank.
func word(s string) (w, rest string) {
	var b strings.Builder
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '\\' && i+1 < len(s):
			b.WriteByte(s[i+1]) // a character of several bytes goes on in the next rounds
			i += 2
		case c == '\'':
			text, after, closed := strings.Cut(s[i+1:], "'")
			if !closed { // an apostrophe
				b.WriteByte(c)
				i++
				continue
			}
			b.WriteString(text)
			i = len(s) - len(after)
		case c == '"':
			text, n, closed := doubleQuoted(s[i+1:])
			if !closed {
				b.WriteByte(c)
				i++
				continue
			}
			b.WriteString(text)
			i += 1 + n
		default:
			r, n := utf8.DecodeRuneInString(s[i:])
			if unicode.IsSpace(r) {
				return b.String(), s[i:]
			}
			b.WriteString(s[i : i+n])
			i += n
		}
	}
	return b.String(), ""
}

// doubleQuoted reads up to the closing quote; n is how many bytes that took.
func doubleQuoted(s string) (text string, n int, closed bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return b.String(), i + 1, true
		case c == '\\' && i+1 < len(s) && strings.IndexByte("\"\\$`", s[i+1]) >= 0:
			i++
			b.WriteByte(s[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", 0, false
}
