package codeapi

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// How many characters of a description reach the code. A Python module holds all tools of a server and
// is read at each import, so that it says less of each.
const (
	maxDescription     = 1000
	maxToolDescription = 16_000 // of the tool itself, in TypeScript
)

// quote writes s as a string that TypeScript and Python both read as s. JSON has only escapes that
// both know, and none of its strings holds a line break.
func quote(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		return `""` // no string fails
	}
	return string(text)
}

// clean returns the lines of a description: cut to its limit, without characters that show nothing or
// that change the order in which code is shown.
func clean(text string) []string { return cleaned(text, maxDescription) }

// cleaned is clean with another limit, in characters.
func cleaned(text string, most int) []string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	text = strings.Map(func(r rune) rune {
		switch {
		case r == '\u2028' || r == '\u2029' || r == '\u0085' || r == '\v' || r == '\f':
			return '\n'
		case r == '\n':
			return r
		case r == '\t':
			return ' '
		case unicode.IsControl(r), r >= 0x202A && r <= 0x202E, r >= 0x2066 && r <= 0x2069, r == 0x200E, r == 0x200F, r == 0xFEFF:
			return -1
		}
		return r
	}, strings.ReplaceAll(text, "\r\n", "\n"))
	text = strings.TrimSpace(text)
	if utf8.RuneCountInString(text) > most {
		text = string([]rune(text)[:most]) + "…"
	}
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " ")
	}
	return lines
}

// tsComment writes a description as a comment that it cannot end. It returns "" for an empty one.
func tsComment(indent, text string) string { return tsCommentOf(indent, clean(text)) }

// tsCommentOf does it with clean lines.
func tsCommentOf(indent string, text []string) string {
	lines := slices.Clone(text)
	if len(lines) == 1 && lines[0] == "" {
		return ""
	}
	for i, l := range lines {
		lines[i] = strings.ReplaceAll(l, "*/", `*\/`)
	}
	if len(lines) == 1 {
		return indent + "/** " + lines[0] + " */\n"
	}
	var b strings.Builder
	b.WriteString(indent + "/**\n")
	for _, l := range lines {
		b.WriteString(strings.TrimRight(indent+" * "+l, " ") + "\n")
	}
	b.WriteString(indent + " */\n")
	return b.String()
}

// docstring writes clean lines as a Python docstring that they cannot end.
func docstring(indent string, text []string) string {
	lines := slices.Clone(text)
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	for i, l := range lines {
		lines[i] = escape.Replace(l)
		if i > 0 && l != "" {
			lines[i] = indent + lines[i]
		}
	}
	if len(lines) == 1 {
		return indent + `"""` + lines[0] + `"""` + "\n"
	}
	return indent + `"""` + strings.Join(lines, "\n") + "\n" + indent + `"""` + "\n"
}
