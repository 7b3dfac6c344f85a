package codeapi

import (
	"strconv"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/tools/codeapi/wrapperpath"
)

func isUpper(c byte) bool  { return c >= 'A' && c <= 'Z' }
func isLower(c byte) bool  { return c >= 'a' && c <= 'z' }
func isDigit(c byte) bool  { return c >= '0' && c <= '9' }
func isLetter(c byte) bool { return isUpper(c) || isLower(c) }

// isIdentifier reports whether s can be written as a name in TypeScript and in Python, keywords aside.
func isIdentifier(s string) bool {
	for i := range len(s) {
		if !isLetter(s[i]) && s[i] != '_' && (i == 0 || !isDigit(s[i])) {
			return false
		}
	}
	return s != ""
}

// words returns the parts of a name between characters that no identifier has.
func words(name string) []string {
	return strings.FieldsFunc(name, func(r rune) bool {
		return r >= 0x80 || !isLetter(byte(r)) && !isDigit(byte(r))
	})
}

// camelCase writes a name as TypeScript writes a function: read_text_file is readTextFile.
func camelCase(name string) string {
	var b strings.Builder
	for i, w := range words(name) {
		switch {
		case i > 0:
			b.WriteString(strings.ToUpper(w[:1]) + w[1:])
		case w == strings.ToUpper(w):
			b.WriteString(strings.ToLower(w))
		default:
			b.WriteString(strings.ToLower(w[:1]) + w[1:])
		}
	}
	return startable(b.String())
}

// snakeCase writes a name as Python writes a function: readTextFile is read_text_file.
func snakeCase(name string) string {
	var parts []string
	for _, w := range words(name) {
		start := 0
		for i := 1; i < len(w); i++ {
			hump := isUpper(w[i]) && (!isUpper(w[i-1]) || i+1 < len(w) && isLower(w[i+1]))
			if hump {
				parts = append(parts, w[start:i])
				start = i
			}
		}
		parts = append(parts, w[start:])
	}
	return startable(strings.ToLower(strings.Join(parts, "_")))
}

// moduleName writes a server's name as the name of a Python module.
func moduleName(name string) string {
	if isIdentifier(name) && len(name) <= wrapperpath.MaxFileName {
		return keepOff(name, pythonKeywords)
	}
	return keepOff(startable(strings.Join(words(name), "_")), pythonKeywords)
}

// startable makes sure that an identifier has a first character that is allowed there, and a length
// that is bearable.
func startable(s string) string {
	switch {
	case s == "":
		return "tool"
	case isDigit(s[0]):
		s = "_" + s
	}
	return s[:min(len(s), wrapperpath.MaxFileName)]
}

// keepOff adds a "_" to a name that is taken.
func keepOff(s string, taken map[string]bool) string {
	if taken[s] {
		return s + "_"
	}
	return s
}

// names returns each identifier once: a second one of the same text gets a number.
type names struct {
	used      map[string]bool
	separator string // between text and number
}

func (n *names) take(s string) string {
	name := s
	for i := 2; n.used[name]; i++ {
		name = s + n.separator + strconv.Itoa(i)
	}
	n.used[name] = true
	return name
}

func set(text string) map[string]bool {
	m := map[string]bool{}
	for s := range strings.FieldsSeq(text) {
		m[s] = true
	}
	return m
}

// reservedWords are those of ECMAScript modules and of TypeScript, and the names that a wrapper uses.
var reservedWords = set(`abstract any arguments as asserts async await bigint boolean break case catch class const
	constructor continue debugger declare default delete do else enum eval export extends false finally for from
	function get global globalThis if implements import in infer infinity instanceof interface is keyof let module
	namespace never new null number object of out override package private protected public readonly require
	return satisfies set static string super switch symbol this throw true try type typeof undefined unique
	unknown using var void while with yield callMCPTool`)

var pythonKeywords = set(`False None True and as assert async await break class continue def del elif else except
	finally for from global if import in is lambda nonlocal not or pass raise return try while with yield`)
