package hub

import (
	"context"
	"encoding/json"
	"log/slog"
	"strconv"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"golang.org/x/time/rate"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/excerpt"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/serverconfig"
)

// Limits of what a server may say while calls run.
const (
	maxSayings     = 256      // that wait for one listener; then the oldest is dropped
	maxSaying      = 2 << 10  // bytes of a progress message
	maxLogData     = 16 << 10 // bytes of the data of a log message
	logsPerSecond  = 20       // lines of our log, of one link
	logsAtOnce     = 100
	progressMethod = "notifications/progress"
	messageMethod  = "notifications/message"
)

// listeners are the calls in progress on one link, and who listens to what the server says about them.
type listeners struct {
	log     *slog.Logger
	redact  *serverconfig.Redactor
	limiter *rate.Limiter
	shared  bool // by users who must not see each other's

	mu      sync.Mutex
	last    uint64
	byToken map[string]*listener
}

func newListeners(log *slog.Logger) *listeners {
	return &listeners{log: log, limiter: rate.NewLimiter(logsPerSecond, logsAtOnce), byToken: map[string]*listener{}}
}

// listener delivers what is said about one call, in its order and one at a time. The server's link
// does not wait for it.
type listener struct {
	watch sandbox.ToolWatch
	token string // of progress, unique on the link

	mu    sync.Mutex
	queue []func()
	ended bool
	wake  chan struct{}
	done  chan struct{} // closed when all is delivered
}

// add notes that a call begins. Its end must be noted by remove.
func (l *listeners) add(w sandbox.ToolWatch) *listener {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	c := &listener{watch: w, token: "skerry-" + strconv.FormatUint(l.last, 10)}
	l.byToken[c.token] = c
	if w.Progress != nil || w.Log != nil {
		c.wake, c.done = make(chan struct{}, 1), make(chan struct{})
		go c.deliver()
	}
	return c
}

// remove notes that a call has ended and returns when its listener knows all that was said. It may be
// called again, and with nil.
func (l *listeners) remove(c *listener) {
	if c == nil {
		return
	}
	l.mu.Lock()
	delete(l.byToken, c.token)
	l.mu.Unlock()
	if c.done == nil {
		return
	}
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	c.ring()
	<-c.done
}

func (c *listener) ring() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *listener) put(say func()) {
	c.mu.Lock()
	if !c.ended {
		if len(c.queue) >= maxSayings {
			c.queue = c.queue[1:]
		}
		c.queue = append(c.queue, say)
	}
	c.mu.Unlock()
	c.ring()
}

func (c *listener) deliver() {
	defer close(c.done)
	for range c.wake {
		for {
			c.mu.Lock()
			queue, ended := c.queue, c.ended
			c.queue = nil
			c.mu.Unlock()
			for _, say := range queue {
				say()
			}
			if ended {
				return
			}
			if len(queue) == 0 {
				break
			}
		}
	}
}

// hear takes a notification. by is the request on whose answer's stream it came, or nil.
func (l *listeners) hear(n *jsonrpc.Request, by *capture) {
	switch n.Method {
	case progressMethod:
		l.progress(n.Params)
	case messageMethod:
		l.message(n.Params, by)
	}
}

func (l *listeners) progress(params json.RawMessage) {
	var p struct {
		Token    json.RawMessage `json:"progressToken"`
		Progress float64         `json:"progress"`
		Total    float64         `json:"total"`
		Message  string          `json:"message"`
	}
	var token string
	if json.Unmarshal(params, &p) != nil || json.Unmarshal(p.Token, &token) != nil {
		return
	}
	l.mu.Lock()
	c := l.byToken[token]
	l.mu.Unlock()
	if c == nil || c.watch.Progress == nil {
		return
	}
	c.put(func() {
		c.watch.Progress(sandbox.ToolProgress{Progress: p.Progress, Total: p.Total, Message: excerpt.Of(l.redact.String(p.Message), maxSaying)})
	})
}

// message passes a log message on to the call that it surely belongs to: the one on whose stream it
// came, or the only one in progress on a link of one user. What belongs to no user is only logged.
func (l *listeners) message(params json.RawMessage, by *capture) {
	var m struct {
		Level  string          `json:"level"`
		Logger string          `json:"logger"`
		Data   json.RawMessage `json:"data"`
	}
	if json.Unmarshal(params, &m) != nil {
		return
	}
	m.Data = l.redact.JSON(m.Data)
	if len(m.Data) > maxLogData {
		m.Data = excerpt.JSON(excerpt.Of(string(m.Data), maxLogData))
	}
	said := sandbox.ToolLog{Level: excerpt.Of(m.Level, maxID), Logger: excerpt.Of(m.Logger, maxID), Data: m.Data}
	if l.limiter.Allow() {
		l.log.LogAttrs(context.Background(), slog.LevelDebug, "MCP server reports", slog.String("level", said.Level),
			slog.String("logger", said.Logger), slog.String("data", l.redacted(excerpt.Of(string(said.Data), maxLogLine))))
	}
	if c := l.owner(by); c != nil && c.watch.Log != nil {
		c.put(func() { c.watch.Log(said) })
	}
}

func (l *listeners) redacted(s string) string {
	if l.redact == nil {
		return s
	}
	return l.redact.Replace(s)
}

func (l *listeners) owner(by *capture) *listener {
	if by != nil && by.listener != nil {
		return by.listener
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if by != nil || l.shared || len(l.byToken) != 1 {
		return nil
	}
	for _, c := range l.byToken {
		return c
	}
	return nil
}
