package packs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	packsv1 "github.com/skerry-sandbox/skerry/sdk/packs/v1"
)

const (
	// silentBeats are the heartbeats without any message after which the server is gone.
	silentBeats = 3
	// endTime is how long the calls of a lost connection may take to end before the pack connects again.
	endTime = time.Second
)

// connection is one stream to a server.
type connection struct {
	pack     *Pack
	server   *Server
	instance string
	at       address
	stream   *connect.BidiStreamForClient[packsv1.PackMessage, packsv1.ServerMessage]
	limits   *packsv1.Welcome
	welcomed bool
	gone     <-chan struct{} // closed when the stream has ended
	sending  sync.Mutex
	wg       sync.WaitGroup // calls
	leaves   signal         // set when the server stops, and others go on
	ended    chan struct{}  // closed when run returns
	// running counts the calls of this connection, and those of earlier ones whose tools have not returned yet.
	running *atomic.Int64

	mu       sync.Mutex
	draining bool
	calls    map[uint64]*outgoing
	window   int64         // bytes of results that the server takes, of all calls
	wider    chan struct{} // closed and replaced when a window is wider
	heard    time.Time
	reloads  []chan error
}

// signal is a channel that is closed once.
type signal struct {
	c    chan struct{}
	once sync.Once
}

func (s *signal) set() { s.once.Do(func() { close(s.c) }) }

// outgoing is a call under way.
type outgoing struct {
	cancel context.CancelFunc
	window int64
}

func newConnection(p *Pack, s *Server, instance string, at address, running *atomic.Int64) *connection {
	return &connection{
		pack: p, server: s, instance: instance, at: at, running: running, calls: map[uint64]*outgoing{}, wider: make(chan struct{}),
		leaves: signal{c: make(chan struct{})}, ended: make(chan struct{}),
	}
}

// over reports whether run has returned.
func (c *connection) over() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// run connects, and serves until the stream ends. old is the connection that this one replaces, or nil.
func (c *connection) run(ctx context.Context, old *connection) error {
	defer close(c.ended)
	streamCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, cancel) // until the handshake is done
	late := time.AfterFunc(dialTime, cancel)
	c.stream, c.gone = c.at.client.Connect(streamCtx), streamCtx.Done()
	closed := make(chan struct{})
	context.AfterFunc(streamCtx, func() { c.closeRequest(); close(closed) })
	defer func() { cancel(); <-closed }()
	c.server.Credential.apply(c.stream.RequestHeader())
	err := c.handshake()
	late.Stop()
	if err != nil {
		stop()
		return err
	}
	if !stop() {
		return errDrained
	}
	c.welcomed = true
	c.attach(c)
	if old != nil {
		go old.drain()
	}
	c.server.Connected()
	c.server.Log.Info("pack: connected", "pack", c.pack.ID, "server", c.at.url)
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { c.watch(ctx, done, cancel) })
	err = c.read(streamCtx)
	c.attach(nil)
	cancel()
	close(done)
	watching.Wait()
	c.mu.Lock()
	for _, call := range c.calls {
		call.cancel()
	}
	drained := c.draining && ctx.Err() != nil
	c.mu.Unlock()
	if !c.idle(endTime) {
		c.server.Log.Warn("pack: tools go on although their calls have ended, and take places of other calls", "pack", c.pack.ID, "calls", c.running.Load())
	}
	if drained {
		return errDrained
	}
	return err
}

// idle waits until all calls have ended. It reports whether they did within the time.
func (c *connection) idle(within time.Duration) bool {
	idle := make(chan struct{})
	go func() { c.wg.Wait(); close(idle) }() // it ends with the last tool
	late := time.NewTimer(within)
	defer late.Stop()
	select {
	case <-idle:
		return true
	case <-late.C:
		return false
	}
}

// attach makes a connection the one of the pack; nil: it has none.
func (c *connection) attach(now *connection) {
	c.pack.mu.Lock()
	if now != nil || c.pack.current == c { // else another connection has replaced this one
		c.pack.current = now
	}
	c.pack.mu.Unlock()
	if now != nil {
		return
	}
	c.mu.Lock()
	waiting := c.reloads
	c.reloads = nil
	c.mu.Unlock()
	for _, w := range waiting {
		w <- errors.New("packs: the connection was lost")
	}
}

