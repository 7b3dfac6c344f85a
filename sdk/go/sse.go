package skerry

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// errSilent ends a connection that says nothing, not even that it is alive.
var errSilent = errors.New("nothing came from the server for too long")

// silence cancels a request when nothing has come of it for some time.
type silence struct {
	timer *time.Timer
	most  time.Duration
}

// hearing returns a context that ends when nothing is heard for first, and later for most.
func hearing(ctx context.Context, first, most time.Duration) (context.Context, *silence, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &silence{most: most}
	s.timer = time.AfterFunc(first, func() { cancel(errSilent) })
	return ctx, s, func() { s.timer.Stop(); cancel(context.Canceled) }
}

func (s *silence) heard() { s.timer.Reset(s.most) }

// cause is why a request of ctx failed: that the server was silent is said so.
func cause(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errSilent) {
		return errSilent
	}
	return err
}

// heardBody is a body whose reads are heard.
type heardBody struct {
	io.ReadCloser
	ctx  context.Context //nolint:containedctx // it says why a read failed
	s    *silence
	stop context.CancelFunc
}

func (b *heardBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.s.heard()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = cause(b.ctx, err)
	}
	return n, err
}

func (b *heardBody) Close() error {
	b.stop()
	return b.ReadCloser.Close()
}

// open sends a request whose answer lasts as long as something comes of it.
func (c *Client) open(ctx context.Context, r Request, begins time.Duration) (*http.Response, error) {
	ctx, s, stop := hearing(ctx, begins, c.o.Silence)
	if r.Content != nil {
		r.Content = heardReader(r.Content, s)
	}
	res, err := c.Do(ctx, r)
	if err != nil {
		stop()
		return nil, cause(ctx, err)
	}
	s.heard()
	res.Body = &heardBody{res.Body, ctx, s, stop}
	return res, nil
}

// heardReader hears that an upload goes on. It seeks when r does.
func heardReader(r io.Reader, s *silence) io.Reader {
	h := &sent{r, s}
	if seeker, ok := r.(io.Seeker); ok {
		return struct {
			io.Reader
			io.Seeker
		}{h, seeker}
	}
	return h
}

type sent struct {
	io.Reader
	s *silence
}

func (u *sent) Read(p []byte) (int, error) {
	u.s.heard()
	return u.Reader.Read(p)
}

// message is one server-sent event.
type message struct{ id, event, data string }

// readMessages passes the events of a stream to take, until it says to stop or the stream ends. The
// end of a stream is an error: the server says when it has ended one.
func readMessages(body io.Reader, take func(message) (more bool, err error)) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 64<<10), maxAnswer)
	var m message
	for lines.Scan() {
		if lines.Text() == "" {
			if m.event != "" {
				if more, err := take(m); err != nil || !more {
					return err
				}
			}
			m = message{id: m.id}
			continue
		}
		name, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "id":
			m.id = value
		case "event":
			m.event = value
		case "data":
			m.data = value
		}
	}
	return fmt.Errorf("the stream ended early: %w", errors.Join(io.ErrUnexpectedEOF, lines.Err()))
}
