package packs_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/packs"
	packsv1 "github.com/skerry-sandbox/skerry/sdk/packs/v1"
	"github.com/skerry-sandbox/skerry/sdk/packs/v1/packsv1connect"
)

// rawPack is a pack that does as the test says.
type rawPack struct {
	t      *testing.T
	stream *connect.BidiStreamForClient[packsv1.PackMessage, packsv1.ServerMessage]
	limits *packsv1.Welcome
}

// raw registers a pack with the tool "do" by the bare contract.
func (r *rig) raw(id, instance string, options ...connect.ClientOption) *rawPack {
	r.t.Helper()
	if len(options) == 0 {
		options = []connect.ClientOption{connect.WithGRPC()}
	}
	transport := &http.Transport{Protocols: &http.Protocols{}}
	transport.Protocols.SetUnencryptedHTTP2(true)
	ctx, cancel := context.WithCancel(context.Background())
	p := &rawPack{t: r.t, stream: packsv1connect.NewPackServiceClient(&http.Client{Transport: transport}, r.url, options...).Connect(ctx)}
	r.t.Cleanup(func() { cancel(); transport.CloseIdleConnections() })
	p.send(&packsv1.PackMessage{Message: &packsv1.PackMessage_Open{Open: &packsv1.Open{PackId: id, Instance: instance}}})
	p.receive()
	p.send(&packsv1.PackMessage{Message: &packsv1.PackMessage_Register{Register: &packsv1.Register{Manifest: &packsv1.PackManifest{PackId: id, Tools: []*packsv1.ToolDefinition{{Name: "do"}}}}}})
	p.limits = p.receive().GetWelcome()
	return p
}

func (p *rawPack) send(msg *packsv1.PackMessage) {
	p.t.Helper()
	must(p.t, p.stream.Send(msg))
}

func (p *rawPack) receive() *packsv1.ServerMessage {
	p.t.Helper()
	msg, err := p.stream.Receive()
	must(p.t, err)
	return msg
}

// result sends a part of a result, and reports whether the stream is still there.
func (p *rawPack) result(id uint64, part string, last bool) bool {
	return p.stream.Send(&packsv1.PackMessage{Message: &packsv1.PackMessage_Result{Result: &packsv1.ToolResult{RequestId: id, Part: []byte(part), Last: last}}}) == nil
}

// next returns the next call that the server makes.
func (p *rawPack) next() uint64 {
	p.t.Helper()
	for {
		if e := p.receive().GetExecute(); e != nil {
			return e.GetRequest().GetRequestId()
		}
	}
}

// end reads until the stream ends, and returns why.
func (p *rawPack) end() error {
	for {
		if _, err := p.stream.Receive(); err != nil {
			return err
		}
	}
}

const fine = `{"content":[{"type":"text","text":"fine"}]}`

// async makes a call in a goroutine of its own.
func async(p sandbox.ToolPack, input string) <-chan error {
	ended := make(chan error, 1)
	go func() { _, err := call(p, "do", input); ended <- err }()
	return ended
}

// TestHostilePacks: a pack that breaks the contract ends with a reason that names the breach, and no other pack notices.
func TestHostilePacks(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.serve(newPack(t, "good"))
	good := r.pack("good")
	part := strings.Repeat("x", 256<<10)
	for name, c := range map[string]struct {
		attack func(p *rawPack, id uint64)
		want   string // why the stream ends
	}{
		"an answer to a call that was never made": {func(p *rawPack, id uint64) { p.result(id+1, fine, true) }, "which was never made"},
		"an answer to no call":                    {func(p *rawPack, _ uint64) { p.result(0, fine, true) }, "which was never made"},
		"progress of a call that was never made": {func(p *rawPack, id uint64) {
			p.send(&packsv1.PackMessage{Message: &packsv1.PackMessage_Progress{Progress: &packsv1.Progress{RequestId: id + 7}}})
		}, "which was never made"},
		"a part that is too large": {func(p *rawPack, id uint64) { p.result(id, part+"x", false) }, "a part of a result has 262145 bytes"},
		"a second registration": {func(p *rawPack, _ uint64) {
			p.send(&packsv1.PackMessage{Message: &packsv1.PackMessage_Register{Register: &packsv1.Register{}}})
		}, "a stream that is registered"},
		"a flood of manifests": {func(p *rawPack, _ uint64) {
			m := &packsv1.PackManifest{PackId: "bad", Tools: []*packsv1.ToolDefinition{{Name: "do"}}}
			for range 100 {
				_ = p.stream.Send(&packsv1.PackMessage{Message: &packsv1.PackMessage_Reload{Reload: &packsv1.Reload{Manifest: m}}})
			}
		}, "reloads more often than once in 1s"},
		"a message of 10 MiB": {func(p *rawPack, _ uint64) {
			_ = p.stream.Send(&packsv1.PackMessage{Message: &packsv1.PackMessage_Reload{Reload: &packsv1.Reload{Manifest: &packsv1.PackManifest{Description: strings.Repeat("x", 10<<20)}}}})
		}, "larger than"},
	} {
		bad := r.raw("bad", "")
		ended := async(r.pack("bad"), `{}`)
		c.attack(bad, bad.next())
		if err := bad.end(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: the stream ends with %v, want %q", name, err, c.want)
		}
		if err := <-ended; sandbox.KindOf(err) != sandbox.Unavailable || !strings.Contains(err.Error(), "went while the call ran") {
			t.Errorf("%s: the call ends with %v", name, err)
		}
		if _, err := call(good, "find", `{"name":"a"}`); err != nil {
			t.Errorf("%s: another pack: %v", name, err)
		}
	}
}

