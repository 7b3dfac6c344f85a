package transport

import (
	"context"
	"encoding/json"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/excerpt"
)

// Pack connects the SDK to a tool pack: it answers the few requests of MCP that the hub sends itself, and hands calls to
// the pack. The connection lives as long as the pack is known, also while the pack is away.
type Pack struct {
	pack    sandbox.ToolPack
	traffic *Traffic
}

// NewPack returns a transport to a pack.
func NewPack(p sandbox.ToolPack, t *Traffic) *Pack { return &Pack{p, t} }

// Connect implements mcp.Transport.
func (t *Pack) Connect(context.Context) (mcp.Connection, error) {
	ctx, cancel := context.WithCancel(context.Background())
	return &packConn{Pack: t, ctx: ctx, cancel: cancel, out: make(chan jsonrpc.Message, maxPackAnswers)}, nil
}

const (
	// maxPackAnswers wait for the SDK before calls wait with theirs.
	maxPackAnswers = 64
	codeNoMethod   = -32601
	// CodePack is the code of the error that stands for why a pack has not answered.
	CodePack         = -32097
	codeInternal     = -32603
	methodInitialize = "initialize"
	methodInitiated  = "notifications/initialized"
	methodList       = "tools/list"
	methodPing       = "ping"
	methodListChange = "notifications/tools/list_changed"
)

type packConn struct {
	*Pack
	ctx    context.Context // ends with the connection
	cancel context.CancelFunc
	out    chan jsonrpc.Message
	wg     sync.WaitGroup
}

// SessionID implements mcp.Connection.
func (*packConn) SessionID() string { return "" }

// Read implements mcp.Connection. Close ends it.
func (c *packConn) Read(context.Context) (jsonrpc.Message, error) {
	select {
	case msg := <-c.out:
		return msg, nil
	case <-c.ctx.Done():
		return nil, io.EOF
	}
}

// Write implements mcp.Connection.
func (c *packConn) Write(ctx context.Context, msg jsonrpc.Message) error {
	req, ok := msg.(*jsonrpc.Request)
	if !ok {
		return nil // the hub's side answers nothing: it is asked nothing
	}
	if c.ctx.Err() != nil {
		return ErrNotSent
	}
	seen := CaptureOf(ctx)
	if req.IsCall() && seen != nil {
		c.traffic.await(req, seen)
	}
	switch req.Method {
	case MethodCall:
		c.wg.Go(func() { c.call(ctx, req, seen) })
	case methodInitialize:
		c.answer(req, initialized(req.Params))
	case methodInitiated:
		_, changed := c.pack.List() // before the hub lists
		c.wg.Go(func() { c.follow(changed) })
	case methodList:
		list, _ := c.pack.List()
		c.answer(req, list)
	case methodPing:
		c.answer(req, json.RawMessage(`{}`))
	default:
		if req.IsCall() {
			c.refuse(req, codeNoMethod, "a pack has tools, and nothing else")
		}
	}
	return nil
}

// initialized is the answer to initialize, in the version that the client asks for.
func initialized(params json.RawMessage) json.RawMessage {
	var p struct {
		Version string `json:"protocolVersion"`
	}
	if json.Unmarshal(params, &p) != nil || p.Version == "" {
		p.Version = "2025-06-18"
	}
	text, err := json.Marshal(map[string]any{
		"protocolVersion": p.Version,
		"capabilities":    map[string]any{"tools": map[string]any{"listChanged": true}},
		"serverInfo":      map[string]any{"name": "pack", "version": "1"},
	})
	if err != nil {
		return json.RawMessage(`{}`)
	}
	return text
}

// follow tells the hub of each new list.
func (c *packConn) follow(changed <-chan struct{}) {
	for {
		select {
		case <-changed:
		case <-c.ctx.Done():
			return
		}
		_, changed = c.pack.List()
		c.send(&jsonrpc.Request{Method: methodListChange})
	}
}

// call hands one call to the pack. ctx is that of the call.
func (c *packConn) call(ctx context.Context, req *jsonrpc.Request, seen *Capture) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	var p struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	if err := json.Unmarshal(req.Params, &p); err != nil {
		c.refuse(req, codeInternal, "the call cannot be read")
		return
	}
	call := sandbox.PackCall{Tool: p.Name, Input: p.Arguments, Progress: func(sandbox.ToolProgress) {}}
	if seen != nil {
		call.Thread = seen.Thread
		if l := seen.Listener; l != nil && l.Watch.Progress != nil {
			call.Progress = func(p sandbox.ToolProgress) {
				p.Message = excerpt.Of(p.Message, maxSaying)
				l.put(func() { l.Watch.Progress(p) })
			}
		}
	}
	result, err := c.pack.Call(ctx, call)
	switch {
	case err == nil:
		c.answer(req, result)
	case ctx.Err() == nil: // else no caller waits for an answer
		if seen != nil {
			seen.setFailed(err)
		}
		c.refuse(req, CodePack, excerpt.Detail(err))
	}
}

func (c *packConn) answer(req *jsonrpc.Request, result json.RawMessage) {
	msg := &jsonrpc.Response{ID: req.ID, Result: result}
	c.traffic.observe(msg, nil)
	c.send(msg)
}

func (c *packConn) refuse(req *jsonrpc.Request, code int64, text string) {
	msg := &jsonrpc.Response{ID: req.ID, Error: &jsonrpc.Error{Code: code, Message: text}}
	c.traffic.observe(msg, nil)
	c.send(msg)
}

func (c *packConn) send(msg jsonrpc.Message) {
	select {
	case c.out <- msg:
	case <-c.ctx.Done():
	}
}

// Close implements mcp.Connection. It returns when the calls of the connection have ended.
func (c *packConn) Close() error {
	c.cancel()
	c.wg.Wait()
	return nil
}
