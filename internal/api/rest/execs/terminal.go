package execs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/danielgtaylor/huma/v2"
	"github.com/gin-gonic/gin"
	"golang.org/x/time/rate"

	"github.com/skerry-sandbox/skerry/internal/api/rest/access"
	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/problem"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/service"
)

// terminalRoutes are the routes of terminals.
type terminalRoutes struct {
	api       *route.API
	terminals service.Terminals
	execs     service.Execs
	access    *access.Authenticator
	heartbeat time.Duration
	idle      time.Duration // that a client may take nothing
	joined    *joined
}

// Clients that may be at terminals at once, on one server.
const (
	maxAtTerminal  = 32  // of one exec
	maxAtTerminals = 256 // of one user
)

// joined counts the clients at terminals.
type joined struct {
	mu      sync.Mutex
	byExec  map[terminalName]int
	byOwner map[sandbox.Owner]int
}

// terminalName is the terminal of an exec.
type terminalName struct {
	owner        sandbox.Owner
	thread, exec string
}

// enter counts a client, which leave takes out again.
func (j *joined) enter(n terminalName) (leave func(), err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.byExec[n] >= maxAtTerminal:
		return nil, sandbox.TooManyCalls("%d clients are at this terminal, its most: close one, then join again", maxAtTerminal)
	case j.byOwner[n.owner] >= maxAtTerminals:
		return nil, sandbox.TooManyCalls("%d clients of this user are at terminals, the most: close one, then join again", maxAtTerminals)
	}
	if j.byExec == nil {
		j.byExec, j.byOwner = map[terminalName]int{}, map[sandbox.Owner]int{}
	}
	j.byExec[n]++
	j.byOwner[n.owner]++
	return func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		if j.byExec[n]--; j.byExec[n] == 0 {
			delete(j.byExec, n)
		}
		if j.byOwner[n.owner]--; j.byOwner[n.owner] == 0 {
			delete(j.byOwner, n.owner)
		}
	}, nil
}

// terminalProtocol is what a client offers beside a credential, because a browser wants one of its subprotocols selected.
const terminalProtocol = "skerry.terminal"

// Limits of what a client sends to a terminal. A frame that is longer ends the connection; a message that
// comes too fast waits, and with it the client.
const (
	MaxFrame     = 64 << 10
	inputRate    = 1 << 20 // bytes a second
	inputBurst   = 1 << 20
	minInputCost = 1 << 10 // bytes that a smaller frame counts as
	maxReason    = 120     // of a close frame, whose own limit is 123 bytes
)

var (
	execIDText = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)
	eventText  = regexp.MustCompile(`^[0-9]{1,19}$`)
)

// add serves the terminal of an exec as a WebSocket, behind the checks of routes. huma knows no such
// routes, so that the document gets it by hand.
func (s terminalRoutes) add(routes gin.IRoutes) {
	routes.GET("/api/threads/:thread/pty", s.terminal)
	op := route.On(http.MethodGet, "/api/threads/{thread}/pty", "joinTerminal", route.TagRun, route.Agents.At(route.ExecOwner), "The terminal of an exec, as a WebSocket; it can be joined again, by many at once")
	op.Description = `Of an exec started with "pty" and "background". Binary frames are bytes, in both directions. The client sends {"resize":{"cols","rows"}} as text. ` +
		`The server sends as text {"next":n}: the next binary frame is event n, each one after it the next event, until it says so again; and {"exit":{…}} as the last frame. ` +
		`With after the frames begin behind that event. ` +
		"A page in a browser, which cannot set headers, offers the subprotocols skerry.terminal and skerry.bearer.KEY, with its key in base64url without padding."
	text := func(name, in, pattern, doc string, required bool) *huma.Param {
		return &huma.Param{Name: name, In: in, Required: required, Description: doc, Schema: &huma.Schema{Type: huma.TypeString, Pattern: pattern}}
	}
	op.Parameters = []*huma.Param{
		text("thread", "path", execIDText.String(), "The caller's name of the conversation", true),
		text("exec", "query", execIDText.String(), "Its id", true),
		text("after", "query", eventText.String(), "Number of the last event that the client has", false),
	}
	op.Responses = map[string]*huma.Response{"101": {Description: "Switching Protocols"}, "default": s.api.ProblemResponse()}
	s.api.Describe(op)
}

