package idlock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func TestLockEndsWithContext(t *testing.T) {
	var l Locks
	unlock, err := l.Lock(context.Background(), "a")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if _, err := l.Lock(ctx, "a"); !errors.Is(err, sandbox.Timeout) {
		t.Errorf("got %v, want timeout", err)
	}
	other, err := l.Lock(context.Background(), "b")
	if err != nil {
		t.Fatal(err)
	}
	other()
	unlock()
}
