package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	packsv1 "github.com/skerry-sandbox/skerry/sdk/packs/v1"
	"github.com/skerry-sandbox/skerry/sdk/packs/v1/packsv1connect"
)

// session is one stream of the provider at a server that does as the test says.
type session struct {
	t      *testing.T
	stream *connect.BidiStream[packsv1.PackMessage, packsv1.ServerMessage]
	came   time.Time
	open   *packsv1.Open
	// got has what the provider sends. It is closed when the provider closes the stream, or the stream is lost.
	got    chan *packsv1.PackMessage
	lost   error
	closed chan struct{} // is closed behind got
	end    chan error    // ends the stream, with the error that the provider gets

	cancelled map[uint64]bool // calls whose answers may still come

	sending sync.Mutex // the stream ends behind what is being sent
}

// script is a server whose streams the test answers.
type script struct {
	t       *testing.T
	server  *http.Server
	address string
	streams chan *session
}

// newScript starts one.
func newScript(t *testing.T) *script {
	t.Helper()
	s := &script{t: t, streams: make(chan *session)}
	s.listen("127.0.0.1:0")
	t.Cleanup(func() { _ = s.server.Close() })
	return s
}

func (s *script) listen(address string) {
	s.t.Helper()
	var l net.Listener
	eventually(s.t, "the address is free", func() (ok bool) {
		var err error
		l, err = net.Listen("tcp", address) //nolint:noctx // it does not wait
		return err == nil
	})
	_, h := packsv1connect.NewPackServiceHandler(s)
	s.address = l.Addr().String()
	s.server = &http.Server{Handler: h, Protocols: &http.Protocols{}, ReadHeaderTimeout: patience}
	s.server.Protocols.SetUnencryptedHTTP2(true)
	server := s.server
	go func() { _ = server.Serve(l) }() // until it is closed
}

func (s *script) url() string { return "http://" + s.address }

// Connect implements packsv1connect.PackServiceHandler.
func (s *script) Connect(ctx context.Context, stream *connect.BidiStream[packsv1.PackMessage, packsv1.ServerMessage]) error {
	x := &session{t: s.t, stream: stream, came: time.Now(), got: make(chan *packsv1.PackMessage, 10_000), end: make(chan error, 1), closed: make(chan struct{}), cancelled: map[uint64]bool{}}
	msg, err := stream.Receive()
	if err != nil {
		return err
	}
	x.open = msg.GetOpen()
	go x.read()
	select {
	case s.streams <- x:
	case <-s.t.Context().Done():
		return nil
	}
	select {
	case err = <-x.end:
	case <-ctx.Done():
		err = ctx.Err()
	}
	x.sending.Lock()
	defer x.sending.Unlock()
	return err
}

func (x *session) read() {
	defer close(x.closed)
	defer close(x.got)
	for {
		msg, err := x.stream.Receive()
		if err != nil {
			x.lost = err
			return
		}
		x.got <- msg
	}
}

// next returns the next stream that the provider opens.
func (s *script) next() *session {
	s.t.Helper()
	select {
	case x := <-s.streams:
		if x.open.GetPackId() != "conformance" || x.open.GetInstance() == "" || x.open.GetAddress() != s.address {
			s.t.Fatalf("Open is %v, and the address is %s", x.open, s.address)
		}
		return x
	case <-time.After(patience):
		s.t.Fatalf("the provider opened no stream within %s", patience)
		return nil
	}
}

// limits are those of a server that has nothing against the provider.
func limits() *packsv1.Welcome {
	return &packsv1.Welcome{SessionId: "s", ServerVersion: "test", HeartbeatSeconds: 10, CallWindow: 1 << 20, ConnectionWindow: 1 << 24, MaxPartBytes: 64 << 10, MaxResultBytes: 16 << 20}
}

// challenge sends one, and returns the answer.
func (x *session) challenge() *packsv1.Register {
	x.t.Helper()
	x.send(&packsv1.ServerMessage{Message: &packsv1.ServerMessage_Challenge{Challenge: &packsv1.Challenge{ServerId: "s", Nonce: make([]byte, 32), ExpiresAt: time.Now().Add(time.Minute).Unix(), Namespace: "skerry-pack@v1"}}})
	r := x.receive().GetRegister()
	if r == nil {
		x.t.Fatal("the answer to Challenge is not Register")
	}
	return r
}

