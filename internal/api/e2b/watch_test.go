package e2b

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
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
	for i := len(w.by); i < maxAllWatchers; i++ {
		if err := add(fmt.Sprint("user", i), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := add("eve", 0); sandbox.KindOf(err) != sandbox.QuotaExceeded {
		t.Errorf("one too many of all users: %v", err)
	}
}

// TestWatchesOfSandboxes: a watch of a folder that only a sandbox has lists it twice a second, so there are as many as of watchers,
// and one that goes makes room.
func TestWatchesOfSandboxes(t *testing.T) {
	t.Parallel()
	h, a := adapter(t)
	defer a.Close()
	q := request{caller: me, thread: "e2bx"}
	h.threads[q.thread] = sandbox.ThreadView{Sandbox: &sandbox.Info{State: sandbox.Paused}}
	ends := make(chan error, maxWatchers+1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watch := func() {
		ends <- a.watchListed(ctx, q, "/tmp", true, func([]paths.Change) error { return nil })
	}
	for range maxWatchers + 1 {
		go watch()
	}
	select {
	case err := <-ends:
		if sandbox.KindOf(err) != sandbox.QuotaExceeded {
			t.Errorf("one too many: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatalf("%d watches of one sandbox", maxWatchers+1)
	}
	cancel()
	for range maxWatchers {
		if err := <-ends; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	if len(a.watchers.by) != 0 {
		t.Errorf("%d watchers are left", len(a.watchers.by))
	}
}
