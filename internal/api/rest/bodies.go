package rest

import (
	"errors"
	"io"

	"github.com/gin-gonic/gin"

	"github.com/skerry-sandbox/skerry/internal/api/held"
	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/problem"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// bodies bounds what bodies take in memory that are read whole: the JSON of a request, and all that is compared with an earlier one.
type bodies struct {
	table *route.Table
	held  *held.Bytes
}

// retryBodies is when a caller may try again, in seconds: requests of others end soon.
const retryBodies = 5

// hold counts the body of a request, until it is answered. A short one is free.
func (b *bodies) hold(c *gin.Context) {
	r := c.Request
	rule, _ := b.table.Rule(c)
	passed := rule.Bodies != nil && r.Header.Get(sandbox.KeyHeader) == ""
	if passed || r.Body == nil || r.ContentLength >= 0 && r.ContentLength <= held.Short {
		return
	}
	ctx := r.Context()
	mine := b.held.Of(held.CallerOf(exchange.CallerOf(ctx)))
	defer mine.End()
	if err := mine.TakeBody(ctx, r.ContentLength, route.MaxJSONBytes); err != nil {
		p := exchange.Problem(ctx, problem.NotStarted(err))
		p.RetryAfter(retryBodies)
		problem.Write(c.Writer, p)
		c.Abort()
		return
	}
	r.Body = &heldBody{ReadCloser: r.Body, mine: mine}
	c.Next()
}

// heldBody frees at its end what was held for a longer one.
type heldBody struct {
	io.ReadCloser
	mine *held.Request
	n    int
}

// Read implements io.Reader.
func (b *heldBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.n += n; errors.Is(err, io.EOF) {
		b.mine.KeepBody(b.n)
	}
	return n, err
}
