package mcpstdio

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// maxMessage bounds a message of the client, as the server does; maxAnswer bounds one of the server.
	maxMessage = 32 << 20
	maxAnswer  = 64 << 20
	// maxWaiting is how many requests wait for answers at once; further ones are read when one is answered.
	maxWaiting = 64
	// againAfter is the pause before the stream of notifications is opened again, and slowly after the server was away.
	againAfter = 500 * time.Millisecond
	slowly     = 3 * time.Second
	// endTime bounds saying goodbye to the server.
	endTime = 5 * time.Second
)

// Options say what is bridged.
type Options struct {
	Endpoint string // URL of the MCP endpoint
	Header   http.Header
	In       io.Reader
	Out      io.Writer
	Problem  func(text string) // is told, for a person, of each time that the server begins to be away
	HTTP     *http.Client      // nil: one without a deadline
}

// Bridge is one client. Make it with New, and run it once.
type Bridge struct {
	o       Options
	out     output
	session session
	params  paramHeaders
	slots   chan struct{}

	mu      sync.Mutex
	waiting map[string]context.CancelFunc // by the JSON of the request's id
	away    bool                          // the server did not answer last time
	wg      sync.WaitGroup
}

// New returns a bridge.
func New(o Options) *Bridge {
	if o.HTTP == nil {
		o.HTTP = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	return &Bridge{o: o, out: output{w: o.Out}, slots: make(chan struct{}, maxWaiting), waiting: map[string]context.CancelFunc{}}
}

// Run bridges until the client closes its end, or ctx ends.
func (b *Bridge) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	err := b.read(ctx)
	cancel()
	b.wg.Wait()
	b.session.end(b)
	return err
}

// message is what is looked at of a message.
type message struct {
	ID     json.RawMessage `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	raw    []byte
}

func (m *message) isRequest() bool { return m.Method != "" && len(m.ID) > 0 }

// read passes on the client's messages.
func (b *Bridge) read(ctx context.Context) error {
	lines := bufio.NewScanner(b.o.In)
	lines.Buffer(make([]byte, 64<<10), maxMessage)
	came := make(chan []byte)
	failed := make(chan error, 1)
	go func() { // a read of standard input cannot be interrupted: it may outlive Run
		defer close(came)
		for lines.Scan() {
			select {
			case came <- bytes.Clone(lines.Bytes()):
			case <-ctx.Done():
				return
			}
		}
		failed <- lines.Err()
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case line, more := <-came:
			if !more {
				return tooLong(<-failed)
			}
			if line = bytes.TrimSpace(line); len(line) > 0 {
				b.take(ctx, line)
			}
		}
	}
}

func tooLong(err error) error {
	if errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("the client sent a message of more than %d bytes", maxMessage)
	}
	return err
}

// take passes on one message. Notifications and answers keep their order; a request waits for its answer beside the others.
func (b *Bridge) take(ctx context.Context, line []byte) {
	m := message{raw: line}
	if err := json.Unmarshal(line, &m); err != nil {
		b.out.fail(json.RawMessage("null"), codeParse, "not a JSON-RPC message: "+err.Error())
		return
	}
	if m.Method == "notifications/cancelled" {
		b.cancel(ctx, &m)
		return
	}
	if !m.isRequest() {
		b.deliver(ctx, &m)
		if m.Method == "notifications/initialized" {
			b.wg.Go(func() { b.listen(ctx) })
		}
		return
	}
	select {
	case b.slots <- struct{}{}:
	case <-ctx.Done():
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	key := string(m.ID)
	b.mu.Lock()
	b.waiting[key] = cancel
	b.mu.Unlock()
	b.wg.Go(func() {
		defer func() {
			b.mu.Lock()
			delete(b.waiting, key)
			b.mu.Unlock()
			cancel()
			<-b.slots
		}()
		b.deliver(ctx, &m)
	})
}

// cancel takes a request back. With a session the server wants to hear of it; without one the end of the request says it.
func (b *Bridge) cancel(ctx context.Context, m *message) {
	var p struct {
		RequestID json.RawMessage `json:"requestId"`
	}
	if json.Unmarshal(m.Params, &p) != nil {
		return
	}
	if b.session.id() != "" {
		b.deliver(ctx, m)
	}
	b.mu.Lock()
	cancel := b.waiting[string(p.RequestID)]
	b.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// deliver sends a message, and passes on what is answered. What fails becomes the request's error.
func (b *Bridge) deliver(ctx context.Context, m *message) {
	err := b.send(ctx, m)
	if err == nil || ctx.Err() != nil {
		return
	}
	if m.isRequest() {
		b.out.fail(m.ID, codeInternal, err.Error())
	}
}

// report tells a person once that the server is away, and takes note of its return.
func (b *Bridge) report(err error) {
	b.mu.Lock()
	first := err != nil && !b.away
	b.away = err != nil
	b.mu.Unlock()
	if first && b.o.Problem != nil {
		b.o.Problem(err.Error())
	}
}
