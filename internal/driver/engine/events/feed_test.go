package events

import (
	"context"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestFeed: each reader has all events since it came, in their order, though no reader waits when they are
// put. A reader ends with its context or with the driver.
func TestFeed(t *testing.T) {
	var f Feed
	var running sync.WaitGroup
	closing, closeAll := context.WithCancel(t.Context())
	defer closeAll()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ids := []sandbox.ID{"a", "b", "c"}
	f.Put(driver.Event{ID: "before"})
	first := f.Watch(ctx, closing, &running)
	f.Put(driver.Event{ID: ids[0]})
	second := f.Watch(t.Context(), closing, &running)
	f.Put(driver.Event{ID: ids[1]})
	f.Put(driver.Event{ID: ids[2]})
	for _, id := range ids {
		if e := <-first; e.ID != id {
			t.Errorf("first: %s, want %s", e.ID, id)
		}
	}
	for _, id := range ids[1:] {
		if e := <-second; e.ID != id {
			t.Errorf("second: %s, want %s", e.ID, id)
		}
	}
	cancel()
	if e, ok := <-first; ok {
		t.Errorf("behind its end the first has %+v", e)
	}
	f.Put(driver.Event{ID: "unread"})
	closeAll()
	running.Wait()
	for range second { //nolint:revive // until it is closed
	}
	if len(f.readers) > 0 {
		t.Errorf("%d readers are left", len(f.readers))
	}
}
