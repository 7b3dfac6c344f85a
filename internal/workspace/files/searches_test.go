package files

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestSearchesOfAnOwnerAreCounted: those beyond the limit wait, and not for ever. Other owners do not.
func TestSearchesOfAnOwnerAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s searches
		eve, bob := sandbox.Owner{Tenant: "t", User: "eve"}, sandbox.Owner{Tenant: "t", User: "bob"}
		begin := func(ctx context.Context, o sandbox.Owner) func() {
			t.Helper()
			end, err := s.begin(ctx, o)
			if err != nil {
				t.Fatal(err)
			}
			return end
		}
		var ends []func()
		for range maxSearches {
			ends = append(ends, begin(t.Context(), eve))
		}
		begin(t.Context(), bob)()
		if _, err := s.begin(t.Context(), eve); !errors.Is(err, sandbox.CapacityExceeded) {
			t.Errorf("one more: %v", err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.begin(gone, eve); !errors.Is(err, context.Canceled) {
			t.Errorf("of a client that left: %v", err)
		}
		began := make(chan func())
		go func() { began <- begin(t.Context(), eve) }()
		synctest.Wait()
		ends[0]()
		(<-began)()
		for _, end := range ends[1:] {
			end()
		}
		if len(s.of) != 0 {
			t.Errorf("%d owners are remembered", len(s.of))
		}
	})
}
