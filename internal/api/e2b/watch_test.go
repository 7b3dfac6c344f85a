package e2b

import (
	"fmt"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestWatchersOfOwners: a watcher holds a folder of up to 10,000 entries, so a user has a bounded number of them
// in all sandboxes together.
func TestWatchersOfOwners(t *testing.T) {
	t.Parallel()
	w := newWatchers()
	add := func(user string, n int) error {
		_, err := w.add(&watcher{thread: sandbox.Thread{Owner: sandbox.Owner{Tenant: "acme", User: user}, ID: fmt.Sprint("e2b", n)}})
		return err
	}
	for i := range maxOwnWatchers {
		if err := add("ann", i); err != nil {
			t.Fatal(err)
		}
	}
	if err := add("ann", maxOwnWatchers); sandbox.KindOf(err) != sandbox.QuotaExceeded {
		t.Errorf("one too many: %v", err)
	}
	for range maxWatchers {
		if err := add("bob", 0); err != nil {
			t.Errorf("another user: %v", err)
		}
	}
	if err := add("bob", 0); sandbox.KindOf(err) != sandbox.QuotaExceeded {
		t.Errorf("one too many of a sandbox: %v", err)
	}
}
