package sandbox

import "testing"

func TestModeOf(t *testing.T) {
	auto := DefaultCodeSettings()
	code, off := auto, auto
	code.Mode, off.Disabled = ModeCode, true
	for _, c := range []struct {
		s     CodeSettings
		asked string
		tools int
		want  string
	}{
		{auto, "", 0, ModeDirect}, {auto, "", 20, ModeDirect}, {auto, "", 21, ModeCode},
		{auto, ModeDirect, 500, ModeDirect}, {auto, ModeCode, 0, ModeCode},
		{code, "", 1, ModeCode}, {code, ModeAuto, 1, ModeDirect}, {code, ModeDirect, 1, ModeDirect},
		{off, ModeCode, 500, ModeDirect},
	} {
		if got := c.s.ModeOf(c.asked, c.tools); got != c.want {
			t.Errorf("%+v asked for %q with %d tools: %s, want %s", c.s, c.asked, c.tools, got, c.want)
		}
	}
}
