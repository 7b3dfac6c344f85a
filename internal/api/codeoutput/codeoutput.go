// Package codeoutput reads what code wrote: text of bytes that come in pieces, and the error that the code ended with.
package codeoutput

import (
	"encoding/base64"
	"strings"
	"unicode/utf8"
)

// Thrown finds the error that code ended with in its output. For Python it is the first line after the last
// traceback that looks like an error's, because frames are indented. The head of the traceback names it, if
// any. Without a traceback (bad syntax), and in other languages, it is the first line that begins with the
// name of an error.
func Thrown(lang, complaint string) (name, value string, ok bool) {
	all := strings.Split(complaint, "\n")
	if lang != "python" {
		for _, line := range all {
			if name, value, ok = errorLine(strings.TrimPrefix(strings.TrimSpace(line), "Uncaught ")); ok && strings.HasSuffix(name, "Error") {
				return name, value, true
			}
		}
		return "", "", false
	}
	begin, head := -1, ""
	for i, line := range all {
		if before, _, found := strings.Cut(line, "Traceback (most recent call last)"); found {
			begin, head = i, strings.TrimSpace(before)
		}
	}
	for i := begin + 1; i < len(all); i++ {
		name, value, ok = errorLine(all[i])
		if ok && (name == head || head == "" && (begin >= 0 || strings.HasSuffix(name, "Error"))) {
			rest := append([]string{value}, all[i+1:]...)
			return name, strings.TrimRight(strings.Join(rest, "\n"), "\n"), true
		}
	}
	return "", "", false
}

// errorLine reads "Name: what", or "Name".
func errorLine(line string) (name, value string, ok bool) {
	name, value, _ = strings.Cut(line, ":")
	if name == "" || len(name) > 200 {
		return "", "", false
	}
	for i, c := range name {
		if c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (i == 0 || c != '.' && (c < '0' || c > '9')) {
			return "", "", false
		}
	}
	return name, strings.TrimPrefix(value, " "), true
}

// Text makes text of bytes that come in pieces, of which one may end within a character.
type Text struct{ left []byte }

// Add returns the characters that are whole now.
func (t *Text) Add(data []byte) string {
	all := append(t.left, data...)
	cut := len(all)
	for i := 1; i < utf8.UTFMax && i <= len(all); i++ {
		if c := all[len(all)-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(all[len(all)-i:]) {
				cut = len(all) - i
			}
			break
		}
	}
	t.left = append([]byte(nil), all[cut:]...)
	return strings.ToValidUTF8(string(all[:cut]), "\uFFFD")
}

// Rest returns what is left at the end.
func (t *Text) Rest() string {
	text := strings.ToValidUTF8(string(t.left), "\uFFFD")
	t.left = nil
	return text
}

// Readable is the text of output that the API sent, which is in base64 where it is no UTF-8.
func Readable(data, encoding string) string {
	if encoding != "base64" {
		return data
	}
	raw, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return data
	}
	return strings.ToValidUTF8(string(raw), "\uFFFD")
}

// Tail keeps the end of what comes.
type Tail struct{ data []byte }

// MaxTail bounds it, in bytes.
const MaxTail = 64 << 10

// Add adds what came.
func (t *Tail) Add(data []byte) {
	t.data = append(t.data, data...)
	if len(t.data) > 2*MaxTail {
		t.data = append([]byte(nil), t.data[len(t.data)-MaxTail:]...)
	}
}

func (t *Tail) String() string {
	return strings.ToValidUTF8(string(t.data[max(0, len(t.data)-MaxTail):]), "\uFFFD")
}
