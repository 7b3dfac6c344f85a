package hub

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// testPack is a pack in this process.
type testPack struct {
	mu      sync.Mutex
	list    string
	changed chan struct{}
	away    error
	call    func(context.Context, sandbox.PackCall) (json.RawMessage, error)
}

func (p *testPack) List() (json.RawMessage, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return json.RawMessage(p.list), p.changed
}

func (p *testPack) reload(list string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = list
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *testPack) Away() error { return p.away }

func (p *testPack) Call(ctx context.Context, c sandbox.PackCall) (json.RawMessage, error) {
	return p.call(ctx, c)
}

func packList(tool string) string {
	return `{"tools":[{"name":"` + tool + `","description":"says what it got","inputSchema":{"type":"object"}}]}`
}

// TestPack: the hub lists and calls the tools of a pack as those of any server. The pack learns for whom a call is made,
// its errors keep their kind, and a new list is told.
func TestPack(t *testing.T) {
	t.Parallel()
	p := &testPack{list: packList("echo"), changed: make(chan struct{})}
	p.call = func(_ context.Context, c sandbox.PackCall) (json.RawMessage, error) {
		if string(c.Input) == `{"fail":true}` {
			return nil, sandbox.Errorf(sandbox.Unavailable, "the pack is away")
		}
		c.Progress(sandbox.ToolProgress{Progress: 1, Total: 2, Message: "half"})
		return json.RawMessage(`{"content":[{"type":"text","text":"` + c.Thread.User + " " + c.Thread.ID + `"}]}`), nil
	}
	b := &userServerLists{}
	of := sandbox.UserServer{Name: "crm", Config: []byte(`{"concurrency":2,"tools":{"echo":{"timeout":5000,"capabilities":["crm"]}}}`), Pack: p, Key: "1", Tenant: "t"}
	b.set(alice.Owner, of)
	b.set(bob.Owner, of)
	r := open(t, withServers(`"own":`+testServer), b.use)
	ctx := context.Background()
	for _, th := range []sandbox.Thread{alice, bob} {
		tool, err := r.Catalog.Resolve(ctx, th, sandbox.ToolRef{Name: "crm__echo"})
		if err != nil || len(tool.Requires) != 1 {
			t.Fatal(err, tool.Requires)
		}
		var heard []string
		watch := sandbox.ToolWatch{Progress: func(p sandbox.ToolProgress) { heard = append(heard, p.Message) }}
		res, err := r.Catalog.CallWatched(ctx, th, tool, []byte(`{}`), watch)
		if err != nil || string(res.Result) != `"`+th.User+" "+th.ID+`"` || strings.Join(heard, ",") != "half" {
			t.Errorf("%s: %v %s, heard %q", th.User, err, res.Result, heard)
		}
		_, err = r.Catalog.Call(ctx, th, tool, []byte(`{"fail":true}`))
		if sandbox.KindOf(err) != sandbox.Unavailable || !strings.Contains(err.Error(), "the pack is away") {
			t.Errorf("%s: %v", th.User, err)
		}
	}
	version := r.Version()
	p.reload(packList("other"))
	for r.Version() == version {
		<-r.Changed()
	}
	if _, err := r.Catalog.Resolve(ctx, alice, sandbox.ToolRef{Name: "crm__other"}); err != nil {
		t.Error(err)
	}
	b.set(alice.Owner)
	b.set(bob.Owner)
	if names := r.serverNames(bob); strings.Join(names, ",") != "own" {
		t.Errorf("a pack that is gone is listed: %q", names)
	}
}
