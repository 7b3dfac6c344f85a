package channels

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/packs"
	"github.com/skerry-sandbox/skerry/internal/tools/packs/manifest"
	packsv1 "github.com/skerry-sandbox/skerry/sdk/packs/v1"
)

var thread = sandbox.Thread{Owner: sandbox.Owner{Tenant: "acme", User: "ann"}, ID: "t"}

// state is the records of threads.
type state struct {
	info map[sandbox.Thread]sandbox.ThreadInfo
	err  error
}

func (s *state) Thread(_ context.Context, t sandbox.Thread) (sandbox.ThreadInfo, error) {
	info, ok := s.info[t]
	if !ok && s.err == nil {
		return info, sandbox.Errorf(sandbox.NotFound, "there is no thread %q", t.ID)
	}
	return info, s.err
}

// forged is a key that says something else of itself.
func forged(t *testing.T, key string, change func(*claims)) string {
	t.Helper()
	x, ok := readKey(key)
	if !ok {
		t.Fatal("the key cannot be read")
	}
	change(&x)
	text, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	return packs.ChannelKeys + base64.RawURLEncoding.EncodeToString(text)
}

// TestKeys: a key is good for one skill of one thread, as long as the thread's record has its hash and the process lives that
// has the skill. All other keys are refused alike. A state that does not answer lets no stream in, and ends none.
func TestKeys(t *testing.T) {
	t.Parallel()
	key, ch, err := newKey(thread, "review")
	if err != nil {
		t.Fatal(err)
	}
	ch.Server = "r1"
	other := sandbox.Thread{Owner: thread.Owner, ID: "other"}
	st := &state{info: map[sandbox.Thread]sandbox.ThreadInfo{
		thread: {Channels: map[string]sandbox.SkillChannel{"review": ch, "second": {ID: "x", Hash: hashOf("another"), Server: "r1"}}},
		other:  {Channels: map[string]sandbox.SkillChannel{"review": {ID: "y", Hash: hashOf("another"), Server: "r1"}}},
	}}
	alive := true
	k := Keys{Records: st, Alive: func(id string) bool { return alive && id == "r1" }}
	g, err := k.Channel(t.Context(), key)
	if err != nil || g.Thread != thread || g.Channel != ch.ID || !packs.Covers(g.Packs, "review") || packs.Covers(g.Packs, "second") || g.Tenant != "acme" {
		t.Fatalf("%+v %v", g, err)
	}
	if strings.Contains(g.Identity, key) || strings.Contains(ch.Hash+ch.ID, key[len(packs.ChannelKeys):]) {
		t.Error("the key is in what others see")
	}
	for what, bad := range map[string]string{
		"no key": "", "prefix": packs.ChannelKeys, "not base64": packs.ChannelKeys + "%%%", "no JSON": packs.ChannelKeys + "AAAA",
		"too long": packs.ChannelKeys + strings.Repeat("A", maxKey+1), "another prefix": "sk_" + strings.TrimPrefix(key, packs.ChannelKeys),
		"another skill":  forged(t, key, func(x *claims) { x.Skill = "second" }),
		"no such skill":  forged(t, key, func(x *claims) { x.Skill = "third" }),
		"another thread": forged(t, key, func(x *claims) { x.Thread = "other" }),
		"no such thread": forged(t, key, func(x *claims) { x.Thread = "none" }),
		"a path":         forged(t, key, func(x *claims) { x.Thread = "../t" }),
		"another user":   forged(t, key, func(x *claims) { x.User = "bob" }),
		"another secret": forged(t, key, func(x *claims) { x.Secret = "another" }),
		"its hash":       forged(t, key, func(x *claims) { x.Secret = ch.Hash }),
		"no secret":      forged(t, key, func(x *claims) { x.Secret = "" }),
	} {
		if _, err := k.Channel(t.Context(), bad); sandbox.KindOf(err) != sandbox.Unauthorized || sandbox.DetailOf(err) != sandbox.DetailOf(errNoKey) {
			t.Errorf("%s: %v", what, err)
		}
	}
	st.err = sandbox.Errorf(sandbox.Unavailable, "the state does not answer")
	if _, err := k.Channel(t.Context(), key); sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("without a state: %v", err)
	}
	if err := g.Again(t.Context()); err != nil {
		t.Errorf("without a state an open stream ends: %v", err)
	}
	st.err, alive = nil, false
	if err := g.Again(t.Context()); sandbox.KindOf(err) != sandbox.Unauthorized {
		t.Errorf("the process with the skill has ended: %v", err)
	}
	alive = true
	delete(st.info, thread)
	if err := g.Again(t.Context()); sandbox.KindOf(err) != sandbox.Unauthorized {
		t.Errorf("the thread was deleted: %v", err)
	}
}

// noPacks has no program connected.
type noPacks struct{}

