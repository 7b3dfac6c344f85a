package codeoutput

import (
	"testing"
	"unicode/utf8"
)

func TestThrown(t *testing.T) {
	for _, c := range [][4]string{
		{"python", "---\nNameError    Traceback (most recent call last)\nCell In[1], line 1\n----> 1 x\n\nNameError: name 'x' is not defined\n", "NameError", "name 'x' is not defined"},
		{"python", "  Cell In[1], line 1\n    x y\n      ^\nSyntaxError: invalid syntax\n", "SyntaxError", "invalid syntax"},
		{"python", "ValueError  Traceback (most recent call last)\nValueError: first\nsecond: third\n", "ValueError", "first\nsecond: third"},
		{"python", "note: x\nTraceback (most recent call last):\n  Cell In [2], line 1\n    1/0\nValueError: first\nsecond: third\n\n", "ValueError", "first\nsecond: third"},
		{"python", "warning: x\n  Cell In [2], line 1\nIndentationError: unexpected indent\n", "IndentationError", "unexpected indent"},
		{"python", "pkg.Bad  Traceback (most recent call last)\npkg.Bad\n", "pkg.Bad", ""},
		{"javascript", "Uncaught ReferenceError: x is not defined\n    at file:1:1\n", "ReferenceError", "x is not defined"},
		{"typescript", "TypeError: no\n    at y\n", "TypeError", "no"},
		{"javascript", "boom\n", "", ""},
		{"python", "", "", ""},
	} {
		name, value, ok := Thrown(c[0], c[1])
		if name != c[2] || value != c[3] || ok != (c[2] != "") {
			t.Errorf("%q: %q %q %v", c[1], name, value, ok)
		}
	}
}

// FuzzText: bytes in pieces are the same text as in one, and always text.
func FuzzText(f *testing.F) {
	f.Add([]byte("gr\xc3\xbcn \xf0\x9f\x98\x80"), 3)
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		if cut < 0 || cut > len(data) {
			return
		}
		var pieces Text
		got := pieces.Add(data[:cut]) + pieces.Add(data[cut:]) + pieces.Rest()
		if !utf8.ValidString(got) || utf8.Valid(data) && got != string(data) {
			t.Errorf("%q at %d: %q", data, cut, got)
		}
	})
}

// FuzzThrown: what code prints is hostile, and an error is read from it or not.
func FuzzThrown(f *testing.F) {
	f.Add("python", "KeyError  Traceback (most recent call last)\nKeyError: 'x'")
	f.Fuzz(func(t *testing.T, lang, complaint string) {
		if name, _, ok := Thrown(lang, complaint); ok && name == "" {
			t.Errorf("%q: an error without a name", complaint)
		}
	})
}
