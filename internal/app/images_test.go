package app

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func TestImageImport(t *testing.T) {
	t.Parallel()
	go1 := make(chan struct{})
	var runs atomic.Int64
	i := &imageImport{template: "office", run: func() error {
		runs.Add(1)
		<-go1
		return nil
	}}
	for range 3 { // none waits long; all wait for the same import
		short, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		if err := i.wait(short); sandbox.KindOf(err) != sandbox.Unavailable {
			t.Errorf("who does not wait long: %v", err)
		}
		cancel()
	}
	if n := runs.Load(); n != 1 {
		t.Errorf("%d imports at once", n)
	}
	close(go1)
	i.wg.Wait()
	if err := i.wait(t.Context()); err != nil || runs.Load() != 2 { // asked again: the image may be another by now
		t.Errorf("%v, %d imports", err, runs.Load())
	}
	want := errors.New("no space")
	i.run = func() error { return want }
	if err := i.wait(t.Context()); !errors.Is(err, want) {
		t.Errorf("%v", err)
	}
	i.run = func() error { return nil }
	if err := i.wait(t.Context()); err != nil {
		t.Errorf("an error was kept: %v", err)
	}
}
