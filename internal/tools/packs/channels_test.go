package packs_test

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/packs"
	provider "github.com/skerry-sandbox/skerry/sdk/go/packs"
)

// keyRing knows keys of skills: "skill in thread", until it is ended.
type keyRing struct{ ended atomic.Bool }

func (k *keyRing) Channel(_ context.Context, key string) (packs.Grant, error) {
	skill, thread, ok := strings.Cut(key, " in ")
	if !ok || k.ended.Load() {
		return packs.Grant{}, sandbox.Errorf(sandbox.Unauthorized, "the key is good for nothing")
	}
	t := sandbox.Thread{Owner: sandbox.Owner{Tenant: "t", User: "ann"}, ID: thread}
	return packs.Grant{
		Identity: "the key of a skill", Tenant: "t", Packs: []string{skill}, Thread: t, Channel: "channel-" + thread,
		Again: func(ctx context.Context) error { _, err := k.Channel(ctx, key); return err },
	}, nil
}

// TestSkillsOfThreads: a pack with the key of a skill is that of one thread, and on no list. Two threads have one each of
// the same name, beside a pack of that name. A key provides no other pack, 65 tools are refused, and the end of the key
// ends the calls.
func TestSkillsOfThreads(t *testing.T) {
	t.Parallel()
	keys := &keyRing{}
	r := newRig(t, func(o *packs.Options) { o.Channels, o.Recheck = keys, 20*time.Millisecond })
	var told atomic.Int32
	r.AttachThreads(func(sandbox.Thread) { told.Add(1) })
	shared := r.serve(newPack(t, "review"))
	defer func() { must(t, shared()) }()

	for _, thread := range []string{"one", "two"} {
		r.key = "review in " + thread
		stop := r.serve(newPack(t, "review"))
		defer func() { _ = stop() }()
		on := sandbox.Thread{Owner: packer.Owner, ID: thread}
		p := r.Channel(on, "review", "channel-"+thread)
		if p == nil {
			t.Fatalf("%s has no pack", thread)
		}
		if got, err := call(p, "find", `{"name":"x"}`); err != nil || !strings.Contains(got, "x") {
			t.Errorf("%s: %s %v", thread, got, err)
		}
		if p := r.Channel(on, "review", "channel-other"); p != nil {
			t.Error("another attachment has the pack")
		}
	}
	if told.Load() < 2 {
		t.Errorf("the listener was told %d times", told.Load())
	}
	if n := len(r.Servers("t").List); n != 1 {
		t.Errorf("%d packs are listed", n)
	}
	if n := len(r.List(admin)); n != 1 {
		t.Errorf("administrators see %d packs", n)
	}

	three := provider.Server{URL: r.url, Credential: provider.BearerKey("review in three")}
	if err := newPack(t, "other").Serve(t.Context(), three); err == nil || !strings.Contains(err.Error(), "may not provide the pack") {
		t.Errorf("the key of another skill: %v", err)
	}
	many := provider.New("review", "1")
	for i := range sandbox.MaxSkillTools + 1 {
		must(t, provider.Tool(many, "t"+strconv.Itoa(i), "", func(context.Context, struct{}) (string, error) { return "", nil }))
	}
	if err := many.Serve(t.Context(), three); err == nil || !strings.Contains(err.Error(), "at most 64, and this one has 65") {
		t.Errorf("65 tools: %v", err)
	}

	p := r.Channel(sandbox.Thread{Owner: packer.Owner, ID: "one"}, "review", "channel-one")
	ended := make(chan error, 1)
	go func() {
		_, err := call(p, "wait", `{}`)
		ended <- err
	}()
	keys.ended.Store(true)
	if err := <-ended; sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("a call whose key ended: %v", err)
	}
	for range 30 { // wrong keys of skills slow no pack
		if err := newPack(t, "review").Serve(t.Context(), three); err == nil || !strings.Contains(err.Error(), "good for nothing") {
			t.Fatalf("an ended key: %v", err)
		}
	}
	r.key = ""
	must(t, r.serve(newPack(t, "fine"))())
}
