package inprocess

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Copy sends the answer to one request as the body of another, piece by piece: many copies at once take no memory of the
// server. refused: the answer to the first is no success, and the second was not made.
func (c Caller) Copy(from, to Request) (refused, err error) {
	read, err := c.Make(from)
	if err != nil {
		return nil, err
	}
	content, pipe := io.Pipe()
	got := &passed{Answer: Answer{w: c.W, header: http.Header{}}, pipe: pipe, begun: make(chan struct{})}
	done := make(chan struct{})
	var broken error
	go func() {
		defer close(done)
		broken = got.serve(c.API, read)
		_ = pipe.CloseWithError(broken) // returns nil always
	}()
	select {
	case <-got.begun:
		to.Body = content
		_, err = c.Call(to)
		_ = content.CloseWithError(errStopped) // returns nil always
		<-done
		return nil, err
	case <-done:
	}
	if err := c.told(&got.Answer); err != nil {
		return err, nil
	}
	if broken != nil {
		return nil, broken
	}
	to.Body = http.NoBody // an empty answer may begin with its end
	_, err = c.Call(to)
	return nil, err
}

// errStopped is what a request is told whose answer is not read any more.
var errStopped = errors.New("the answer is not wanted any more")

// passed is an answer whose body goes on as it comes, unless it is a refusal.
type passed struct {
	Answer
	pipe  *io.PipeWriter
	sent  int64
	begun chan struct{} // closed when a success has begun
}

// serve has the API answer. Its error says why the answer is not whole.
func (p *passed) serve(api http.Handler, r *http.Request) (err error) {
	defer func() {
		if v := recover(); v != nil {
			// http.ErrAbortHandler: half an answer was sent. Another panic was logged where it was.
			p.Answer.WriteHeader(http.StatusInternalServerError)
			err = fmt.Errorf("the answer broke off: %v", v)
		}
	}()
	api.ServeHTTP(p, r)
	if size, bad := strconv.ParseInt(p.header.Get("Content-Length"), 10, 64); bad == nil && p.status < 300 && p.sent != size {
		return sandbox.Errorf(sandbox.Conflict, "the file changed while it was copied")
	}
	return nil
}

// WriteHeader implements http.ResponseWriter.
func (p *passed) WriteHeader(status int) {
	if p.status != 0 {
		return
	}
	p.Answer.WriteHeader(status)
	if status < 300 {
		close(p.begun)
	}
}

// Write implements http.ResponseWriter.
func (p *passed) Write(b []byte) (int, error) {
	p.WriteHeader(http.StatusOK)
	if p.status >= 300 {
		return p.Answer.Write(b)
	}
	n, err := p.pipe.Write(b)
	p.sent += int64(n)
	return n, err
}
