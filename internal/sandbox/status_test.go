package sandbox

import (
	"errors"
	"fmt"
	"testing"
)

func TestHTTPStatus(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want int
	}{
		"a kind alone":         {NotFound, 404},
		"wrapped":              {fmt.Errorf("x: %w", Errorf(Conflict, "y")), 409},
		"no kind":              {errors.New("x"), 500},
		"a kind of the future": {Kind("new"), 500},
		"too much data":        {Errorf(QuotaExceeded, "x"), 413},
		"the disk's limit":     {&Error{Kind: QuotaExceeded, Limit: &LimitHit{Limit: "disk_mib"}}, 413},
		"a limit of calls":     {&Error{Kind: QuotaExceeded, Limit: &LimitHit{Limit: "execs"}}, 429},
		"too many calls":       {fmt.Errorf("x: %w", TooManyCalls("%d calls", 3)), 429},
		"lost":                 {Errorf(SandboxLost, "x"), 503},
	} {
		if got := HTTPStatus(c.err); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
