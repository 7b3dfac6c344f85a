package sandbox

import (
	"fmt"
	"strings"
)

// Judge says why a smoke test did not pass, or "" when it did. r is what its run came to.
func (s SmokeTest) Judge(r Result) string {
	tail := func(text string) string {
		const most = 300
		text = strings.TrimSpace(text)
		if len(text) > most {
			text = "…" + text[len(text)-most:]
		}
		return text
	}
	switch {
	case r.Status != StatusExited:
		return fmt.Sprintf("it ended as %s", r.Status)
	case r.ExitCode == nil || *r.ExitCode != s.ExitCode:
		code := -1
		if r.ExitCode != nil {
			code = *r.ExitCode
		}
		return fmt.Sprintf("exit code %d, want %d: %s", code, s.ExitCode, tail(r.Stderr))
	case !strings.Contains(r.Stdout, s.Expect):
		return fmt.Sprintf("standard output has no %.100q in it: %s", s.Expect, tail(r.Stdout))
	}
	return ""
}
