package record

import (
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestBy: a record names both principals of a request that was made on behalf of another, and only then.
func TestBy(t *testing.T) {
	t.Parallel()
	c := sandbox.Caller{Owner: sandbox.Owner{Tenant: "acme", User: "bob"}, Role: sandbox.RoleAgent, Actor: "backend", KeyID: "key_1", Method: sandbox.ByKey}
	r := Record{Tenant: c.Tenant, User: c.User}.By(c)
	if r.User != "bob" || r.Actor != "backend" || r.KeyID != "key_1" || r.Auth != "key" || r.Role != "agent" {
		t.Errorf("on behalf: %+v", r)
	}
	c.User = "backend"
	if r := (Record{}).By(c); r.Actor != "" {
		t.Errorf("for itself: %+v", r)
	}
}
