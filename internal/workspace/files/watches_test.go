package files

import (
	"fmt"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestWatchesOfOwners: one user cannot have all watches of the server.
func TestWatchesOfOwners(t *testing.T) {
	t.Parallel()
	var w Watches
	thread := func(user string, n int) sandbox.Thread {
		return sandbox.Thread{Owner: sandbox.Owner{Tenant: "acme", User: user}, ID: fmt.Sprint("t", n)}
	}
	var done func()
	for i := range maxWatchesOfOwner {
		var err error
		if done, err = w.begin(thread("ann", i), &fileWatch{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.begin(thread("ann", maxWatchesOfOwner), &fileWatch{}); sandbox.KindOf(err) != sandbox.CapacityExceeded {
		t.Errorf("one too many: %v", err)
	}
	if _, err := w.begin(thread("bob", 0), &fileWatch{}); err != nil {
		t.Errorf("another user: %v", err)
	}
	done()
	if _, err := w.begin(thread("ann", 0), &fileWatch{}); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
}
