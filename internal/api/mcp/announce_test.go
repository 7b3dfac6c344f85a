package mcp

import (
	"context"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/service"
)

// The names of fields would hide methods.
type (
	anyUpstream    = service.Upstream
	anySkills      = service.ThreadSkills
	anyActiveTools = service.ActiveTools
)

// bell is a service whose tools change when it rings.
type bell struct {
	anyUpstream
	anySkills
	anyActiveTools

	mu sync.Mutex
	ch chan struct{}
}

func (b *bell) ToolsChanged() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ch
}

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.ch)
	b.ch = make(chan struct{})
}

func (*bell) UpstreamChanged(sandbox.UpstreamKind) <-chan struct{}      { return nil }
func (*bell) SkillsChanged() <-chan struct{}                            { return nil }
func (*bell) WatchActiveTools(sandbox.Thread) (<-chan struct{}, func()) { return nil, func() {} }

// TestAnnouncementsAreFew: a client hears of many changes a few times, and of the last one in any case.
func TestAnnouncementsAreFew(t *testing.T) {
	t.Parallel()
	srv := sdk.NewServer(&sdk.Implementation{Name: "x"}, &sdk.ServerOptions{Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{ListChanged: true}}})
	heard := make(chan struct{}, 1000)
	client := sdk.NewClient(&sdk.Implementation{Name: "y"}, &sdk.ClientOptions{ToolListChangedHandler: func(context.Context, *sdk.ToolListChangedRequest) { heard <- struct{}{} }})
	one, other := sdk.NewInMemoryTransports()
	ss, err := srv.Connect(t.Context(), one, nil)
	if err != nil {
		t.Fatal(err)
	}
	cs, err := client.Connect(t.Context(), other, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &bell{ch: make(chan struct{})}
	stop := announceTo(service.Service{Upstream: b, ThreadSkills: b, ActiveTools: b}, &Scope{server: srv})
	const rings = 40
	for range rings {
		b.ring()
		time.Sleep(25 * time.Millisecond) // longer than the SDK waits for more
	}
	time.Sleep(announceEvery)
	if n := len(heard); n < 1 || n > 5 {
		t.Errorf("%d changes in a second are told %d times", rings, n)
	}
	for len(heard) > 0 {
		<-heard
	}
	time.Sleep(announceEvery)
	b.ring()
	select {
	case <-heard:
	case <-time.After(5 * time.Second):
		t.Error("the last change is not told")
	}
	stop()
	_, _ = cs.Close(), ss.Wait() // how they end does not matter
}
