package auth

import (
	"fmt"
	"testing"
	"time"
)

// TestGuesses: after some wrong ones from an address the next is not looked at, but for one that was good before.
func TestGuesses(t *testing.T) {
	t.Parallel()
	g, looks := NewGuesses(), 0
	at := time.Unix(1_000_000, 0)
	g.now = func() time.Time { return at }
	look := func(source, secret string, good bool) bool {
		return g.Look(source, secret, func() bool { looks++; return good })
	}
	if !look("192.0.2.1", "good", true) {
		t.Fatal("a good one is refused")
	}
	for i := range 2 * sourceBurst {
		if look("192.0.2.1", fmt.Sprint(i), false) {
			t.Fatal("a wrong one is good")
		}
	}
	if looks != 1+sourceBurst {
		t.Errorf("%d looks", looks)
	}
	if !look("192.0.2.1", "good", true) || !look("192.0.2.2", "another", true) || look("192.0.2.1", "new", true) {
		t.Error("a known one, or another address, was slowed; or a new one was not")
	}
	at = at.Add(sourcePause)
	if !look("192.0.2.1", "new", true) {
		t.Error("a new one was refused after the pause")
	}
}
