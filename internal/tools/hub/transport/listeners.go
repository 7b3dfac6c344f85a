package transport

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
	MaxLogData     = 16 << 10 // bytes of the data of a log message
	logsPerSecond  = 20       // lines of our log, of one link
	logsAtOnce     = 100
	progressMethod = "notifications/progress"
	messageMethod  = "notifications/message"
)

// Listeners are the calls in progress on one link, and who listens to what the server says about them.
type Listeners struct {
	log     *slog.Logger
	redact  *serverconfig.Redactor
	limiter *rate.Limiter
	shared  bool // by users who must not see each other's

	mu      sync.Mutex
	last    uint64
	byToken map[string]*Listener
}

// NewListeners returns those of a link, which is shared by users who must not see each other's calls, or is not.
func NewListeners(log *slog.Logger, shared bool) *Listeners {
	return &Listeners{log: log, shared: shared, limiter: rate.NewLimiter(logsPerSecond, logsAtOnce), byToken: map[string]*Listener{}}
}

// Hide takes secrets out of what is heard. It is called before the first call.
func (l *Listeners) Hide(r *serverconfig.Redactor) { l.redact = r }

// Listener delivers what is said about one call, in its order and one at a time. The server's link
// does not wait for it.
type Listener struct {
	Watch sandbox.ToolWatch
	Token string // of progress, unique on the link

	mu    sync.Mutex
	queue []func()
	ended bool
	wake  chan struct{}
	done  chan struct{} // closed when all is delivered
}

// Add notes that a call begins. Its end must be noted by remove.
func (l *Listeners) Add(w sandbox.ToolWatch) *Listener {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	c := &Listener{Watch: w, Token: "skerry-" + strconv.FormatUint(l.last, 10)}
	l.byToken[c.Token] = c
	if w.Progress != nil || w.Log != nil {
		c.wake, c.done = make(chan struct{}, 1), make(chan struct{})
		go c.deliver()
	}
	return c
}

// Remove notes that a call has ended and returns when its listener knows all that was said. It may be
// called again, and with nil.
func (l *Listeners) Remove(c *Listener) {
	if c == nil {
		return
	}
	l.mu.Lock()
	delete(l.byToken, c.Token)
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

func (c *Listener) ring() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *Listener) put(say func()) {
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

func (c *Listener) deliver() {
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

// Hear takes a notification. by is the request on whose answer's stream it came, or nil.
func (l *Listeners) Hear(n *jsonrpc.Request, by *Capture) {
	switch n.Method {
	case progressMethod:
		l.progress(n.Params)
	case messageMethod:
		l.message(n.Params, by)
	}
}

func (l *Listeners) progress(params json.RawMessage) {
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
	if c == nil || c.Watch.Progress == nil {
		return
	}
	c.put(func() {
		c.Watch.Progress(sandbox.ToolProgress{Progress: p.Progress, Total: p.Total, Message: excerpt.Of(l.redact.String(p.Message), maxSaying)})
	})
}

// message passes a log message on to the call that it surely belongs to: the one on whose stream it
// came, or the only one in progress on a link of one user. What belongs to no user is only logged.
func (l *Listeners) message(params json.RawMessage, by *Capture) {
	var m struct {
		Level  string          `json:"level"`
		Logger string          `json:"logger"`
		Data   json.RawMessage `json:"data"`
	}
	if json.Unmarshal(params, &m) != nil {
		return
	}
	m.Data = l.redact.JSON(m.Data)
	if len(m.Data) > MaxLogData {
		m.Data = excerpt.JSON(excerpt.Of(string(m.Data), MaxLogData))
	}
	said := sandbox.ToolLog{Level: excerpt.Of(m.Level, maxID), Logger: excerpt.Of(m.Logger, maxID), Data: m.Data}
	if l.limiter.Allow() {
		l.log.LogAttrs(context.Background(), slog.LevelDebug, "MCP server reports", slog.String("level", said.Level),
			slog.String("logger", said.Logger), slog.String("data", l.redacted(excerpt.Of(string(said.Data), maxLogLine))))
	}
	if c := l.owner(by); c != nil && c.Watch.Log != nil {
		c.put(func() { c.Watch.Log(said) })
	}
}

func (l *Listeners) redacted(s string) string {
	if l.redact == nil {
		return s
	}
	return l.redact.Replace(s)
}

func (l *Listeners) owner(by *Capture) *Listener {
	if by != nil && by.Listener != nil {
		return by.Listener
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
