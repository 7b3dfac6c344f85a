package packs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	packsv1 "github.com/skerry-sandbox/skerry/sdk/packs/v1"
)

// Limits of one stream.
const (
	maxInput         = 4 << 20   // bytes of the arguments of a call
	maxPart          = 256 << 10 // bytes of one part of a result
	callWindow       = 1 << 20   // bytes of the result of a call that a pack may send unasked
	connectionWindow = 4 << 20   // and of all results
	maxBuffered      = 64 << 20  // bytes of results that are not complete
	maxErrorText     = 2 << 10   // bytes of the text of an error
	framesPerSecond  = 20_000
	framesAtOnce     = 20_000
	reloadEvery      = time.Second // each compiles up to a thousand schemas, and is recorded
	reloadsAtOnce    = 10
	silentBeats      = 3 // heartbeats without any message after which the other side is gone
)

// session is one stream of a pack that is registered.
type session struct {
	registry *Registry
	peer     Peer
	grant    Grant
	instance string
	pack     *Pack // set by Pack.take
	out      *outbox
	rate     *rate.Limiter // of frames
	reloads  *rate.Limiter
	ended    chan struct{}

	mu       sync.Mutex
	err      error // why it ended
	next     uint64
	open     map[uint64]*call
	buffered int64
	window   int64 // bytes of results that the pack may still send
	used     int64 // of it since the last Window
	draining bool  // it stops
	leaving  bool  // this server stops, and the pack was told to go on elsewhere
	heard    time.Time
	late     uint64
}

// call is one call under way.
type call struct {
	done     chan struct{}
	progress func(sandbox.ToolProgress)

	sent   bool // the pack knows of it
	buf    []byte
	window int64
	used   int64
	result json.RawMessage // set when done is closed
	err    error
}

func newSession(r *Registry, p Peer, g Grant, instance string) *session {
	return &session{
		registry: r, peer: p, grant: g, instance: instance, out: newOutbox(), rate: rate.NewLimiter(framesPerSecond, framesAtOnce),
		reloads: rate.NewLimiter(rate.Every(reloadEvery), reloadsAtOnce), ended: make(chan struct{}), open: map[uint64]*call{}, window: connectionWindow, heard: time.Now(),
	}
}

// end ends the session. The calls under way end with why; the first reason counts.
func (s *session) end(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	s.err = why
	close(s.ended)
	for id, c := range s.open {
		s.settle(id, c, nil, s.pack.errLost(c.sent, why))
	}
}

// leave tells the pack to go on at another server.
func (s *session) leave() {
	s.mu.Lock()
	s.leaving = true
	s.mu.Unlock()
	s.urgent(&packsv1.ServerMessage{Message: &packsv1.ServerMessage_Drain{Drain: &packsv1.Drain{}}})
}

// why is the reason of its end, or nil.
func (s *session) why() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *session) isDraining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining
}

// counts are the calls under way, all calls, and the answers that came too late.
func (s *session) counts() (running int, all, late uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open), s.next, s.late
}

// settle ends a call. The caller holds s.mu.
func (s *session) settle(id uint64, c *call, result json.RawMessage, err error) {
	delete(s.open, id)
	s.buffered -= int64(len(c.buf))
	c.buf, c.result, c.err = nil, result, err
	close(c.done)
}

// call makes a call, and waits for its end.
func (s *session) call(ctx context.Context, p sandbox.PackCall) (json.RawMessage, error) {
	id, c, err := s.begin(p.Progress)
	if err != nil {
		return nil, err
	}
	if err := s.send(ctx, id, p); err != nil {
		s.abandon(id, "")
		return nil, err
	}
	select {
	case <-c.done:
		return c.result, c.err
	case <-ctx.Done():
		s.abandon(id, context.Cause(ctx).Error())
		return nil, ctx.Err()
	}
}

func (s *session) begin(progress func(sandbox.ToolProgress)) (uint64, *call, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil:
		return 0, nil, s.pack.errLost(false, s.err)
	case s.draining:
		return 0, nil, s.pack.errStopping()
	}
	s.next++
	c := &call{done: make(chan struct{}), progress: progress, window: callWindow}
	s.open[s.next] = c
	return s.next, c, nil
}

// send puts a call into the outbox, as soon as there is room.
func (s *session) send(ctx context.Context, id uint64, p sandbox.PackCall) error {
	r := &packsv1.ExecuteToolRequest{
		RequestId: id, ToolName: p.Tool, InputJson: p.Input,
		Context: &packsv1.CallContext{Tenant: p.Thread.Tenant, User: p.Thread.User, Thread: p.Thread.ID},
	}
	if deadline, ok := ctx.Deadline(); ok {
		r.TimeoutMs = max(time.Until(deadline).Milliseconds(), 1)
	}
	msg := &packsv1.ServerMessage{Message: &packsv1.ServerMessage_Execute{Execute: &packsv1.ExecuteTool{Request: r}}}
	return s.out.putCall(ctx, outCall{id: id, size: int64(len(p.Input)) + 1<<10, msg: msg})
}

