package sandbox

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestModeOf(t *testing.T) {
	auto := DefaultCodeSettings()
	code, off := auto, auto
	code.Mode, off.Disabled = ModeCode, true
	for _, c := range []struct {
		s     CodeSettings
		asked string
		size  int
		want  string
	}{
		{auto, "", 0, ModeDirect}, {auto, "", 3000, ModeDirect}, {auto, "", 3001, ModeCode},
		{auto, ModeDirect, 50_000, ModeDirect}, {auto, ModeCode, 0, ModeCode},
		{code, "", 1, ModeCode}, {code, ModeAuto, 1, ModeDirect}, {code, ModeDirect, 1, ModeDirect},
		{off, ModeCode, 50_000, ModeDirect},
	} {
		if got := c.s.ModeOf(c.asked, c.size); got != c.want {
			t.Errorf("%+v asked for %q with tools of %d tokens: %s, want %s", c.s, c.asked, c.size, got, c.want)
		}
	}
}

// TestShownTokens: the size of the definitions counts, not their number, and what only a search finds does not.
func TestShownTokens(t *testing.T) {
	small := Tool{Printed: "s__a", Description: "abcd", Input: json.RawMessage(`{}`)}
	large := Tool{Printed: "s__b", Input: json.RawMessage(strings.Repeat("x", 4000))}
	deferred := large
	deferred.Disclosure = DiscloseDeferred
	if n := small.Tokens(); n != 3 { // 10 bytes
		t.Errorf("%d tokens", n)
	}
	if n := (ToolSet{Tools: []Tool{small, large, deferred}}).ShownTokens(); n != 3+1001 {
		t.Errorf("%d tokens", n)
	}
}