func (c *connection) handshake() error {
	p := c.pack
	err := c.send(&packsv1.PackMessage{Message: &packsv1.PackMessage_Open{Open: &packsv1.Open{PackId: p.ID, Instance: c.instance, Address: c.at.host}}})
	if err != nil {
		return c.why(err)
	}
	msg, err := c.stream.Receive()
	if err != nil {
		return err
	}
	challenge := msg.GetChallenge()
	if challenge == nil {
		return errors.New("the server sent no challenge")
	}
	signature, err := c.server.Credential.sign(challenge, p.ID, c.at.host)
	if err != nil {
		return connect.NewError(connect.CodeUnauthenticated, fmt.Errorf("the challenge cannot be signed: %w", err))
	}
	err = c.send(&packsv1.PackMessage{Message: &packsv1.PackMessage_Register{Register: &packsv1.Register{Manifest: p.Manifest(), Signature: signature}}})
	if err != nil {
		return c.why(err)
	}
	if msg, err = c.stream.Receive(); err != nil {
		return err
	}
	if c.limits = msg.GetWelcome(); c.limits == nil {
		return errors.New("the server sent no welcome")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.window, c.heard = c.limits.GetConnectionWindow(), time.Now()
	return nil
}

// why is the server's reason for the end of a stream that could not be written to.
func (c *connection) why(err error) error {
	if _, reason := c.stream.Receive(); reason != nil {
		return reason
	}
	return err
}

func (c *connection) send(msg *packsv1.PackMessage) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	return c.stream.Send(msg)
}

// read takes in messages until the stream ends.
func (c *connection) read(ctx context.Context) error {
	for {
		msg, err := c.stream.Receive()
		if err != nil {
			return err
		}
		c.mu.Lock()
		c.heard = time.Now()
		c.mu.Unlock()
		switch m := msg.GetMessage().(type) {
		case *packsv1.ServerMessage_Execute:
			c.begin(ctx, m.Execute.GetRequest())
		case *packsv1.ServerMessage_Cancel:
			c.mu.Lock()
			if call := c.calls[m.Cancel.GetRequestId()]; call != nil {
				call.cancel()
			}
			c.mu.Unlock()
		case *packsv1.ServerMessage_Window:
			c.widen(m.Window)
		case *packsv1.ServerMessage_ReloadResult:
			c.reloaded(m.ReloadResult.GetError())
		case *packsv1.ServerMessage_Drain:
			c.leaves.set()
		}
	}
}

// begin runs a call in a goroutine of its own.
func (c *connection) begin(ctx context.Context, r *packsv1.ExecuteToolRequest) {
	id := r.GetRequestId()
	var cancel context.CancelFunc
	if ms := r.GetTimeoutMs(); ms > 0 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(ms)*time.Millisecond)
	} else {
		ctx, cancel = context.WithCancel(ctx)
	}
	most := c.pack.MaxParallel
	if most == 0 {
		most = defParallel
	}
	c.mu.Lock()
	refused := packsv1.ToolError_CODE_UNSPECIFIED
	switch {
	case c.draining:
		refused = packsv1.ToolError_CODE_DRAINING
	case c.running.Load() >= int64(2*most): // the server does not wait for calls that it has cancelled
		refused = packsv1.ToolError_CODE_BUSY
	}
	if refused == packsv1.ToolError_CODE_UNSPECIFIED {
		c.calls[id] = &outgoing{cancel: cancel, window: c.limits.GetCallWindow()}
		c.wg.Add(1)
		c.running.Add(1)
	}
	c.mu.Unlock()
	if refused != packsv1.ToolError_CODE_UNSPECIFIED {
		cancel()
		c.fail(id, refused, "calls of tools that do not end take all places")
		return
	}
	// The place is free before the server has the result: its next call may come at once.
	free := sync.OnceFunc(func() { c.running.Add(-1) })
	go func() {
		defer c.wg.Done()
		defer func() {
			cancel()
			c.mu.Lock()
			delete(c.calls, id)
			c.mu.Unlock()
			free()
		}()
		c.execute(ctx, r, free)
	}()
}

func (c *connection) fail(id uint64, code packsv1.ToolError_Code, text string) {
	_ = c.send(&packsv1.PackMessage{Message: &packsv1.PackMessage_Result{Result: &packsv1.ToolResult{
		RequestId: id, Last: true, Error: &packsv1.ToolError{Code: code, Message: text},
	}}}) // a lost stream is seen by who reads it
}

// execute runs a tool, and sends what it returns. It calls free before the last message.
func (c *connection) execute(ctx context.Context, r *packsv1.ExecuteToolRequest, free func()) {
	id := r.GetRequestId()
	t, err := c.pack.find(r.GetToolName())
	if err != nil {
		free()
		c.fail(id, packsv1.ToolError_CODE_UNKNOWN_TOOL, err.Error())
		return
	}
	x := r.GetContext()
	ctx = context.WithValue(ctx, runningKey{}, running{
		caller: Caller{Tenant: x.GetTenant(), User: x.GetUser(), Thread: x.GetThread()},
		progress: func(done, total float64, message string) {
			_ = c.send(&packsv1.PackMessage{Message: &packsv1.PackMessage_Progress{Progress: &packsv1.Progress{RequestId: id, Progress: done, Total: total, Message: message}}})
		},
	})
	input := r.GetInputJson()
	if len(input) == 0 {
		input = []byte("{}")
	}
	result := t.answer(ctx, input, c.server.Log)
	select {
	case <-c.gone:
		return // there is no server that could take it
	default:
	}
	if result.Content == nil {
		result.Content = []map[string]any{}
	}
	raw, err := json.Marshal(result)
	if err == nil && int64(len(raw)) > c.limits.GetMaxResultBytes() {
		err = fmt.Errorf("the result has %d bytes, and the server takes at most %d", len(raw), c.limits.GetMaxResultBytes())
	}
	if err != nil {
		failed := textResult(err.Error())
		failed.IsError = true
		raw, _ = json.Marshal(failed) // a text
	}
	c.reply(ctx, id, raw, free)
}