// abandon forgets a call that no caller waits for, and tells the pack if it knows of the call.
func (s *session) abandon(id uint64, reason string) {
	s.mu.Lock()
	c := s.open[id]
	tell := c != nil && c.sent
	if c != nil {
		s.settle(id, c, nil, context.Canceled)
	}
	s.mu.Unlock()
	if tell {
		s.cancel(id, reason)
	}
}

func (s *session) cancel(id uint64, reason string) {
	s.urgent(&packsv1.ServerMessage{Message: &packsv1.ServerMessage_Cancel{Cancel: &packsv1.Cancel{RequestId: id, Reason: reason}}})
}

// urgent sends a short message. A pack that leaves thousands of them unread is gone.
func (s *session) urgent(msg *packsv1.ServerMessage) {
	if !s.out.putUrgent(msg) {
		s.end(sandbox.Errorf(sandbox.Unavailable, "the pack does not read its stream"))
	}
}

// goesOut reports whether a call is still wanted when its turn to be sent has come, and notes that it is sent.
func (s *session) goesOut(id uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.open[id]
	if c != nil {
		c.sent = true
	}
	return c != nil
}

// breach is a message that breaks the contract: it ends the session.
func breach(format string, args ...any) error {
	return sandbox.Errorf(sandbox.Invalid, "the pack breaks the contract: %s", fmt.Sprintf(format, args...))
}

// handle takes in one message of the pack. An error ends the session.
func (s *session) handle(ctx context.Context, msg *packsv1.PackMessage) error {
	s.mu.Lock()
	s.heard = time.Now()
	s.mu.Unlock()
	switch m := msg.GetMessage().(type) {
	case *packsv1.PackMessage_Result:
		return s.take(m.Result)
	case *packsv1.PackMessage_Progress:
		return s.progressed(m.Progress)
	case *packsv1.PackMessage_Reload:
		if !s.reloads.Allow() {
			return breach("it reloads more often than once in %s", reloadEvery)
		}
		s.reload(ctx, m.Reload.GetManifest())
	case *packsv1.PackMessage_Drain:
		s.mu.Lock()
		again := s.draining
		s.draining = true
		s.mu.Unlock()
		if !again { // the others look at the state that servers share
			s.registry.o.Others.Changed()
		}
	case *packsv1.PackMessage_Open, *packsv1.PackMessage_Register:
		return breach("it registers on a stream that is registered")
	}
	return nil // a heartbeat, or what a newer contract knows
}

// take takes in a part of a result.
func (s *session) take(r *packsv1.ToolResult) error {
	id, size := r.GetRequestId(), int64(len(r.GetPart()))
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case id == 0 || id > s.next:
		return breach("it answers the call %d, which was never made", id)
	case size > maxPart:
		return breach("a part of a result has %d bytes; at most %d are allowed", size, maxPart)
	}
	if s.window -= size; s.window < 0 {
		return breach("it has sent more bytes of results than the window of the connection lets it")
	}
	if s.used += size; s.used >= connectionWindow/2 {
		s.widen(0, &s.window, &s.used)
	}
	c := s.open[id]
	if c == nil || !c.sent {
		s.late++
		return nil
	}
	if c.window -= size; c.window < 0 {
		return breach("it has sent more bytes of the result of the call %d than the window lets it", id)
	}
	if e := r.GetError(); e != nil {
		s.settle(id, c, nil, s.pack.errorOf(e))
		return nil
	}
	if refused := s.tooMuch(int64(len(c.buf))+size, size); refused != nil {
		s.settle(id, c, nil, refused)
		if !r.GetLast() {
			go s.cancel(id, detailOf(refused)) // it takes the lock
		}
		return nil
	}
	c.buf = append(c.buf, r.GetPart()...)
	s.buffered += size
	if r.GetLast() {
		s.finish(id, c)
		return nil
	}
	if c.used += size; c.used >= callWindow/2 {
		s.widen(id, &c.window, &c.used)
	}
	return nil
}

// widen lets the pack send again what it has used. The caller holds s.mu; the message is short, and has room.
func (s *session) widen(id uint64, window, used *int64) {
	n := *used
	*window += n
	*used = 0
	s.out.putUrgent(&packsv1.ServerMessage{Message: &packsv1.ServerMessage_Window{Window: &packsv1.Window{RequestId: id, Bytes: n}}})
}