// terminalQuery is what a request for a terminal names.
func terminalQuery(c *gin.Context) (thread, exec string, after uint64, err error) {
	thread, exec = c.Param("thread"), c.Query("exec")
	if err := sandbox.CheckThreadID(thread); err != nil {
		return "", "", 0, sandbox.InvalidField("thread", "%s", err)
	}
	if !execIDText.MatchString(exec) {
		return "", "", 0, sandbox.InvalidField("exec", "name the exec: ?exec=<id>")
	}
	if text := c.Query("after"); text != "" {
		if after, err = strconv.ParseUint(text, 10, 64); err != nil || !eventText.MatchString(text) {
			return "", "", 0, sandbox.InvalidField("after", "has to be the number of an event")
		}
	}
	return thread, exec, after, nil
}

func (s terminalRoutes) terminal(c *gin.Context) {
	ctx := c.Request.Context()
	x := exchange.Of(ctx)
	thread, exec, after, err := terminalQuery(c)
	if err == nil && !isUpgrade(c.Request) {
		c.Header("Connection", "Upgrade")
		c.Header("Upgrade", "websocket")
		problem.Write(c.Writer, problem.New(sandbox.Invalid, "this route is a WebSocket: ask for an upgrade").WithStatus(http.StatusUpgradeRequired))
		return
	}
	if err == nil {
		var leave func()
		if leave, err = s.joined.enter(terminalName{x.Caller.Owner, thread, exec}); err == nil {
			defer leave()
			err = s.terminals.JoinTerminal(ctx, x.Caller, thread, exec)
		}
	}
	if err != nil {
		problem.Write(c.Writer, exchange.Problem(ctx, err))
		return
	}
	conn, err := websocket.Accept(c.Writer, c.Request, &websocket.AcceptOptions{
		InsecureSkipVerify: true, // of Origin, which guard.check has compared with the server's own list
		CompressionMode:    websocket.CompressionDisabled,
		Subprotocols:       []string{terminalProtocol},
	})
	if err != nil {
		return // it has answered
	}
	defer conn.CloseNow() //nolint:errcheck // it may be closed already
	conn.SetReadLimit(MaxFrame)
	t := &terminalConn{terminalRoutes: s, conn: conn, caller: x.Caller, thread: thread, exec: exec}
	t.serve(ctx, c.Request, after)
}

// isUpgrade tells whether a request asks for a WebSocket.
func isUpgrade(r *http.Request) bool {
	for v := range strings.SplitSeq(r.Header.Get("Connection"), ",") {
		if strings.EqualFold(strings.TrimSpace(v), "upgrade") {
			return strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
		}
	}
	return false
}

// terminalConn is one client at a terminal.
type terminalConn struct {
	terminalRoutes
	conn         *websocket.Conn
	caller       sandbox.Caller
	thread, exec string
	next         uint64 // number of the event that the client takes the next frame for; 0: it was not told
}

// errBye says how the server ends a connection.
type errBye struct {
	code   websocket.StatusCode
	reason string
}

func (e *errBye) Error() string { return e.reason }

// serve passes on what the terminal shows, and to it what the client sends, until one of both ends.
func (t *terminalConn) serve(ctx context.Context, r *http.Request, after uint64) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := t.access.Watch(r, t.caller, func() {
		cancel(&errBye{websocket.StatusPolicyViolation, "the key is not valid any more"})
	})
	defer stop()
	// A read that is cut short would take the connection with it, and the reason that bye sends.
	reading, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	var wg sync.WaitGroup
	wg.Go(func() { cancel(t.receive(ctx, reading)) })
	wg.Go(func() { t.keepAlive(ctx, cancel) })
	err := t.execs.Events(ctx, t.caller, t.thread, t.exec, after, func(ev sandbox.Event) error { return t.emit(ctx, ev) })
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if !errors.Is(err, exchange.ErrGone) {
		t.bye(ctx, err)
	}
	cancel(nil)
	end()
	_ = t.conn.CloseNow()
	wg.Wait()
}

// bye ends the connection: well when err is nil, for then the exit was sent.
func (t *terminalConn) bye(ctx context.Context, err error) {
	bye := &errBye{websocket.StatusNormalClosure, "the exec has ended"}
	switch {
	case err == nil || errors.As(err, &bye):
	case errors.Is(err, context.Canceled): // the server stops
		bye = &errBye{websocket.StatusGoingAway, "the server stops; join again"}
	default:
		bye = &errBye{websocket.StatusInternalError, exchange.Problem(ctx, err).Detail}
	}
	reason := bye.reason
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "")
	}
	_ = t.conn.Close(bye.code, reason) // waits a few seconds for the client's answer, if it is there
}

