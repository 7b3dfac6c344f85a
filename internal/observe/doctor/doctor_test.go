package doctor

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRun: checks run side by side and are shown in their order; a check that ignores its deadline is left behind, with what it
// said before, and keeps no other from being shown.
func TestRun(t *testing.T) {
	release, second := make(chan struct{}), make(chan struct{})
	checks := []Check{
		{Name: "first", Within: time.Minute, Run: func(_ context.Context, r *Report) {
			<-second // side by side, or this never ends
			r.Warn("", "mend it", "is %s", "bent")
		}},
		{Name: "second", Within: time.Minute, Run: func(_ context.Context, r *Report) {
			close(second)
			r.OK("a", "good")
		}},
		{Name: "deaf", Within: 10 * time.Millisecond, OnTimeout: Line{State: Warning, Fix: "wake it"}, Run: func(_ context.Context, r *Report) {
			r.OK("half", "done")
			<-release
			r.Problem("", "", "said too late")
		}},
		{Name: "heeds", Within: 10 * time.Millisecond, Run: func(ctx context.Context, r *Report) {
			<-ctx.Done()
			r.Problem("", "", "ended in time")
		}},
	}
	var shown []string
	waited := 0
	lines := Run(t.Context(), checks, Output{
		Lines: func(lines []Line) {
			shown = append(shown, lines[0].Check)
			if lines[0].Check == "heeds" {
				close(release)
			}
		},
		Waiting: func(check string, _ time.Duration) {
			if check == "deaf" {
				waited++
			}
		},
	})
	want := []Line{
		{"first", "", Warning, "is bent", "mend it"},
		{"second", "a", OK, "good", ""},
		{"deaf", "half", OK, "done", ""},
		{"deaf", "", Warning, "did not come to an end within 10ms", "wake it"},
		{"heeds", "", Problem, "ended in time", ""},
	}
	if !slices.Equal(lines, want) {
		t.Errorf("got  %v\nwant %v", lines, want)
	}
	if got := strings.Join(shown, " "); got != "first second deaf heeds" || waited == 0 {
		t.Errorf("shown: %s; waited %d times", got, waited)
	}
	if Serves(lines) || Count(lines, Warning) != 2 || !Serves(lines[:4]) {
		t.Error("wrong count")
	}
}

// TestRunEnds: when the caller stops waiting, so do all checks.
func TestRunEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	lines := Run(ctx, []Check{{Name: "x", Within: time.Hour, Run: func(ctx context.Context, r *Report) {
		<-ctx.Done()
		r.Problem("", "", "given up")
	}}}, Output{})
	if len(lines) != 1 || lines[0].Detail != "given up" {
		t.Error(lines)
	}
}
