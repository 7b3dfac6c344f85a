package jupyter

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/skerry-sandbox/skerry/internal/api/held"
	"github.com/skerry-sandbox/skerry/internal/api/inprocess"
	"github.com/skerry-sandbox/skerry/internal/platform/buildinfo"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	// maxFrame bounds a message of a client, in bytes: the longest code, escaped.
	maxFrame = 2 * sandbox.MaxCodeBytes
	// maxWaiting is how many messages of a client wait for the run before them.
	maxWaiting = 64
	// writeTime is how long a client may take for one message, and pingTime how often it is asked whether it is there.
	writeTime = 30 * time.Second
	pingTime  = 30 * time.Second
	maxReason = 120 // of a close frame, whose own limit is 123 bytes
)

// channels joins a client to the channels of a kernel.
func (a *adapter) channels(c *call) error {
	kernel, cc, err := c.existing()
	if err != nil {
		return err
	}
	leave, err := a.joined.enter(kernel, c.secret)
	if err != nil {
		return err
	}
	defer leave()
	conn, err := websocket.Accept(c.W, c.R, &websocket.AcceptOptions{
		InsecureSkipVerify: true, // of Origin: the API has compared it with the server's own list, as existing asked it
		CompressionMode:    websocket.CompressionDisabled,
	})
	if err != nil {
		return nil //nolint:nilerr // it has answered
	}
	defer conn.CloseNow() //nolint:errcheck // it may be closed already
	conn.SetReadLimit(maxFrame)
	ctx, cancel := context.WithCancel(c.R.Context())
	defer cancel()
	k := &connection{
		call: call{Caller: inprocess.Caller{API: a.API, R: c.R.WithContext(ctx)}, secret: c.secret},
		conn: conn, held: a.Held, kernel: kernel, contextID: cc.ContextID, language: cc.Language, waiting: make(chan received, maxWaiting),
	}
	k.serve(ctx, cancel)
	return nil
}

// connection is one client at the channels of a kernel.
type connection struct {
	call
	conn                        *websocket.Conn
	kernel, contextID, language string
	held                        *held.Bytes
	waiting                     chan received // what came for the shell; one at a time runs
	writing                     sync.Mutex
}

// serve answers the client until it is gone.
func (k *connection) serve(ctx context.Context, gone context.CancelFunc) {
	var wg sync.WaitGroup
	wg.Go(func() {
		defer gone()
		k.receive(ctx)
	})
	wg.Go(func() { k.keepAlive(ctx, gone) })
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case m := <-k.waiting:
			if k.answer(ctx, m) != nil {
				gone()
			}
			m.held.End()
		}
	}
	_ = k.conn.CloseNow()
	wg.Wait()
	close(k.waiting) // nothing sends any more
	for m := range k.waiting {
		m.held.End()
	}
}

// bye closes the connection of a client that breaks a rule.
func (k *connection) bye(reason string) {
	_ = k.conn.Close(websocket.StatusPolicyViolation, strings.ToValidUTF8(reason[:min(len(reason), maxReason)], ""))
}

// receive takes the messages of the client until it is gone, or breaks a rule. Those for the control channel are answered at
// once.
func (k *connection) receive(ctx context.Context) {
	for {
		kind, data, err := k.conn.Read(ctx)
		if err != nil {
			return
		}
		if kind != websocket.MessageText {
			k.bye("messages have to be JSON, in text frames, without a subprotocol")
			return
		}
		mine := k.held.Of(holderOf(k.secret))
		if mine.Take(ctx, held.Copies*int64(len(data))) != nil {
			k.bye("too many long messages wait: try again later")
			mine.End()
			return
		}
		m, err := read(data)
		m.held = mine
		if err != nil || m.Header.Type == "" {
			mine.End()
			k.bye("a message has to be an object with header.msg_type")
			return
		}
		if m.Channel == control || m.Header.Type == "interrupt_request" || m.Header.Type == "shutdown_request" {
			err := k.answer(ctx, m)
			mine.End()
			if err != nil {
				return
			}
			continue
		}
		select {
		case k.waiting <- m:
		default:
			mine.End()
			k.bye("too many messages wait for the run before them")
			return
		}
	}
}

