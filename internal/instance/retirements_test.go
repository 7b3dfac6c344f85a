package instance

import (
	"context"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestRetirementsAreServed: retirements from before the server ended are served, too.
func TestRetirementsAreServed(t *testing.T) {
	t.Parallel()
	r := NewRetirements()
	ctx, cancel := context.WithCancel(t.Context())
	var got []sandbox.Status
	r.Kill(&Instance{}, "load")
	r.Serve(ctx, func(x Retirement) {
		got = append(got, x.Status)
		if len(got) == 1 { // while it is served, another part asks, and the server ends
			r.Abandon(&Instance{}, "outrun")
			cancel()
		}
	})
	if len(got) != 2 || got[0] != sandbox.StatusKilled || got[1] != sandbox.StatusLost {
		t.Errorf("%v", got)
	}
}
