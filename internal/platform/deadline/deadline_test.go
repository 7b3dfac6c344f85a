package deadline

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// passes returns how long after its start a clock of 2 s passes, with something done to it.
func passes(t *testing.T, most time.Duration, do func(c *Clock)) (after time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		began, end := time.Now(), make(chan time.Time, 2)
		c := Start(2*time.Second, most, func() { end <- time.Now() })
		do(c)
		select {
		case at := <-end:
			after = at.Sub(began)
		case <-time.After(24 * time.Hour):
		}
		time.Sleep(24 * time.Hour)
		if len(end) > 0 {
			t.Error("it passed twice")
		}
	})
	return after
}

func TestClock(t *testing.T) {
	for name, c := range map[string]struct {
		most time.Duration
		do   func(c *Clock)
		want time.Duration // 0: never
	}{
		"untouched": {time.Hour, func(*Clock) {}, 2 * time.Second},
		"held and let go": {time.Hour, func(c *Clock) {
			time.Sleep(time.Second)
			c.Hold(time.Minute)
			time.Sleep(10 * time.Second)
			c.Go()
		}, 12 * time.Second},
		"a hold ends by itself": {time.Hour, func(c *Clock) { c.Hold(5 * time.Second) }, 7 * time.Second},
		"a hold is renewed": {time.Hour, func(c *Clock) {
			for range 10 {
				c.Hold(5 * time.Second)
				time.Sleep(3 * time.Second)
			}
			c.Go()
		}, 32 * time.Second},
		"all holds have a bound": {10 * time.Second, func(c *Clock) {
			for range 10 {
				c.Hold(5 * time.Second)
				time.Sleep(3 * time.Second)
			}
		}, 12 * time.Second},
		"so have many short ones": {3 * time.Second, func(c *Clock) {
			for range 100 {
				c.Hold(time.Second)
				time.Sleep(900 * time.Millisecond)
				c.Go()
			}
		}, 5 * time.Second},
		"let go twice": {time.Hour, func(c *Clock) { c.Hold(time.Minute); time.Sleep(time.Second); c.Go(); c.Go() }, 3 * time.Second},
		"stopped":      {time.Hour, func(c *Clock) { c.Stop() }, 0},
		"stopped while held": {time.Hour, func(c *Clock) {
			c.Hold(time.Second)
			c.Stop()
			c.Go()
			c.Hold(time.Second)
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := passes(t, c.most, c.do); got != c.want {
				t.Errorf("it passed after %s, want %s", got, c.want)
			}
		})
	}
}

func TestContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ctx, cancel := Context(context.WithValue(t.Context(), contextKey{}, 7), 2*time.Second, time.Hour)
		defer cancel()
		release := Hold(context.WithValue(ctx, "other", 1)) //nolint:staticcheck // any value
		time.Sleep(10 * time.Second)
		release()
		<-ctx.Done()
		if after := time.Since(began); after != 12*time.Second || !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			t.Errorf("it ended after %s: %v", after, context.Cause(ctx))
		}
	})
	Hold(t.Context())() // nothing to hold
}