// reply sends a result in parts, as far as the windows let it.
func (c *connection) reply(ctx context.Context, id uint64, raw []byte, free func()) {
	part := int64(c.limits.GetMaxPartBytes())
	if part <= 0 { // the windows alone bound it
		part = math.MaxInt64
	}
	for {
		n, err := c.claim(ctx, id, min(int64(len(raw)), part))
		if err != nil {
			return // the server does not wait for it any more
		}
		last := n == int64(len(raw))
		if last {
			free()
		}
		msg := &packsv1.ToolResult{RequestId: id, Part: raw[:n], Last: last}
		if c.send(&packsv1.PackMessage{Message: &packsv1.PackMessage_Result{Result: msg}}) != nil || last {
			return
		}
		raw = raw[n:]
	}
}

// claim takes up to most bytes from the windows, and waits while there are none.
func (c *connection) claim(ctx context.Context, id uint64, most int64) (int64, error) {
	for {
		c.mu.Lock()
		call := c.calls[id]
		n := min(most, call.window, c.window)
		if n > 0 || most == 0 {
			call.window -= n
			c.window -= n
		}
		wider := c.wider
		c.mu.Unlock()
		if n > 0 || most == 0 {
			return n, nil
		}
		select {
		case <-wider:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

func (c *connection) widen(w *packsv1.Window) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.GetRequestId() == 0 {
		c.window += w.GetBytes()
	} else if call := c.calls[w.GetRequestId()]; call != nil {
		call.window += w.GetBytes()
	}
	close(c.wider)
	c.wider = make(chan struct{})
}

// reload sends the manifest, and waits for the answer.
func (c *connection) reload(ctx context.Context) error {
	answer := make(chan error, 1)
	c.sending.Lock() // answers come in the order of the messages
	c.mu.Lock()
	c.reloads = append(c.reloads, answer)
	c.mu.Unlock()
	err := c.stream.Send(&packsv1.PackMessage{Message: &packsv1.PackMessage_Reload{Reload: &packsv1.Reload{Manifest: c.pack.Manifest()}}})
	c.sending.Unlock()
	if err != nil {
		return err
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *connection) reloaded(text string) {
	c.mu.Lock()
	var answer chan error
	if len(c.reloads) > 0 {
		answer, c.reloads = c.reloads[0], c.reloads[1:]
	}
	c.mu.Unlock()
	if answer == nil {
		return
	}
	if text != "" {
		answer <- fmt.Errorf("packs: the server refuses the tools: %s", text)
		return
	}
	answer <- nil
}

// drain takes no new calls, waits for those that run, and closes the stream.
func (c *connection) drain() {
	c.mu.Lock()
	again := c.draining
	c.draining = true
	c.mu.Unlock()
	if again {
		return
	}
	_ = c.send(&packsv1.PackMessage{Message: &packsv1.PackMessage_Drain{Drain: &packsv1.Drain{}}}) // a lost stream is drained
	c.idle(c.server.Drain)
	c.closeRequest() // the reader sees the end
}

// closeRequest says that nothing follows. The end of a context alone does not end a stream: net/http looks at it only once
// the body of the request has ended, so a read at a server that says nothing would wait for ever.
func (c *connection) closeRequest() {
	c.sending.Lock()
	defer c.sending.Unlock()
	_ = c.stream.CloseRequest()
}

// watch sends heartbeats, ends a stream on which the server is silent, and drains when ctx ends.
func (c *connection) watch(ctx context.Context, done <-chan struct{}, cancel context.CancelFunc) {
	every := time.Duration(max(c.limits.GetHeartbeatSeconds(), 1)) * time.Second
	beat := time.NewTicker(every)
	defer beat.Stop()
	stopping := ctx.Done()
	for {
		select {
		case <-done:
			return
		case <-stopping:
			stopping = nil
			go c.drain()
		case <-beat.C:
			c.mu.Lock()
			silent := time.Since(c.heard)
			c.mu.Unlock()
			if silent > silentBeats*every {
				c.server.Log.Warn("pack: the server is silent", "pack", c.pack.ID, "for", silent)
				cancel()
				return
			}
			go func() { // a server that does not read must not keep the watch from ending the stream
				_ = c.send(&packsv1.PackMessage{Message: &packsv1.PackMessage_Heartbeat{Heartbeat: &packsv1.Heartbeat{}}})
			}()
		}
	}
}
