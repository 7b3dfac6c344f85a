package sidecar

import (
	"net"
	"testing"
)

// TestReach: the sidecar says whether it gets somewhere.
func TestReach(t *testing.T) {
	b := newBed(t)
	c := b.dial(nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	b.must(err)
	for _, want := range []bool{true, false} {
		got, err := c.Reach(t.Context(), l.Addr().String())
		b.must(err)
		if got != want {
			t.Errorf("reached: %v, want %v", got, want)
		}
		_ = l.Close()
	}
}
