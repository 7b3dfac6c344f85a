package packs_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skerry-sandbox/skerry/sdk/go/packs"
	packsv1 "github.com/skerry-sandbox/skerry/sdk/packs/v1"
	"github.com/skerry-sandbox/skerry/sdk/packs/v1/packsv1connect"
)

type serverStream = connect.BidiStream[packsv1.PackMessage, packsv1.ServerMessage]

// host is a server that takes a pack, and leaves each stream to the test until the test ends it.
type host struct {
	t       *testing.T
	url     string
	streams chan *hosted
}

type hosted struct {
	*serverStream
	t   *testing.T
	end chan struct{}
}

func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{t: t, streams: make(chan *hosted)}
	_, handler := packsv1connect.NewPackServiceHandler(h)
	srv := httptest.NewUnstartedServer(handler)
	srv.Config.Protocols = &http.Protocols{}
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	t.Cleanup(srv.Close)
	h.url = srv.URL
	return h
}

// Connect implements packsv1connect.PackServiceHandler.
func (h *host) Connect(ctx context.Context, stream *serverStream) error {
	if _, err := stream.Receive(); err != nil {
		return err
	}
	for _, m := range []*packsv1.ServerMessage{
		{Message: &packsv1.ServerMessage_Challenge{Challenge: &packsv1.Challenge{Namespace: "skerry-pack@v1"}}},
		{Message: &packsv1.ServerMessage_Welcome{Welcome: &packsv1.Welcome{HeartbeatSeconds: 10, CallWindow: 1 << 20, ConnectionWindow: 1 << 20, MaxResultBytes: 1 << 20}}},
	} {
		if err := stream.Send(m); err != nil {
			return err
		}
		if m.GetChallenge() != nil {
			if _, err := stream.Receive(); err != nil {
				return err
			}
		}
	}
	x := &hosted{stream, h.t, make(chan struct{})}
	select {
	case h.streams <- x:
	case <-ctx.Done():
		return nil
	}
	select {
	case <-x.end:
	case <-ctx.Done():
	}
	return connect.NewError(connect.CodeUnavailable, nil)
}

func (h *host) next() *hosted {
	h.t.Helper()
	select {
	case x := <-h.streams:
		return x
	case <-time.After(time.Minute):
		h.t.Fatal("the pack has not connected within a minute")
		return nil
	}
}

func (x *hosted) execute(id uint64, tool string) {
	x.t.Helper()
	must(x.t, x.Send(&packsv1.ServerMessage{Message: &packsv1.ServerMessage_Execute{Execute: &packsv1.ExecuteTool{Request: &packsv1.ExecuteToolRequest{RequestId: id, ToolName: tool}}}}))
}

// result returns the next result.
func (x *hosted) result() *packsv1.ToolResult {
	x.t.Helper()
	for {
		msg, err := x.Receive()
		must(x.t, err)
		if r := msg.GetResult(); r != nil {
			return r
		}
	}
}

// closed ends the stream when the pack has closed its side, as servers do.
func (x *hosted) closed() {
	for {
		if _, err := x.Receive(); err != nil {
			close(x.end)
			return
		}
	}
}

// TestStuckTool: a tool that ignores the end of its context does not keep the pack from connecting again, nor from
// stopping. It takes the place of a call until it returns, and nothing is sent for it. A server that bounds no parts gets
// results.
func TestStuckTool(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := packs.New("crm", "1")
	p.MaxParallel = 1 // two places: the server does not wait for calls that it has cancelled
	entered, release := make(chan struct{}, 10), make(chan struct{})
	must(t, packs.Tool(p, "stuck", "", func(context.Context, struct{}) (string, error) {
		entered <- struct{}{}
		<-release
		return "too late", nil
	}))
	must(t, packs.Tool(p, "echo", "", func(context.Context, struct{}) (string, error) { return "here", nil }))
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- p.Serve(ctx, packs.Server{URL: h.url, Drain: 10 * time.Millisecond, Log: slog.New(slog.DiscardHandler)})
	}()
	for range 2 {
		x := h.next()
		x.execute(1, "echo")
		if r := x.result(); r.GetRequestId() != 1 || !r.GetLast() || !strings.Contains(string(r.GetPart()), "here") {
			t.Errorf("%v", r)
		}
		x.execute(2, "stuck")
		select {
		case <-entered:
		case <-time.After(time.Minute):
			t.Fatal("the stuck tool has not been called within a minute")
		}
		close(x.end)
	}
	x := h.next()
	x.execute(1, "echo")
	if r := x.result(); r.GetError().GetCode() != packsv1.ToolError_CODE_BUSY {
		t.Errorf("a call beside as many stuck ones as there are places: %v", r)
	}
	close(release)
	id := uint64(1)
	for free := false; !free; time.Sleep(5 * time.Millisecond) {
		id++
		x.execute(id, "echo")
		r := x.result()
		if r.GetRequestId() != id {
			t.Fatalf("a result of a call of another stream: %v", r)
		}
		free = r.GetError() == nil
	}
	cancel()
	x.closed()
	must(t, <-served)
}

// TestPlaceOfACall: a call may follow on the result of another one at once, also where only one place is left.
func TestPlaceOfACall(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := packs.New("crm", "1")
	p.MaxParallel = 1
	entered, release := make(chan struct{}), make(chan struct{})
	must(t, packs.Tool(p, "stuck", "", func(context.Context, struct{}) (string, error) {
		close(entered)
		<-release
		return "", nil
	}))
	must(t, packs.Tool(p, "echo", "", func(context.Context, struct{}) (string, error) { return "here", nil }))
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- p.Serve(ctx, packs.Server{URL: h.url, Log: slog.New(slog.DiscardHandler)})
	}()
	x := h.next()
	x.execute(1, "stuck")
	<-entered
	for id := range uint64(2000) {
		x.execute(id+2, "echo")
		if r := x.result(); r.GetError() != nil {
			t.Fatalf("call %d: %v", id, r)
		}
	}
	close(release)
	cancel()
	x.closed()
	must(t, <-served)
}

// TestStuckToolAtTheEnd: Serve returns although a tool does not.
func TestStuckToolAtTheEnd(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := packs.New("crm", "1")
	entered, release := make(chan struct{}), make(chan struct{})
	must(t, packs.Tool(p, "stuck", "", func(context.Context, struct{}) (string, error) {
		close(entered)
		<-release
		return "", nil
	}))
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- p.Serve(ctx, packs.Server{URL: h.url, Drain: 10 * time.Millisecond, Log: slog.New(slog.DiscardHandler)})
	}()
	x := h.next()
	x.execute(1, "stuck")
	<-entered
	cancel()
	x.closed()
	select {
	case err := <-served:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the pack does not stop")
	}
	close(release)
}