// exitFrame is what the last frame says of the end; the whole result is at …/execs/{exec}.
type exitFrame struct {
	ExecID         string         `json:"exec_id"`
	Status         sandbox.Status `json:"status"`
	ExitCode       *int           `json:"exit_code"`
	DurationMillis int64          `json:"duration_ms"`
}

func (t *terminalConn) emit(ctx context.Context, ev sandbox.Event) error {
	switch ev.Type {
	case sandbox.EventStdout, sandbox.EventStderr:
		if ev.N != t.next {
			if err := t.text(ctx, map[string]uint64{"next": ev.N}); err != nil {
				return err
			}
		}
		t.next = ev.N + 1
		return t.write(ctx, websocket.MessageBinary, ev.Data)
	case sandbox.EventApprovalRequired, sandbox.EventApprovalDecided:
		return t.text(ctx, map[sandbox.EventType]*sandbox.Approval{ev.Type: ev.Approval})
	case sandbox.EventExit:
		if r := ev.Result; r != nil {
			return t.text(ctx, map[string]exitFrame{"exit": {r.ExecID, r.Status, r.ExitCode, r.DurationMillis}})
		}
	}
	return nil
}

func (t *terminalConn) text(ctx context.Context, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return t.write(ctx, websocket.MessageText, data)
}

// write waits for the client as long as for any other. Only this client
// waits meanwhile.
func (t *terminalConn) write(ctx context.Context, typ websocket.MessageType, data []byte) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	ctx, cancel := t.patient(ctx)
	defer cancel()
	if err := t.conn.Write(ctx, typ, data); err != nil {
		return errors.Join(exchange.ErrGone, err)
	}
	return nil
}

// patient is the context of something that is written. A write that is cut short takes the connection with
// it, so that one under way when ctx ends has a moment more.
func (t *terminalConn) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.idle)
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, cancel) })
	return longer, func() { stop(); cancel() }
}

// keepAlive finds out that a client is gone that did not say so.
func (t *terminalConn) keepAlive(ctx context.Context, gone context.CancelCauseFunc) {
	tick := time.NewTicker(t.heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		ping, cancel := t.patient(ctx)
		err := t.conn.Ping(ping)
		cancel()
		if err != nil {
			gone(errors.Join(exchange.ErrGone, err))
			return
		}
	}
}

// receive takes the frames of the client until it is gone, or breaks a rule.
func (t *terminalConn) receive(ctx, reading context.Context) error {
	limit := rate.NewLimiter(inputRate, inputBurst)
	for {
		typ, data, err := t.conn.Read(reading)
		if err != nil {
			return errors.Join(exchange.ErrGone, err)
		}
		if err := limit.WaitN(ctx, max(len(data), minInputCost)); err != nil {
			return err
		}
		if typ == websocket.MessageBinary {
			err = t.input(ctx, data)
		} else {
			err = t.command(ctx, data)
		}
		if err != nil {
			return err
		}
	}
}

func (t *terminalConn) input(ctx context.Context, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	switch err := t.execs.SendStdin(ctx, t.caller, t.thread, t.exec, data, false); {
	case errors.Is(err, sandbox.Conflict): // it has ended, and the exit comes
		return nil
	case errors.Is(err, sandbox.Timeout):
		return &errBye{websocket.StatusTryAgainLater, "the program does not take its input"}
	default:
		return err
	}
}

// command takes a text frame.
func (t *terminalConn) command(ctx context.Context, data []byte) error {
	var frame struct {
		Resize *sandbox.TerminalSize `json:"resize"`
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&frame); err != nil || frame.Resize == nil || !frame.Resize.Valid() {
		return &errBye{websocket.StatusPolicyViolation, `a text frame has to be {"resize":{"cols":80,"rows":24}}, 1 to 1000 each`}
	}
	if err := t.terminals.Resize(ctx, t.caller, t.thread, t.exec, *frame.Resize); !errors.Is(err, sandbox.Conflict) {
		return err
	}
	return nil // it has ended, and the exit comes
}
