package every

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestTick(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		began := time.Now()
		var at []time.Duration
		for now := range Tick(ctx, time.Second) {
			at = append(at, now.Sub(began))
		}
		if !slices.Equal(at, []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}) || time.Since(began) != 3500*time.Millisecond {
			t.Errorf("ticks at %v, ended at %v", at, time.Since(began))
		}
		for range Tick(t.Context(), time.Second) {
			break // ends without ctx
		}
	})
}
