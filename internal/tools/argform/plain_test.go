package argform

import (
	"strings"
	"testing"
	"unicode"
)

// FuzzPlain: nothing that a terminal acts on comes through, whatever the text, and plain text stays as it is.
func FuzzPlain(f *testing.F) {
	for _, s := range []string{
		"plain text\n\twith a tab", "\x1b[31mred\x1b[0m", "\x1b]0;title\x07x", "\u009b2J", "\u009d52;c;aGk=\u009c", "harmless\rrm -rf /", "a\u202egpj.exe", "\u2066x\u2069",
		"\x1b\x1b[[31m", "\x9b31m", "\x1bPq\x1b\\", "a\u061cb", "\x08\x7f", "\u2028", "\xf0\x9f", "\U000E0041",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := Plain(s)
		for _, r := range got {
			if unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) || r == 0x2028 || r == 0x2029 || r >= 0xE0000 && r <= 0xE007F {
				t.Fatalf("%q gives %q with %U", s, got, r)
			}
		}
		if again := Plain(got); again != got {
			t.Fatalf("%q gives %q, and that gives %q", s, got, again)
		}
		safe := strings.Map(func(r rune) rune {
			if r >= ' ' && r < 0x7f || r == '\n' || r == '\t' {
				return r
			}
			return -1
		}, s)
		if Plain(safe) != safe {
			t.Fatalf("%q was changed", safe)
		}
	})
}
