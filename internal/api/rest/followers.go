package rest

import (
	"github.com/gin-gonic/gin"

	"github.com/skerry-sandbox/skerry/internal/api/rest/eventstream"
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
	table   *route.Table
	streams eventstream.Places
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
	return f.streams.Enter(o, func(own, _ int) error {
		if own >= maxFollowing {
			return sandbox.TooManyCalls("this user follows %d streams of this server, the most: end one first", maxFollowing)
		}
		return nil
	})
}
