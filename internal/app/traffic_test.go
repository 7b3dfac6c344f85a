package app

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// TestSettle: a stop waits for requests that were sent before their clients could know of it, and not for ever.
func TestSettle(t *testing.T) {
	for name, c := range map[string]struct {
		every, times time.Duration // pauses between requests, and how many of them
		want         time.Duration
	}{
		"nobody asks":     {want: quietTime},
		"one is late":     {every: 150 * time.Millisecond, times: 1, want: 150*time.Millisecond + quietTime},
		"they never end":  {every: 100 * time.Millisecond, times: 100, want: quietLimit},
		"after the pause": {every: quietTime + trafficLook, times: 1, want: quietTime},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var tr traffic
				h := tr.count(http.NotFoundHandler(), func() bool { return true })
				ctx, cancel := context.WithCancel(t.Context())
				go func() {
					for range c.times {
						time.Sleep(c.every)
						if ctx.Err() != nil {
							return
						}
						answer := httptest.NewRecorder()
						h.ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodPost, "/", http.NoBody))
						if answer.Header().Get("Connection") != "close" {
							t.Error("the connection is kept")
						}
					}
				}()
				began := time.Now()
				tr.settle(t.Context())
				cancel()
				if took := time.Since(began); took < c.want || took > c.want+2*trafficLook {
					t.Errorf("took %s, want %s", took, c.want)
				}
				time.Sleep(c.every) // the goroutine ends in the bubble
			})
		})
	}
}

// TestSettleAtOnce: a second signal ends the wait.
func TestSettleAtOnce(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var tr traffic
		tr.settle(ctx)
		tr.changing.Add(1)
		tr.linger(ctx, began.Add(time.Hour))
		if took := time.Since(began); took != 0 {
			t.Errorf("took %s", took)
		}
	})
}
