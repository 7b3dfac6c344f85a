package groupcommit

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWaitCoversWhatWasAppendedBefore(t *testing.T) {
	var appended, synced atomic.Int64
	var syncs atomic.Int64
	c := New(func() error {
		n := appended.Load()
		time.Sleep(time.Millisecond)
		synced.Store(n)
		syncs.Add(1)
		return nil
	})
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for range 20 {
				n := appended.Add(1)
				if err := c.Wait(t.Context()); err != nil {
					t.Error(err)
				}
				if synced.Load() < n {
					t.Errorf("Wait returned before append %d was synced (%d)", n, synced.Load())
				}
			}
		})
	}
	wg.Wait()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if got := syncs.Load(); got > 200 {
		t.Errorf("640 waits took %d syncs; they are meant to share", got)
	}
	if err := c.Wait(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("Wait after Close: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

func TestFailureIsFinal(t *testing.T) {
	bad := errors.New("input/output error")
	fail := true
	c := New(func() error {
		if fail {
			fail = false
			return bad
		}
		return nil
	})
	for range 2 {
		if err := c.Wait(t.Context()); !errors.Is(err, bad) {
			t.Errorf("Wait: %v, want the failure", err)
		}
	}
	if err := c.Close(); !errors.Is(err, bad) {
		t.Errorf("Close: %v, want the failure", err)
	}
}

func TestWaitEndsWithContext(t *testing.T) {
	block := make(chan struct{})
	c := New(func() error { <-block; return nil })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := c.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait: %v", err)
	}
	close(block)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}
