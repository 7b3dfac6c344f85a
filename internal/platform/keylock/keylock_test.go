package keylock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

func TestLock(t *testing.T) {
	var l Locks[string]
	counters := map[string]*int{"a": new(int), "b": new(int)}
	var group sync.WaitGroup
	for i := range 100 {
		id := "a"
		if i%2 == 0 {
			id = "b"
		}
		group.Go(func() {
			unlock, err := l.Lock(context.Background(), id)
			if err != nil {
				t.Error(err)
				return
			}
			*counters[id]++ // the race detector watches
			unlock()
		})
	}
	group.Wait()
	if *counters["a"] != 50 || *counters["b"] != 50 || len(l.byKey) != 0 {
		t.Errorf("counted %d and %d, %d locks left; want 50, 50, 0", *counters["a"], *counters["b"], len(l.byKey))
	}
}

func TestLockEndsWithContext(t *testing.T) {
	var l Locks[string]
	unlock, err := l.Lock(context.Background(), "a")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if _, err := l.Lock(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the error of the context", err)
	}
	other, err := l.Lock(context.Background(), "b")
	if err != nil {
		t.Fatal(err)
	}
	other()
	unlock()
	if len(l.byKey) != 0 {
		t.Errorf("%d locks left", len(l.byKey))
	}
}
