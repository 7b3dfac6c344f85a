package runtimeprobe

import (
	"context"
	"errors"
	"testing"
)

// TestAnswers: what works is asked once; a problem is remembered when it was found twice; what says nothing of the runtime
// never is.
func TestAnswers(t *testing.T) {
	type found struct {
		problem     string
		detail, err error
	}
	slow, away := context.DeadlineExceeded, errors.New("the engine is away")
	for name, c := range map[string]struct {
		probes []found // each probe in its turn
		want   []string
		asked  int
	}{
		"works":             {[]found{{}}, []string{"", "", ""}, 1},
		"does not":          {[]found{{problem: "bad"}, {problem: "bad"}}, []string{"bad", "bad", "bad"}, 2},
		"an accident":       {[]found{{problem: "was killed"}, {}}, []string{"was killed", "", ""}, 2},
		"two accidents":     {[]found{{problem: "was killed"}, {problem: "no answer"}, {}}, []string{"was killed", "no answer", ""}, 3},
		"slow":              {[]found{{problem: "slow", detail: slow}, {problem: "slow", detail: slow}, {}}, []string{"slow", "slow", ""}, 3},
		"nothing found out": {[]found{{err: away}, {problem: "bad"}, {err: away}}, []string{"error", "bad", "error"}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			a, asked := NewAnswers(), 0
			for i, want := range c.want {
				problem, err := a.Ask(t.Context(), "runc", func() (string, error, error) {
					f := c.probes[asked]
					asked++
					return f.problem, f.detail, f.err
				})
				if err != nil {
					problem = "error"
				}
				if problem != want {
					t.Errorf("call %d: %q, want %q", i, problem, want)
				}
			}
			if asked != c.asked {
				t.Errorf("%d probes, want %d", asked, c.asked)
			}
		})
	}
}
