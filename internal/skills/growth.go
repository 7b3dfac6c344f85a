package skills

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// maxGrowth is how many bytes a user may add to the store at once, and again within an hour. What was replaced or
// removed counts in no quota, and stays in the store until Sweep finds it old enough.
const maxGrowth = 2 * maxCustomBytes

// growth bounds what users add to the store. The zero value is ready. All methods may be called at the same time.
type growth struct {
	mu sync.Mutex
	of map[sandbox.Owner]*rate.Limiter
}

// take counts bytes that a user adds. QuotaExceeded when these are too many for now.
func (g *growth) take(o sandbox.Owner, bytes int64, now time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.of[o]
	if l == nil {
		if g.of == nil {
			g.of = map[sandbox.Owner]*rate.Limiter{}
		}
		l = rate.NewLimiter(rate.Limit(maxGrowth/stageAge.Seconds()), maxGrowth)
		g.of[o] = l
	}
	if !l.AllowN(now, int(bytes)) {
		return sandbox.Errorf(sandbox.QuotaExceeded, "a user adds at most %d bytes of skills within an hour; try again later", maxGrowth)
	}
	return nil
}

// forget drops the users who have all of their bytes again.
func (g *growth) forget(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for o, l := range g.of {
		if l.TokensAt(now) >= maxGrowth {
			delete(g.of, o)
		}
	}
}
