package breaker

import (
	"testing"
	"time"
)

func TestBreaker(t *testing.T) {
	t.Parallel()
	var b Breaker
	now := time.Now()
	for n := range After {
		if !b.Allow(now) {
			t.Fatalf("refused after %d failures", n)
		}
		if tripped := b.Note(false, now); tripped != (n == After-1) {
			t.Errorf("failure %d: tripped is %t", n, tripped)
		}
	}
	if b.Allow(now.Add(pause - 1)) {
		t.Error("allowed in the pause")
	}
	now = now.Add(pause)
	if !b.Allow(now) || b.Allow(now) {
		t.Error("after the pause it is not one call that tries")
	}
	b.Pass()
	if !b.Allow(now) {
		t.Error("after a call that says nothing none may try")
	}
	if !b.Note(false, now) || b.Allow(now.Add(pause-1)) {
		t.Error("a try that failed does not begin a pause")
	}
	if !b.Allow(now.Add(pause)) || b.Note(true, now.Add(pause)) || !b.Allow(now.Add(pause)) {
		t.Error("a try that succeeded does not end it")
	}
}
