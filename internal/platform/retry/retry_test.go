package retry

import (
	"testing"
	"time"
)

func TestDoubling(t *testing.T) {
	b := Doubling(100*time.Millisecond, time.Second)
	for range 2 {
		for i, want := range []time.Duration{100, 200, 400, 800, 1000, 1000} {
			want *= time.Millisecond
			if got := b.NextBackOff(); got < want*8/10 || got > want*12/10 {
				t.Errorf("pause %d is %s, want %s and a fifth more or less", i, got, want)
			}
		}
		b.Reset()
	}
}
