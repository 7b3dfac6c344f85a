package argform

import (
	"regexp"
	"strings"
	"unicode"
)

// sequence is a control sequence of a terminal: with parameters (CSI), with a text up to its end (OSC,
// DCS, SOS, PM, APC; a text that never ends takes the rest of the line), or of two characters.
var sequence = regexp.MustCompile("(?:\x1b\\[|\u009b)[0-?]*[ -/]*[@-~]?" +
	"|(?:\x1b[\\]PX^_]|[\u0090\u0098\u009d\u009e\u009f])[^\x07\x1b\u009c\n]*(?:\x07|\x1b\\\\|\u009c)?" +
	"|\x1b[ -/]*[0-~]?")

// Plain returns hostile text without what a terminal would act on: control sequences, control characters
// other than line breaks and tabs, and characters that show nothing or change the order of others.
func Plain(text string) string {
	text = sequence.ReplaceAllString(strings.ToValidUTF8(text, "\uFFFD"), "")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r == '\u2028' || r == '\u2029':
			return '\n'
		case unicode.IsControl(r), r == 0x061C, r == 0x180E, r >= 0xFFF9 && r <= 0xFFFB, r >= 0x200B && r <= 0x200F, r >= 0x202A && r <= 0x202E, r >= 0x2060 && r <= 0x206F, r == 0xFEFF, r >= 0xE0000 && r <= 0xE007F:
			return -1
		}
		return r
	}, text)
}

// Line returns plain text as one line of at most limit characters.
func Line(text string, limit int) string {
	text = strings.Join(strings.Fields(Plain(text)), " ")
	if runes := []rune(text); len(runes) > limit {
		return string(runes[:limit-1]) + "…"
	}
	return text
}
