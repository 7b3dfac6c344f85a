package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// capture is what the transport saw of one request, kept for the caller. The SDK decodes results into
// maps: that loses the order of members, which says which parameters matter, and the digits of large
// numbers.
type capture struct {
	mu       sync.Mutex
	result   json.RawMessage // as the server wrote it
	tooLarge bool
	status   int           // of an HTTP answer that was an error
	message  string        // its text
	forgot   bool          // the server knows nothing of the session: it has not looked at the request
	login    error         // why there was no token, or no use of it
	forget   func()        // takes the request out of the transport's table
	ttl      time.Duration // of a list
	listener *listener     // of a call; set before the request goes out
	whole    bool          // the SDK sees nothing of the result; set before the request goes out
}

type captureKey struct{}

func withCapture(ctx context.Context) (context.Context, *capture) {
	c := &capture{}
	return context.WithValue(ctx, captureKey{}, c), c
}

func captureOf(ctx context.Context) *capture {
	c, _ := ctx.Value(captureKey{}).(*capture)
	return c
}

// done ends the capture: no caller waits for an answer that comes later.
func (c *capture) done() {
	c.mu.Lock()
	forget := c.forget
	c.forget = nil
	c.mu.Unlock()
	if forget != nil {
		forget()
	}
}

func (c *capture) setResult(raw json.RawMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.result = raw
}

func (c *capture) setTooLarge() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tooLarge = true
}

func (c *capture) setStatus(status int, message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status, c.message = status, message
}

func (c *capture) setForgot() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgot = true
}

// setLogin notes why a request was not made, or its answer to be of no use: status is that answer's.
func (c *capture) setLogin(status int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status, c.login = status, err
}

func (c *capture) setTTL(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ttl = d
}

// seen is the state of a capture.
type seen struct {
	result   json.RawMessage
	tooLarge bool
	status   int
	message  string
	ttl      time.Duration
	login    error
	forgot   bool
}

func (c *capture) look() seen {
	c.mu.Lock()
	defer c.mu.Unlock()
	return seen{c.result, c.tooLarge, c.status, c.message, c.ttl, c.login, c.forgot}
}

// codeTooLarge is the code of the error that stands for a message that was skipped.
const codeTooLarge = -32099

// tooLargeAnswer stands for an answer that was skipped.
func tooLargeAnswer(id json.RawMessage, limit int) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"larger than %d bytes"}}`, id, codeTooLarge, limit)
}

// lighten hands a result over to the capture and leaves the SDK a small one to decode. It leaves alone
// what the SDK acts upon: a result that asks for input.
func (c *capture) lighten(result json.RawMessage) json.RawMessage {
	c.setResult(result)
	var r struct {
		Content       json.RawMessage `json:"content"`
		InputRequests json.RawMessage `json:"inputRequests"`
		ResultType    string          `json:"resultType,omitempty"`
		IsError       bool            `json:"isError,omitempty"`
	}
	if err := json.Unmarshal(result, &r); err != nil || len(r.InputRequests) > 0 || len(r.Content) == 0 {
		return result
	}
	r.Content = json.RawMessage("[]")
	light, err := json.Marshal(struct {
		Content    json.RawMessage `json:"content"`
		ResultType string          `json:"resultType,omitempty"`
		IsError    bool            `json:"isError,omitempty"`
	}{r.Content, r.ResultType, r.IsError})
	if err != nil {
		return result
	}
	return light
}

const methodCall = "tools/call"

// answer puts the result of a response into the capture of its request.
func (c *capture) answer(res *jsonrpc.Response, method string) {
	if len(res.Result) == 0 {
		return
	}
	if light, ok := lightResults[method]; ok && c.whole {
		c.setResult(res.Result)
		res.Result = json.RawMessage(light)
		return
	}
	if method == methodCall {
		res.Result = c.lighten(res.Result)
		return
	}
	c.setResult(res.Result)
}
