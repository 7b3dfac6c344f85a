package ownership

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/ownership/ownerrecord"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
)

// unremovable is a sandbox that cannot be removed. While a caller asks for it the server looks at the owner records.
type unremovable struct {
	owners   *Owners
	takeover *Takeover
}

func (u *unremovable) Inherit(ctx context.Context, own *Ownership, former ownerrecord.OwnerRecord) error {
	err := u.owners.GiveBack(ctx, own, former)
	u.takeover.TakeOverExited(ctx) // the thread is in use at this moment
	return errors.Join(err, sandbox.Errorf(sandbox.Unavailable, "the engine is away"))
}

func (u *unremovable) Lost(*Ownership) bool { return false }

// TestFailedTakeIsSeen: a look at the owner records while a caller fails to take a thread does not hide that its sandbox is
// left over: the next look tries again.
func TestFailedTakeIsSeen(t *testing.T) {
	t.Parallel()
	st, err := store.Open(t.Context(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	book, err := ownerrecord.Open(filepath.Join(t.TempDir(), "claims"))
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	t.Cleanup(func() {
		group.Wait()
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	left := &unremovable{}
	left.owners = New(t.Context(), Options{Store: st, Book: book, Peers: Alone("a"), Sandboxes: left, Log: slog.New(slog.DiscardHandler), Group: &group})
	left.takeover = NewTakeover(left.owners, nil, nil)
	thread := sandbox.Thread{Owner: sandbox.Owner{Tenant: "acme", User: "ann"}, ID: "main"}
	page, err := left.owners.LockPage(t.Context(), thread)
	if err != nil {
		t.Fatal(err)
	}
	err = page.Write(ownerrecord.Of(thread, "a", 1, "skerry-1"))
	if page.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := left.owners.Acquire(t.Context(), thread, ""); !errors.Is(err, sandbox.Unavailable) {
		t.Fatalf("acquired: %v", err)
	}
	if !left.owners.LeftBehind.Load() {
		t.Error("the next look reads no owner record")
	}
}
