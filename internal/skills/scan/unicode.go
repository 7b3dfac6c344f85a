package scan

import (
	"unicode/utf8"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Runs of invisible characters that are long enough to carry a message. Scripts and emoji need one or two.
const (
	hiddenRun = 6
	tagRun    = 8 // the flags of England, Scotland and Wales have six tags
)

// unicode looks for text that a person does not see as the agent reads it.
func (s *scanner) unicode(line []byte, number int) {
	var tags, hidden int
	for len(line) > 0 {
		r, size := utf8.DecodeRune(line)
		line = line[size:]
		if r < 0xad {
			hidden, tags = 0, 0
			continue
		}
		switch {
		case r == 0x202d || r == 0x202e:
			s.add("bidi-override", sandbox.SeverityError, number, "a character that shows text in another order than the agent reads it")
		case r >= 0x202a && r <= 0x202c || r >= 0x2066 && r <= 0x2069:
			s.add("bidi-control", sandbox.SeverityWarning, number, "a character that changes the direction of text")
		case r >= 0xe0000 && r <= 0xe007f:
			if tags++; tags == tagRun {
				s.add("hidden-text", sandbox.SeverityError, number, "text in characters that do not show (Unicode tags)")
			}
		case zeroWidth(r) || r >= 0xe0100 && r <= 0xe01ef:
			if hidden++; hidden == hiddenRun {
				s.add("hidden-text", sandbox.SeverityError, number, "a run of characters that do not show")
			}
		default:
			hidden, tags = 0, 0
		}
	}
}

func zeroWidth(r rune) bool {
	switch r {
	case 0xad, 0x200b, 0x200c, 0x200d, 0x2060, 0x2061, 0x2062, 0x2063, 0x2064, 0xfeff, 0x180e, 0x115f, 0x1160, 0x3164, 0xffa0:
		return true
	}
	return false
}
