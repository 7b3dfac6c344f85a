package rest

import (
	"sync"

	"github.com/gin-gonic/gin"

	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/problem"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// maxFollowing is how many streams one owner follows at once on one server. Each has goroutines and buffers, and
// no other limit counts it: it starts nothing.
const maxFollowing = 512

// followers counts the streams that follow what was started otherwise.
type followers struct {
	table *route.Table

	mu sync.Mutex
	of map[sandbox.Owner]int
}

// bound refuses a request that follows something when its owner follows too much.
func (f *followers) bound(c *gin.Context) {
	if rule, _ := f.table.Rule(c); !rule.Follows && !rule.Endless {
		return
	}
	ctx := c.Request.Context()
	leave, err := f.enter(exchange.CallerOf(ctx).Owner)
	if err != nil {
		problem.Write(c.Writer, exchange.Problem(ctx, problem.NotStarted(err)))
		c.Abort()
		return
	}
	defer leave()
	c.Next()
}

// enter counts a stream, which leave takes out again.
func (f *followers) enter(o sandbox.Owner) (leave func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of[o] >= maxFollowing {
		return nil, sandbox.TooManyCalls("this user follows %d streams of this server, the most: end one first", maxFollowing)
	}
	if f.of == nil {
		f.of = map[sandbox.Owner]int{}
	}
	f.of[o]++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.of[o]--; f.of[o] == 0 {
			delete(f.of, o)
		}
	}, nil
}