func (noPacks) Channel(sandbox.Thread, string, string) *packs.Pack { return nil }

// TestFound: a tool is found when its skill is attached, active, and known to have it. Tools of programs that went are still
// known. A caller who may not use a tool is not told of it.
func TestFound(t *testing.T) {
	t.Parallel()
	c := New(Options{Packs: noPacks{}, Log: slog.New(slog.DiscardHandler)})
	tools := c.Before(nil)
	ref := sandbox.ToolRef{Printed: "skill/review/count"}
	resolve := func(visible func(sandbox.Tool) bool) error {
		_, err := tools.ResolveAmong(t.Context(), thread, ref, visible)
		return err
	}
	want := func(what string, kind sandbox.Kind) {
		t.Helper()
		if err := resolve(nil); sandbox.KindOf(err) != kind {
			t.Errorf("%s: %v", what, err)
		}
	}
	want("not attached", sandbox.NotFound)
	c.put(thread, "review", sandbox.SkillChannel{ID: "1"})
	want("not active", sandbox.Conflict)
	if list := c.active(thread); list != nil {
		t.Errorf("wrappers for %v", list)
	}
	if _, away := c.activate(thread, "review"); away == nil {
		t.Error("activation does not say that the tools are away")
	}
	want("never connected", sandbox.Unavailable)
	m, err := manifest.Check(&packsv1.PackManifest{PackId: "review", Tools: []*packsv1.ToolDefinition{
		{Name: "count", Description: "Counts", InputSchemaJson: `{"type":"object","required":["text"]}`, RequiredCapabilities: []string{"crm"}},
		{Name: "hidden", Disclosure: "hidden"},
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.all[thread]["review"].offer = &offer{skill: "review", manifest: m, places: make(chan struct{}, 1)}
	want("known", "")
	if list := c.active(thread); len(list) != 1 || list[0].Server != "skill/review" || list[0].Printed != ref.Printed || len(list[0].Requires) != 1 {
		t.Errorf("wrappers for %+v", list)
	}
	if err := resolve(func(sandbox.Tool) bool { return false }); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("a tool that the caller may not use: %v", err)
	}
	if _, err := tools.Arguments(t.Context(), thread, sandbox.Tool{Server: "skill/review", Name: "count"}, []byte(`{}`)); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("wrong arguments: %v", err)
	}
	if _, err := tools.CallChecked(t.Context(), thread, sandbox.Tool{Server: "skill/review", Name: "count"}, []byte(`{}`), sandbox.ToolWatch{}); sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("its program is away: %v", err)
	}
	for _, name := range []string{"none", "hidden"} {
		ref.Printed = "skill/review/" + name
		want(name, sandbox.NotFound)
	}
	c.forget(thread)
	want("the thread was deleted", sandbox.NotFound)
}

// TestOffersAreBounded: code attaches skill after skill, and its programs connect, offer as much as they may, and go.
func TestOffersAreBounded(t *testing.T) {
	t.Parallel()
	c := New(Options{Packs: noPacks{}, Log: slog.New(slog.DiscardHandler)})
	large := &manifest.Manifest{Description: strings.Repeat("x", 1<<20)}
	var last *attached
	for i := range maxOffers>>20 + 50 {
		at := sandbox.Thread{Owner: thread.Owner, ID: fmt.Sprint(i)}
		c.put(at, "s", sandbox.SkillChannel{ID: "1"})
		c.mu.Lock()
		last = c.all[at]["s"]
		c.keep(last, &offer{skill: "s", manifest: large})
		c.mu.Unlock()
	}
	total := 0
	for _, skills := range c.all {
		total += skills["s"].offer.bytes()
	}
	if total > maxOffers || total < maxOffers-1<<20 || last.offer == nil {
		t.Errorf("%d bytes are kept, the last %v", total, last.offer != nil)
	}
}

// TestReferences: only what begins with skill/ names a tool of a skill, and no name of a server does.
func TestReferences(t *testing.T) {
	t.Parallel()
	for ref, want := range map[sandbox.ToolRef][2]string{
		{Printed: "skill/review/count"}:              {"review", "count"},
		{Name: "skill/review/count"}:                 {"review", "count"},
		{Server: "skill/review", Name: "count"}:      {"review", "count"},
		{Server: "crm", Name: "skill/review/count"}:  {},
		{Printed: "skill__review"}:                   {},
		{Printed: "skill_review__count"}:             {},
		{Server: "skill", Name: "review/count"}:      {},
		{Server: "skill/review", Name: "skill/x/y"}:  {"review", "skill/x/y"},
		{Printed: sandbox.SkillToolName("a", "b.c")}: {"a", "b.c"},
	} {
		if skill, tool, ok := ref.SkillTool(); skill != want[0] || tool != want[1] || ok != (want[0] != "") {
			t.Errorf("%+v: %q %q %v", ref, skill, tool, ok)
		}
	}
}
