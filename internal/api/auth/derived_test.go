package auth

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
)

// TestDerived: a derived key is valid for its thread and user alone, is the same each time, and ends with
// its parent key.
func TestDerived(t *testing.T) {
	ctx := t.Context()
	k, _, now := setup(t)
	made, secret, err := k.CreateKey(ctx, root, Key{User: "gateway", Role: sandbox.RoleAdmin, ActFor: true, Capabilities: []string{"mail"}})
	must(t, err)
	parent := Credential{Secret: secret, OnBehalfOf: "ann"}
	d, err := k.Derive(ctx, parent, "deerflow 1", "talk")
	must(t, err)
	again, err := k.Derive(ctx, parent, "deerflow 1", "talk")
	must(t, err)
	if again != d || d.Secret == secret || d.User != "ann" || d.Thread != "talk" {
		t.Errorf("derived %+v, then %+v", d, again)
	}
	c, err := k.Authenticate(ctx, Credential{Secret: d.Secret})
	must(t, err)
	if c.Owner != (sandbox.Owner{Tenant: "acme", User: "ann"}) || c.Role != sandbox.RoleAgent || !slices.Equal(c.Threads, []string{"talk"}) || c.KeyID != made.ID || c.Actor != "gateway" || !slices.Equal(c.Capabilities, made.Capabilities) {
		t.Errorf("caller %+v", c)
	}
	if thread, who, err := k.ThreadOf(ctx, Credential{Secret: d.Secret}); err != nil || thread != "talk" || who.Actor != "gateway" {
		t.Errorf("thread %q of %+v: %v", thread, who, err)
	}

	_, err = k.Derive(ctx, parent, "deerflow 1", "other")
	wantKind(t, err, sandbox.Conflict)
	_, err = k.Derive(ctx, Credential{Secret: secret, OnBehalfOf: "bob"}, "deerflow 1", "talk")
	wantKind(t, err, sandbox.Conflict)
	_, _, err = k.ThreadOf(ctx, Credential{Secret: secret})
	wantKind(t, err, sandbox.Forbidden)
	_, err = k.Derive(ctx, Credential{Secret: d.Secret}, "deerflow 2", "talk")
	wantKind(t, err, sandbox.Forbidden)
	_, err = k.Authenticate(ctx, Credential{Secret: d.Secret, OnBehalfOf: "bob"})
	wantKind(t, err, sandbox.Forbidden)

	// What another key derives has nothing to do with it.
	_, stranger, err := k.CreateKey(ctx, root, Key{User: "eve", ActFor: true})
	must(t, err)
	_, err = k.Derived(ctx, Credential{Secret: stranger}, "deerflow 1")
	wantKind(t, err, sandbox.NotFound)
	if all, err := k.AllDerived(ctx, Credential{Secret: stranger}, ""); err != nil || len(all) != 0 {
		t.Errorf("another key's %v, %v", all, err)
	}
	wantKind(t, k.ForgetDerived(ctx, Credential{Secret: stranger}, "deerflow 1"), sandbox.NotFound)
	if all, err := k.AllDerived(ctx, Credential{Secret: secret}, "deerflow "); err != nil || !slices.Equal(all, []Derived{d}) {
		t.Errorf("all %v, %v", all, err)
	}

	// A forgotten key ends at once; so does one whose parent expires or is revoked.
	must(t, k.ForgetDerived(ctx, Credential{Secret: secret}, "deerflow 1"))
	_, err = k.Authenticate(ctx, Credential{Secret: d.Secret})
	wantKind(t, err, sandbox.Unauthorized)
	_, err = k.Derive(ctx, parent, "deerflow 1", "talk")
	must(t, err)
	must(t, k.RevokeKey(ctx, root, made.ID))
	_, err = k.Authenticate(ctx, Credential{Secret: d.Secret})
	wantKind(t, err, sandbox.Unauthorized)
	left, err := k.store.Keys(ctx, "acme")
	must(t, err)
	if countDerived(left, "") != 0 {
		t.Errorf("derived keys are left: %+v", left)
	}

	until := now.Add(time.Hour)
	_, secret, err = k.CreateKey(ctx, root, Key{User: "gateway", ActFor: true, ExpiresAt: &until})
	must(t, err)
	d, err = k.Derive(ctx, Credential{Secret: secret, OnBehalfOf: "ann"}, "deerflow 1", "talk")
	must(t, err)
	*now = until
	_, err = k.Authenticate(ctx, Credential{Secret: d.Secret})
	wantKind(t, err, sandbox.Unauthorized)
}

// TestDerivedNeedsRights: a key makes derived ones only of what it may use itself.
func TestDerivedNeedsRights(t *testing.T) {
	ctx := t.Context()
	k, _, _ := setup(t)
	_, secret, err := k.CreateKey(ctx, root, Key{User: "ann", Threads: []string{"ci-*"}})
	must(t, err)
	_, err = k.Derive(ctx, Credential{Secret: secret}, "x", "talk")
	wantKind(t, err, sandbox.Forbidden)
	_, err = k.Derive(ctx, Credential{Secret: secret, OnBehalfOf: "bob"}, "x", "ci-1")
	wantKind(t, err, sandbox.Forbidden)
	_, err = k.Derive(ctx, Credential{Secret: secret}, "x", "a/b")
	wantKind(t, err, sandbox.Invalid)
	_, err = k.Derive(ctx, Credential{Secret: secret}, "x", "ci-1")
	must(t, err)
	_, err = k.Derive(ctx, Credential{}, "x", "ci-1")
	wantKind(t, err, sandbox.Unauthorized)
}

// TestNoUserTakesAllDerivedKeys: a user has a bound of its own, far below that of the tenant.
func TestNoUserTakesAllDerivedKeys(t *testing.T) {
	ctx := t.Context()
	k, _, _ := setup(t)
	_, secret, err := k.CreateKey(ctx, root, Key{User: "gateway", ActFor: true})
	must(t, err)
	eve := Credential{Secret: secret, OnBehalfOf: "eve"}
	full := make([]store.KeyRecord, maxOfUser)
	for i := range full {
		full[i] = store.KeyRecord{Parent: "p", User: "eve"}
	}
	k.store = fullStore{k.store, full}
	_, err = k.Derive(ctx, eve, "x", "talk")
	wantKind(t, err, sandbox.QuotaExceeded)
	_, err = k.Derive(ctx, Credential{Secret: secret, OnBehalfOf: "ann"}, "x", "talk")
	must(t, err)
}

// fullStore has more keys than it stores.
type fullStore struct {
	keyStore
	more []store.KeyRecord
}

func (s fullStore) Keys(ctx context.Context, tenant string) ([]store.KeyRecord, error) {
	have, err := s.keyStore.Keys(ctx, tenant)
	return append(have, s.more...), err
}