// tooMuch says why a result may not grow by size bytes to n, or nil.
func (s *session) tooMuch(n, size int64) error {
	if limit := int64(s.registry.o.MaxResult); n > limit {
		return sandbox.Errorf(sandbox.ToolFailed, "the result is larger than %d bytes, which is the limit", limit)
	}
	if s.buffered+size > maxBuffered {
		return sandbox.Errorf(sandbox.CapacityExceeded, "the results that the pack %q is sending have more than %d bytes together", s.pack.key.id, maxBuffered)
	}
	return nil
}

// finish ends a call whose last part has come.
func (s *session) finish(id uint64, c *call) {
	var top struct {
		Content json.RawMessage `json:"content"`
	}
	result := json.RawMessage(c.buf)
	if err := json.Unmarshal(result, &top); err != nil || len(top.Content) == 0 {
		s.settle(id, c, nil, sandbox.Errorf(sandbox.ToolFailed, "the pack's result is not one of MCP: a JSON object with content"))
		return
	}
	s.settle(id, c, result, nil)
}

// errorOf is what the caller is told when the pack has not run a tool.
func (p *Pack) errorOf(e *packsv1.ToolError) error {
	text := excerptOf(e.GetMessage(), maxErrorText)
	switch e.GetCode() {
	case packsv1.ToolError_CODE_DRAINING:
		return p.errStopping()
	case packsv1.ToolError_CODE_UNKNOWN_TOOL:
		return sandbox.Errorf(sandbox.ToolFailed, "the pack %q does not know this tool, which is in its manifest: %s", p.key.id, text)
	case packsv1.ToolError_CODE_BUSY:
		return sandbox.NotStarted(sandbox.Errorf(sandbox.CapacityExceeded, "the pack %q takes no more calls now: %s", p.key.id, text))
	}
	return sandbox.Errorf(sandbox.ToolFailed, "%s", text)
}

func (s *session) progressed(p *packsv1.Progress) error {
	id := p.GetRequestId()
	s.mu.Lock()
	c := s.open[id]
	never := id == 0 || id > s.next
	s.mu.Unlock()
	if never {
		return breach("it reports progress of the call %d, which was never made", id)
	}
	if c != nil {
		c.progress(sandbox.ToolProgress{Progress: p.GetProgress(), Total: p.GetTotal(), Message: excerptOf(p.GetMessage(), maxErrorText)})
	}
	return nil
}

// reload puts a new manifest in force, or says what is wrong with it.
func (s *session) reload(ctx context.Context, p *packsv1.PackManifest) {
	m, err := s.grant.manifest(p)
	if err == nil && m.ID != s.pack.key.id {
		err = sandbox.Errorf(sandbox.Invalid, "pack_id: a reload cannot rename %q to %q", s.pack.key.id, m.ID)
	}
	if err == nil {
		err = s.registry.reload(s.pack, m)
	}
	answer := &packsv1.ReloadResult{}
	what := Reloaded
	if err != nil {
		answer.Error, what = detailOf(err), Refused
	}
	s.registry.record(ctx, s.event(what, detailOf(err)))
	s.urgent(&packsv1.ServerMessage{Message: &packsv1.ServerMessage_ReloadResult{ReloadResult: answer}})
}

func (s *session) event(what Happening, detail string) Event {
	return Event{Pack: s.pack.key.id, Tenant: s.pack.key.tenant, Thread: s.pack.key.thread, Identity: s.grant.Identity, Source: s.peer.Source, What: what, Detail: detail}
}

// watch ends the session when the pack is silent, or may not be connected any more, and sends heartbeats.
func (s *session) watch(ctx context.Context) {
	o := &s.registry.o
	beat, check := time.NewTicker(o.Heartbeat), time.NewTicker(o.Recheck)
	defer beat.Stop()
	defer check.Stop()
	for {
		select {
		case <-s.ended:
			return
		case <-ctx.Done():
			s.end(goneOr(ctx))
			return
		case <-beat.C:
			s.mu.Lock()
			silent := time.Since(s.heard)
			s.mu.Unlock()
			if silent > silentBeats*o.Heartbeat {
				s.end(sandbox.Errorf(sandbox.Unavailable, "nothing has been heard of it for %s", silent.Round(time.Second)))
				return
			}
			s.urgent(&packsv1.ServerMessage{Message: &packsv1.ServerMessage_Heartbeat{Heartbeat: &packsv1.Heartbeat{}}})
		case <-check.C:
			if err := s.registry.again(ctx, s.pack.key, s.grant); err != nil {
				s.end(err)
				return
			}
		}
	}
}

// goneOr is why the context of a stream has ended.
func goneOr(ctx context.Context) error {
	var known *sandbox.Error
	if errors.As(context.Cause(ctx), &known) {
		return known
	}
	return sandbox.Errorf(sandbox.Unavailable, "its connection ended")
}

// detailOf is the text of an error for others; "" for none.
func detailOf(err error) string {
	var known *sandbox.Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &known):
		return known.Detail
	}
	return "its connection ended"
}