// welcome does the rest of the handshake, and returns the manifest.
func (x *session) welcome(w *packsv1.Welcome) *packsv1.PackManifest {
	x.t.Helper()
	r := x.challenge()
	x.send(&packsv1.ServerMessage{Message: &packsv1.ServerMessage_Welcome{Welcome: w}})
	return r.GetManifest()
}

func (x *session) send(msg *packsv1.ServerMessage) {
	x.t.Helper()
	x.sending.Lock()
	defer x.sending.Unlock()
	must(x.t, x.stream.Send(msg))
}

// receive returns the next message that is no heartbeat; nil: the provider has closed the stream.
func (x *session) receive() *packsv1.PackMessage {
	x.t.Helper()
	late := time.After(patience)
	for {
		select {
		case msg, ok := <-x.got:
			if !ok && !errors.Is(x.lost, io.EOF) {
				x.t.Fatalf("the stream was not closed, but lost: %v", x.lost)
			}
			if msg.GetHeartbeat() == nil {
				return msg
			}
		case <-late:
			x.t.Fatalf("the provider sent nothing within %s", patience)
		}
	}
}

// result returns the next part of a result, or its error.
func (x *session) result() *packsv1.ToolResult {
	x.t.Helper()
	for {
		msg := x.receive()
		if r := msg.GetResult(); r != nil {
			return r
		}
		if msg == nil {
			x.t.Fatal("the provider closed the stream")
		}
	}
}

func (x *session) execute(id uint64, tool, input string, timeout time.Duration) {
	x.t.Helper()
	x.send(&packsv1.ServerMessage{Message: &packsv1.ServerMessage_Execute{Execute: &packsv1.ExecuteTool{Request: &packsv1.ExecuteToolRequest{
		RequestId: id, ToolName: tool, InputJson: []byte(input), TimeoutMs: timeout.Milliseconds(), Context: &packsv1.CallContext{Tenant: "t", User: "ann", Thread: "x"},
	}}}})
}

func (x *session) cancel(id uint64) {
	x.t.Helper()
	x.cancelled[id] = true
	x.send(&packsv1.ServerMessage{Message: &packsv1.ServerMessage_Cancel{Cancel: &packsv1.Cancel{RequestId: id, Reason: "its caller gave up"}}})
}

func (x *session) window(id uint64, n int64) {
	x.t.Helper()
	x.send(&packsv1.ServerMessage{Message: &packsv1.ServerMessage_Window{Window: &packsv1.Window{RequestId: id, Bytes: n}}})
}

func (x *session) drain() {
	x.t.Helper()
	x.send(&packsv1.ServerMessage{Message: &packsv1.ServerMessage_Drain{Drain: &packsv1.Drain{}}})
}

// whole makes a call whose result comes before that of any other which is not cancelled, and returns it.
func (x *session) whole(id uint64, tool, input string) answer {
	x.t.Helper()
	x.execute(id, tool, input, 30*time.Second)
	var raw []byte
	for {
		r := x.result()
		if x.cancelled[r.GetRequestId()] {
			continue
		}
		if r.GetRequestId() != id {
			x.t.Fatalf("a result of call %d, and not of %d", r.GetRequestId(), id)
		}
		if r.GetError() != nil {
			x.t.Fatalf("%s: %v", tool, r.GetError())
		}
		if raw = append(raw, r.GetPart()...); r.GetLast() {
			return read(x.t, raw)
		}
	}
}

// answer is the result of a tool.
type answer struct {
	Content []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"content"`
	Structured json.RawMessage `json:"structuredContent"`
	IsError    bool            `json:"isError"`
}

func read(t *testing.T, raw []byte) (a answer) {
	t.Helper()
	if err := json.Unmarshal(raw, &a); err != nil {
		t.Fatalf("%v: %.200s", err, raw)
	}
	if a.Content == nil {
		t.Fatalf("a result without content: %.200s", raw)
	}
	return a
}

func (a answer) text() string {
	if len(a.Content) != 1 || a.Content[0].Type != "text" {
		return ""
	}
	return a.Content[0].Text
}
