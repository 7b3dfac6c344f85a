package transport

import (
	"encoding/json"
	"fmt"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/skerry-sandbox/skerry/internal/platform/jsonedit"
)

// Traffic looks at the messages that come over one link, before the SDK does and in the order in which
// the server sent them: it hands results to those who wait for them, and what a server says beside to
// the link's listeners.
type Traffic struct {
	limit int                                   // bytes of a message
	hear  func(n *jsonrpc.Request, by *Capture) // takes notifications; by is the request they came with, or nil

	mu      sync.Mutex
	waiting map[any]waiting // by the raw id of the request
}

// waiting is a request whose answer is wanted as it was.
type waiting struct {
	c      *Capture
	method string
}

// NewTraffic returns the traffic of a link. A message has at most limit bytes; hear takes notifications, or is nil.
func NewTraffic(limit int, hear func(*jsonrpc.Request, *Capture)) *Traffic {
	return &Traffic{limit: limit, hear: hear, waiting: map[any]waiting{}}
}

// await notes that a request goes out whose answer is for c.
func (t *Traffic) await(req *jsonrpc.Request, c *Capture) {
	id := req.ID.Raw()
	t.mu.Lock()
	t.waiting[id] = waiting{c, req.Method}
	t.mu.Unlock()
	c.mu.Lock()
	c.forget = func() { t.take(id) }
	c.mu.Unlock()
}

func (t *Traffic) take(id any) (waiting, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w, ok := t.waiting[id]
	delete(t.waiting, id)
	return w, ok
}

// observe takes in a message; it may make a result lighter, and says so. by is the request whose answer it
// came with, or nil.
func (t *Traffic) observe(msg jsonrpc.Message, by *Capture) (changed bool) {
	switch msg := msg.(type) {
	case *jsonrpc.Response:
		if w, ok := t.take(msg.ID.Raw()); ok && msg.Error == nil {
			w.c.answer(msg, w.method)
			changed = true
		}
		if jsonedit.Values(msg.Result) > maxValues {
			msg.Result, msg.Error = nil, &jsonrpc.Error{Code: codeManyValues, Message: fmt.Sprintf("the result has more than %d values", maxValues)}
			changed = true
		}
	case *jsonrpc.Request:
		if jsonedit.Values(msg.Params) > maxValues {
			msg.Params = nil
			return true
		}
		if !msg.IsCall() && t.hear != nil {
			t.hear(msg, by)
		}
	}
	return changed
}

// maxValues bounds what the SDK decodes: a value has two bytes, and takes a hundred of memory, or two for a tool.
const maxValues = 250_000

// codeManyValues is the code of the error that stands for a result with more values.
const codeManyValues = -32098

// text is see for a message that is not decoded yet. It returns what the SDK is to read in its place.
func (t *Traffic) text(body []byte, by *Capture) []byte {
	msg, err := jsonrpc.DecodeMessage(body)
	if err != nil || !t.observe(msg, by) {
		return body
	}
	if out, err := jsonrpc.EncodeMessage(msg); err == nil {
		return out
	}
	return body
}

// skipped takes in that the answer to the request id was too large, and returns what stands for it.
func (t *Traffic) skipped(id json.RawMessage) []byte {
	text := tooLargeAnswer(id, t.limit)
	msg, err := jsonrpc.DecodeMessage(text)
	if err != nil {
		return text
	}
	if res, ok := msg.(*jsonrpc.Response); ok {
		if w, ok := t.take(res.ID.Raw()); ok {
			w.c.setTooLarge()
		}
	}
	return text
}