// keepAlive finds out that a client is gone that did not say so.
func (k *connection) keepAlive(ctx context.Context, gone context.CancelFunc) {
	tick := time.NewTicker(pingTime)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		ping, cancel := context.WithTimeout(ctx, writeTime)
		err := k.conn.Ping(ping)
		cancel()
		if err != nil {
			gone()
			return
		}
	}
}

// send writes one message. An error says that the client is gone.
func (k *connection) send(ctx context.Context, m sent) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	k.writing.Lock()
	defer k.writing.Unlock()
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	return k.conn.Write(ctx, websocket.MessageText, data)
}

// answer answers one message, between "busy" and "idle" as kernels do. An error says that the client is gone.
func (k *connection) answer(ctx context.Context, m received) error {
	channel := m.Channel
	if channel != control {
		channel = shell
	}
	status := func(state string) error {
		return k.send(ctx, m.answers(iopub, "status", map[string]string{"execution_state": state}))
	}
	if err := status("busy"); err != nil {
		return err
	}
	kind, content, err := k.reply(ctx, m)
	if err == nil && kind != "" {
		err = k.send(ctx, m.answers(channel, kind, content))
	}
	return errors.Join(err, status("idle"))
}

// reply is what a message is answered with; kind is "" when there is no answer to it.
func (k *connection) reply(ctx context.Context, m received) (kind string, content any, err error) {
	switch m.Header.Type {
	case "execute_request":
		content, err := k.execute(ctx, m)
		return "execute_reply", content, err
	case "kernel_info_request":
		return "kernel_info_reply", information(k.specification(), buildinfo.Version()), nil
	case "comm_info_request":
		return "comm_info_reply", map[string]any{"status": "ok", "comms": map[string]any{}}, nil
	case "is_complete_request":
		return "is_complete_reply", map[string]any{"status": "unknown"}, nil
	case "interrupt_request":
		return "interrupt_reply", outcome(k.interrupt(k.kernel, k.contextID)), nil
	case "shutdown_request":
		content := k.shutdown(m)
		return "shutdown_reply", content, nil
	}
	base, ok := strings.CutSuffix(m.Header.Type, "_request")
	if !ok || len(base) > 64 {
		return "", nil, nil
	}
	return base + "_reply", failure("NotSupported", "kernels of Skerry answer no "+base+"_request", nil), nil
}

func (k *connection) specification() specification {
	for _, s := range specifications {
		if s.language == k.language {
			return s
		}
	}
	return specification{language: k.language, shown: k.language}
}

// shutdown ends the kernel, or its variables when it is to begin again.
func (k *connection) shutdown(m received) map[string]any {
	var body struct {
		Restart bool `json:"restart"`
	}
	_ = json.Unmarshal(m.Content, &body) // without a word: it ends
	if body.Restart {
		out := outcome(k.restart(k.kernel, k.contextID))
		out["restart"] = true
		return out
	}
	out := outcome(k.into(inprocess.Request{Method: http.MethodDelete, Path: threadPath(k.kernel, "")}, nil))
	out["restart"] = false
	return out
}

// outcome is the content of a reply that says only how it went.
func outcome(err error) map[string]any {
	if err == nil {
		return map[string]any{"status": "ok"}
	}
	name, value := reason(err)
	return failure(name, value, nil)
}

// failure is the content of a reply, or of the message "error", about what went wrong.
func failure(name, value string, traceback []string) map[string]any {
	if traceback == nil {
		traceback = []string{}
	}
	return map[string]any{"status": "error", "ename": name, "evalue": value, "traceback": traceback}
}

// reason names an error that is not the code's own.
func reason(err error) (name, value string) {
	var refused *inprocess.Refusal
	if errors.As(err, &refused) {
		return "SkerryError", refused.Detail + " (" + refused.Code + ")"
	}
	var own *sandbox.Error
	if errors.As(err, &own) {
		return "SkerryError", own.Detail
	}
	return "SkerryError", "the server failed; its log says why"
}

// output is one piece of output as the API sends it.
type output struct {
	Data     string `json:"data"`
	Encoding string `json:"encoding"`
}
