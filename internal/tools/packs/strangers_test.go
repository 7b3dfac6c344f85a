package packs_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/packs"
	packsv1 "github.com/skerry-sandbox/skerry/sdk/packs/v1"
	"github.com/skerry-sandbox/skerry/sdk/packs/v1/packsv1connect"
)

// opener opens streams by one connection.
func (r *rig) opener() func(source, id string) *rawPack {
	transport := &http.Transport{Protocols: &http.Protocols{}}
	transport.Protocols.SetUnencryptedHTTP2(true)
	ctx, cancel := context.WithCancel(context.Background())
	r.t.Cleanup(func() { cancel(); transport.CloseIdleConnections() })
	client := packsv1connect.NewPackServiceClient(&http.Client{Transport: transport}, r.url, connect.WithGRPC())
	return func(source, id string) *rawPack {
		p := &rawPack{t: r.t, stream: client.Connect(ctx)}
		p.stream.RequestHeader().Set("X-Source", source)
		_ = p.stream.Send(&packsv1.PackMessage{Message: &packsv1.PackMessage_Open{Open: &packsv1.Open{PackId: id}}}) // the answer tells
		return p
	}
}

// TestStrangers: who has no credential fills neither the audit log nor the places of packs that register, from one address or
// from many.
func TestStrangers(t *testing.T) {
	t.Parallel()
	refused := func(r *rig) (n int) {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, e := range r.events {
			if e.What == packs.Refused {
				n++
			}
		}
		return n
	}
	// The log takes a burst, and some more the longer the strangers try: a busy machine takes long.
	began := time.Now()
	more := func(every time.Duration) int { return int(time.Since(began) / every) }
	r := newRig(t, nil)
	open := r.opener()
	for range 50 {
		if err := open("192.0.2.66", "No Name").end(); err == nil {
			t.Fatal("a name that cannot be is taken")
		}
	}
	if n := refused(r); n < 1 || n > 11+more(5*time.Second) {
		t.Errorf("%d records of one address", n)
	}
	for i := range 300 {
		_ = open(fmt.Sprintf("198.51.%d.%d", i/250, i%250), "No Name").end()
	}
	if n := refused(r); n < 190 || n > 201+more(300*time.Millisecond) {
		t.Errorf("%d records of many addresses", n)
	}

	r = newRig(t, nil)
	open = r.opener()
	var waiting []*rawPack
	for range 16 {
		waiting = append(waiting, open("192.0.2.66", "slow"))
		waiting[len(waiting)-1].receive()
	}
	if err := open("192.0.2.66", "slow").end(); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("one more of the address: %v", err)
	}
	waiting = append(waiting, open("192.0.2.67", "slow"))
	waiting[len(waiting)-1].receive()
	r.serve(newPack(t, "good"))
	for _, p := range waiting {
		must(t, p.stream.CloseRequest())
	}
}

// changes counts what other servers would be told.
type changes struct {
	packs.Others
	n atomic.Int64
}

func (*changes) Claim(context.Context, sandbox.PackStream) error { return nil }
func (*changes) Joined(context.Context, sandbox.PackStream)      {}
func (c *changes) Changed()                                      { c.n.Add(1) }
func (*changes) Look(context.Context)                            {}

// TestDrainFlood: each look at other servers asks the state that servers share, so a pack causes one by saying that it stops, however
// often it does.
func TestDrainFlood(t *testing.T) {
	t.Parallel()
	others := &changes{}
	r := newRig(t, func(o *packs.Options) { o.Others = others })
	p := r.raw("bad", "")
	for range 1000 {
		p.send(&packsv1.PackMessage{Message: &packsv1.PackMessage_Drain{Drain: &packsv1.Drain{}}})
	}
	p.result(99, "", true) // a breach, which ends the stream
	_ = p.end()
	if n := others.n.Load(); n < 1 || n > 2 {
		t.Errorf("the others are told of %d changes", n)
	}
}

// TestManifestsTogether: what packs offer is kept in memory, so all of a tenant's have a limit, also when one grows.
func TestManifestsTogether(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *packs.Options) { o.MaxManifests = 1 << 20 })
	offer := func(id string, tools int) *packsv1.PackManifest {
		m := &packsv1.PackManifest{PackId: id}
		for i := range tools {
			m.Tools = append(m.Tools, &packsv1.ToolDefinition{Name: fmt.Sprint("do", i), Description: strings.Repeat("x", 16<<10)})
		}
		return m
	}
	open := r.opener()
	register := func(id string, tools int) (*rawPack, error) {
		p := open("192.0.2.1", id)
		p.receive()
		p.send(&packsv1.PackMessage{Message: &packsv1.PackMessage_Register{Register: &packsv1.Register{Manifest: offer(id, tools)}}})
		msg, err := p.stream.Receive()
		if err == nil && msg.GetWelcome() == nil {
			t.Errorf("%s: %v", id, msg)
		}
		return p, err
	}
	one, err := register("one", 10)
	must(t, err)
	if _, err := register("two", 10); connect.CodeOf(err) != connect.CodeResourceExhausted || !strings.Contains(err.Error(), "what the packs of the tenant offer") {
		t.Errorf("more than the tenant has: %v", err)
	}
	if _, err := register("three", 1); err != nil {
		t.Errorf("a small one: %v", err)
	}
	for tools, want := range map[int]string{14: "", 15: "what the packs of the tenant offer"} {
		one.send(&packsv1.PackMessage{Message: &packsv1.PackMessage_Reload{Reload: &packsv1.Reload{Manifest: offer("one", tools)}}})
		var got *packsv1.ReloadResult
		for got == nil {
			got = one.receive().GetReloadResult()
		}
		if got.GetError() != want && (want == "" || !strings.Contains(got.GetError(), want)) {
			t.Errorf("reloaded with %d tools: %q", tools, got.GetError())
		}
	}
}
