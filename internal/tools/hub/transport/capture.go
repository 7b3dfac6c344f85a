package transport

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Capture is what the transport saw of one request, kept for the caller. The SDK decodes results into
// maps: that loses the order of members, which says which parameters matter, and the digits of large
// numbers.
type Capture struct {
	mu       sync.Mutex
	result   json.RawMessage // as the server wrote it
	tooLarge bool
	status   int            // of an HTTP answer that was an error
	message  string         // its text
	forgot   bool           // the server knows nothing of the session: it has not looked at the request
	login    error          // why there was no token, or no use of it
	failed   error          // why a pack has not answered
	forget   func()         // takes the request out of the transport's table
	ttl      time.Duration  // of a list
	Listener *Listener      // of a call; set before the request goes out
	Whole    bool           // the SDK sees nothing of the result; set before the request goes out
	Thread   sandbox.Thread // for which a call is made; set before the request goes out
}

type captureKey struct{}

// WithCapture returns a context whose request is captured.
func WithCapture(ctx context.Context) (context.Context, *Capture) {
	c := &Capture{}
	return context.WithValue(ctx, captureKey{}, c), c
}

// CaptureOf returns the capture of a request, or nil.
func CaptureOf(ctx context.Context) *Capture {
	c, _ := ctx.Value(captureKey{}).(*Capture)
	return c
}

// Done ends the capture: no caller waits for an answer that comes later.
func (c *Capture) Done() {
	c.mu.Lock()
	forget := c.forget
	c.forget = nil
	c.mu.Unlock()
	if forget != nil {
		forget()
	}
}

func (c *Capture) setResult(raw json.RawMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.result = raw
}

func (c *Capture) setTooLarge() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tooLarge = true
}

func (c *Capture) setStatus(status int, message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status, c.message = status, message
}

func (c *Capture) setForgot() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgot = true
}

func (c *Capture) setFailed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = err
}

// setLogin notes why a request was not made, or its answer to be of no use: status is that answer's.
func (c *Capture) setLogin(status int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status, c.login = status, err
}

// SetTTL notes how long a list is good for.
func (c *Capture) SetTTL(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ttl = d
}

// Seen is the state of a capture.
type Seen struct {
	Result   json.RawMessage
	TooLarge bool
	Status   int
	Message  string
	TTL      time.Duration
	Login    error
	Forgot   bool
	Failed   error
}

// Look returns what was seen until now.
func (c *Capture) Look() Seen {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Seen{c.result, c.tooLarge, c.status, c.message, c.ttl, c.login, c.forgot, c.failed}
}

// CodeTooLarge is the code of the error that stands for a message that was skipped.
const CodeTooLarge = -32099

// tooLargeAnswer stands for an answer that was skipped.
func tooLargeAnswer(id json.RawMessage, limit int) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"larger than %d bytes"}}`, id, CodeTooLarge, limit)
}

// lighten hands a result over to the capture and leaves the SDK a small one to decode. It leaves alone
// what the SDK acts upon: a result that asks for input.
func (c *Capture) lighten(result json.RawMessage) json.RawMessage {
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

// MethodCall is the method of a tool call.
const MethodCall = "tools/call"

// answer puts the result of a response into the capture of its request.
func (c *Capture) answer(res *jsonrpc.Response, method string) {
	if len(res.Result) == 0 {
		return
	}
	if light, ok := lightResults[method]; ok && c.Whole {
		c.setResult(res.Result)
		res.Result = json.RawMessage(light)
		return
	}
	if method == MethodCall {
		res.Result = c.lighten(res.Result)
		return
	}
	c.setResult(res.Result)
}

// lightResults stand for results that are passed on as they are: the SDK would act upon a result that asks for
// input, which is for the client behind us.
var lightResults = map[string]string{MethodCall: `{"content":[]}`, "prompts/get": `{"messages":[]}`, "resources/read": `{"contents":[]}`}
