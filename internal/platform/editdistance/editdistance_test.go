package editdistance

import (
	"slices"
	"strings"
	"testing"
)

func TestOf(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"pids", "pids", 0}, {"", "abc", 3}, {"pid", "pids", 1}, {"memroy", "memory", 2}, {"kitten", "sitting", 3},
		{"a", strings.Repeat("b", 102), 1000}, {strings.Repeat("b", 102), "a", 1000},
	} {
		if got := Of(c.a, c.b); got != c.want {
			t.Errorf("%q, %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestNearest(t *testing.T) {
	names := []string{"sales:forecast", "sales:call-prep", "data:forecasts", "other:thing"}
	for want, near := range map[string][]string{
		"sales:forecst": {"sales:forecast"}, "CALL-PREP": {"sales:call-prep"}, "forecast": {"sales:forecast", "data:forecasts"},
		"nothing-like-it": nil, strings.Repeat("x", 1<<20): nil,
	} {
		if got := Nearest(want, names, ":"); !slices.Equal(got, near) {
			t.Errorf("%.40q: %q, want %q", want, got, near)
		}
	}
}
