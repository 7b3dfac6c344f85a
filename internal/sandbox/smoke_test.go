package sandbox

import (
	"strings"
	"testing"
)

func TestJudge(t *testing.T) {
	zero, three := 0, 3
	s := SmokeTest{Expect: "42"}
	for want, c := range map[string]struct {
		s SmokeTest
		r Result
	}{
		"":                                      {s, Result{Status: StatusExited, ExitCode: &zero, Stdout: "is 42\n"}},
		"it ended as timeout":                   {s, Result{Status: StatusTimeout}},
		"exit code 3, want 0: no module":        {s, Result{Status: StatusExited, ExitCode: &three, Stdout: "42", Stderr: "no module\n"}},
		"exit code 0, want 3: ":                 {SmokeTest{ExitCode: 3}, Result{Status: StatusExited, ExitCode: &zero}},
		"exit code -1, want 0: ":                {s, Result{Status: StatusExited}},
		`standard output has no "42" in it: 43`: {s, Result{Status: StatusExited, ExitCode: &zero, Stdout: "43"}},
	} {
		if got := c.s.Judge(c.r); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := s.Judge(Result{Status: StatusExited, ExitCode: &three, Stderr: strings.Repeat("x", 1<<20)}); len(got) > 400 {
		t.Errorf("%d bytes", len(got))
	}
}
