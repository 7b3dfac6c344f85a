package fold

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// FuzzIn: a text is found as the small letters of both tell.
func FuzzIn(f *testing.F) {
	for _, seed := range [][2]string{
		{"a Report-777 b", "report-777"}, {"xx", "xxx"}, {"", "a"}, {"aaab", "aab"}, {"\u212aill", "kill"}, {"\u212a-1", "k-1"}, {"\u0130-1", "i-1"},
		{"1-1-2", "1-2"}, {"ÄB", "ä"}, {"\xff-\xff", "-"}, {"ab", ""}, {"AB", "B"}, {"a_B", "A_b"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, s, text string) {
		if got, want := New(text).In(s), strings.Contains(strings.ToLower(s), strings.ToLower(text)); got != want {
			t.Errorf("%q in %q: %v, want %v", text, s, got, want)
		}
	})
}

// TestSigns: no other sign has a small letter in ASCII.
func TestSigns(t *testing.T) {
	t.Parallel()
	for r := rune(utf8.RuneSelf); r <= unicode.MaxRune; r++ {
		if unicode.ToLower(r) < utf8.RuneSelf && !strings.ContainsRune(kelvin+dottedI, r) {
			t.Errorf("%U is %q", r, unicode.ToLower(r))
		}
	}
}

func BenchmarkIn(b *testing.B) {
	line := strings.Repeat(`{"user":"user-000","action":"tool_call","subject":"filesystem__read_file"},`, 6)
	for b.Loop() {
		if New("report-777").In(line) {
			b.Fatal("found")
		}
	}
}
