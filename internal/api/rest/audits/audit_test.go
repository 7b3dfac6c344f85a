package audits

import (
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestFollowersOfOwners: a user cannot keep all others from the log.
func TestFollowersOfOwners(t *testing.T) {
	t.Parallel()
	var f Followers
	ann, bob := sandbox.Owner{Tenant: "acme", User: "ann"}, sandbox.Owner{Tenant: "acme", User: "bob"}
	var release func()
	for range MaxOwnFollowers {
		var err error
		if release, err = f.Enter(ann); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.Enter(ann); sandbox.KindOf(err) != sandbox.QuotaExceeded {
		t.Errorf("one too many: %v", err)
	}
	if _, err := f.Enter(bob); err != nil {
		t.Errorf("another user: %v", err)
	}
	release()
	if _, err := f.Enter(ann); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
}
