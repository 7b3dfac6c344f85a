package editdistance

import (
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
