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

// streams counts those that are open.
type streams struct {
	mu  sync.Mutex
	all int
	of  map[sandbox.Owner]int
}

// enter counts a stream, which leave takes out again. full says why there can be no other one, with so many of the
// owner's and so many in all.
func (s *streams) enter(o sandbox.Owner, full func(own, all int) error) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := full(s.of[o], s.all); err != nil {
		return nil, err
	}
	if s.of == nil {
		s.of = map[sandbox.Owner]int{}
	}
	s.all++
	s.of[o]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all--
		if s.of[o]--; s.of[o] == 0 {
			delete(s.of, o)
		}
	}, nil
}

// followers counts the streams that follow what was started otherwise.
type followers struct {
	table   *route.Table
	streams streams
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
	return f.streams.enter(o, func(own, _ int) error {
		if own >= maxFollowing {
			return sandbox.TooManyCalls("this user follows %d streams of this server, the most: end one first", maxFollowing)
		}
		return nil
	})
}