// TestLargeAndLate: a result beyond the limit fails its call alone, as do an answer that is no result and one that comes
// too late. The pack goes on.
func TestLargeAndLate(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *packs.Options) { o.MaxResult = 1 << 20 })
	p := r.raw("bad", "")
	bad := r.pack("bad")
	ended := async(bad, `{}`)
	id := p.next()
	for range 400 { // 100 MB
		p.result(id, strings.Repeat("x", 256<<10), false)
	}
	if err := <-ended; sandbox.KindOf(err) != sandbox.ToolFailed || !strings.Contains(err.Error(), "larger than 1048576 bytes") {
		t.Errorf("too large: %v", err)
	}
	for _, text := range []string{"", "[]", `{"x":1}`, "{"} {
		ended = async(bad, `{}`)
		p.result(p.next(), text, true)
		if err := <-ended; sandbox.KindOf(err) != sandbox.ToolFailed {
			t.Errorf("%q: %v", text, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	late := make(chan error, 1)
	go func() {
		_, err := bad.Call(ctx, sandbox.PackCall{Tool: "do", Progress: func(sandbox.ToolProgress) {}})
		late <- err
	}()
	id = p.next()
	if err := <-late; err == nil {
		t.Error("a call without an answer has a result")
	}
	for p.receive().GetCancel().GetRequestId() != id {
	}
	p.result(id, fine, true)
	ended = async(bad, `{}`)
	p.result(p.next(), fine, true)
	if err := <-ended; err != nil {
		t.Errorf("a call after that: %v", err)
	}
	if info, err := r.Get(admin, "bad"); err != nil || info.Late == 0 {
		t.Errorf("%v: %d late answers", err, info.Late)
	}
	if _, err := call(bad, "do", `{"x":"`+strings.Repeat("x", 4<<20)+`"}`); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("arguments of more than 4 MiB: %v", err)
	}
}

// TestSilence: a pack whose network has gone, and one that does not read, are ended. Meanwhile others are called.
func TestSilence(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *packs.Options) { o.Heartbeat = time.Second })
	r.serve(newPack(t, "good"))
	half := r.raw("half", "one")
	ended := async(r.pack("half"), `{}`)
	half.next()
	stuck := r.raw("stuck", "")
	stop := make(chan struct{})
	beating := make(chan struct{})
	go func() { // it sends, and reads nothing
		defer close(beating)
		for {
			select {
			case <-stop:
				return
			case <-time.After(200 * time.Millisecond):
				_ = stuck.stream.Send(&packsv1.PackMessage{Message: &packsv1.PackMessage_Heartbeat{Heartbeat: &packsv1.Heartbeat{}}})
			}
		}
	}()
	input := `{"x":"` + strings.Repeat("x", 1<<20) + `"}`
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	calls := make(chan error, 64)
	for range cap(calls) {
		go func() {
			_, err := r.pack("stuck").Call(ctx, sandbox.PackCall{Tool: "do", Input: []byte(input), Progress: func(sandbox.ToolProgress) {}})
			calls <- err
		}()
	}
	if _, err := call(r.pack("good"), "find", `{"name":"a"}`); err != nil {
		t.Errorf("another pack: %v", err)
	}
	for range cap(calls) {
		if err := <-calls; err == nil {
			t.Error("a call that was never read has a result")
		}
	}
	close(stop)
	<-beating
	if err := <-ended; sandbox.KindOf(err) != sandbox.Unavailable || !strings.Contains(err.Error(), "nothing has been heard") {
		t.Errorf("half-open: %v", err)
	}
	// The same run of a program replaces its stream that hangs at once.
	again := r.raw("half", "one")
	ended = async(r.pack("half"), `{}`)
	again.next()
	r.raw("half", "one")
	if err := <-ended; sandbox.KindOf(err) != sandbox.Unavailable || !strings.Contains(err.Error(), "another stream") {
		t.Errorf("replaced: %v", err)
	}
}

// TestFlood: a pack that floods its stream holds up nobody else.
func TestFlood(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.serve(newPack(t, "good"))
	p := r.raw("flood", "")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		_, _ = r.pack("flood").Call(ctx, sandbox.PackCall{Tool: "do", Progress: func(sandbox.ToolProgress) {}})
	}()
	id := p.next()
	flooding := make(chan struct{})
	go func() {
		defer close(flooding)
		for ctx.Err() == nil {
			if p.stream.Send(&packsv1.PackMessage{Message: &packsv1.PackMessage_Progress{Progress: &packsv1.Progress{RequestId: id, Message: "x"}}}) != nil {
				return
			}
		}
	}()
	for range 100 {
		if _, err := call(r.pack("good"), "find", `{"name":"a"}`); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	<-flooding
}
