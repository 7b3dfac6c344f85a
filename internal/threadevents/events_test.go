package threadevents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skerry-sandbox/skerry/internal/ownership/ownerrecord"
	"github.com/skerry-sandbox/skerry/internal/prompt"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	ann    = sandbox.Caller{Owner: sandbox.Owner{Tenant: "acme", User: "ann"}}
	thread = sandbox.Thread{Owner: ann.Owner, ID: "t"}
)

// house is what Events needs of a server, as fakes.
type house struct {
	mu       sync.Mutex
	tools    []string
	active   bool // the tools are
	skills   []string
	changed  chan struct{}
	actives  chan struct{}
	tenure   chan struct{}
	owner    string // of threads that are not ours
	told     []string
	missing  bool
	watching func(string)
}

func (h *house) Exists(context.Context, sandbox.Thread) error {
	if h.missing {
		return sandbox.Errorf(sandbox.NotFound, "there is no such thread")
	}
	return nil
}

func (h *house) Ending(sandbox.Thread) (<-chan struct{}, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tenure, false
}

func (h *house) Record(sandbox.Thread) ownerrecord.OwnerRecord {
	return ownerrecord.OwnerRecord{Replica: h.owner}
}

func (h *house) Told(context.Context, sandbox.Caller, string) (told prompt.Told, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range h.tools {
		told.Offer.Tools.Tools = append(told.Offer.Tools.Tools, sandbox.Tool{Printed: name, Active: h.active})
	}
	for _, name := range h.skills {
		told.Skills = append(told.Skills, sandbox.Skill{Name: name})
	}
	told.Version = fmt.Sprintf("%x", strings.Join(h.skills, ","))
	return told, nil
}

func (h *house) signal() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.changed
}

func (h *house) ToolsChanged() <-chan struct{}  { return h.signal() }
func (h *house) SkillsChanged() <-chan struct{} { return h.signal() }

func (h *house) WatchActiveTools(sandbox.Thread) (<-chan struct{}, func()) {
	return h.actives, func() {}
}

// change changes what there is, and gives the signal.
func (h *house) change(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *house) TellFileChange(_ context.Context, text string) error {
	h.told = append(h.told, text)
	return nil
}

func (h *house) WatchFileChanges(ctx context.Context, changed func(string)) {
	h.mu.Lock()
	h.watching = changed
	h.mu.Unlock()
	<-ctx.Done()
}

func newHouse() (*house, *Feeds, *Events) {
	h := &house{changed: make(chan struct{}), actives: make(chan struct{}, 1), tenure: make(chan struct{}), skills: []string{"pdf"}}
	feeds := &Feeds{}
	return h, feeds, New(Options{
		Feeds: feeds, Threads: h, Owners: h, Replica: "me", Tools: h, Active: h, Skills: h, Prompts: h, Shared: h, Log: slog.New(slog.DiscardHandler),
	})
}

// stream is a follower of the test.
type stream struct {
	got  chan said
	end  chan error
	stop context.CancelFunc
}

type said struct {
	id   string
	kind sandbox.ThreadEventKind
	ev   sandbox.ThreadEvent
}

func follow(t *testing.T, x *Events, after string) *stream {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &stream{got: make(chan said, 10_000), end: make(chan error, 1), stop: cancel}
	go func() {
		s.end <- x.FollowEvents(ctx, ann, thread.ID, after, func(id string, kind sandbox.ThreadEventKind, data []byte) error {
			var e sandbox.ThreadEvent
			if err := json.Unmarshal(data, &e); err != nil {
				return err
			}
			s.got <- said{id, kind, e}
			return nil
		})
	}()
	t.Cleanup(cancel)
	return s
}

// want returns the next event, which is of this kind.
func (s *stream) want(t *testing.T, kind sandbox.ThreadEventKind) said {
	t.Helper()
	select {
	case one := <-s.got:
		if one.kind != kind || one.ev.Kind != kind {
			t.Fatalf("the event is %s %+v, want %s", one.kind, one.ev, kind)
		}
		return one
	case err := <-s.end:
		t.Fatalf("the stream ended with %v, want %s", err, kind)
	case <-time.After(20 * time.Second):
		t.Fatalf("no %s", kind)
	}
	return said{}
}

func exec(f *Feeds, t sandbox.Thread, id string) {
	f.ExecStarted(t, func() sandbox.ExecInfo { return sandbox.ExecInfo{ExecID: id, Status: sandbox.StatusRunning} })
}

func TestFollowAndResume(t *testing.T) {
	t.Parallel()
	h, feeds, x := newHouse()
	s := follow(t, x, "")
	first := s.want(t, sandbox.EventFollowing)
	if first.ev.Versions == nil || first.ev.Versions.Prompt == "" || first.ev.Versions.Tools == "" {
		t.Errorf("started says %+v", first.ev)
	}
	exec(feeds, thread, "e1")
	one := s.want(t, sandbox.EventExecStarted)
	exec(feeds, sandbox.Thread{Owner: sandbox.Owner{Tenant: "acme", User: "bob"}, ID: thread.ID}, "of another user")
	exec(feeds, thread, "e2")
	if two := s.want(t, sandbox.EventExecStarted); two.ev.Exec.ExecID != "e2" {
		t.Errorf("an event of another user's thread: %+v", two.ev.Exec)
	}
	h.change(func() { h.skills = append(h.skills, "csv") })
	s.want(t, sandbox.EventSkillsChanged)
	if p := s.want(t, sandbox.EventPromptChanged); p.ev.Versions.Prompt == first.ev.Versions.Prompt {
		t.Error("the prompt changed, and has the same version")
	}
	s.stop()
	<-s.end

	// While nobody follows, the feed goes on, and what is told by versions is found out by the id.
	exec(feeds, thread, "e3")
	h.change(func() { h.tools = []string{"new"} })
	s = follow(t, x, one.id)
	s.want(t, sandbox.EventFollowing)
	got := map[sandbox.ThreadEventKind][]string{}
	for range 5 {
		e := <-s.got
		name := ""
		if e.ev.Exec != nil {
			name = e.ev.Exec.ExecID
		}
		got[e.kind] = append(got[e.kind], name)
	}
	if !slices.Equal(got[sandbox.EventExecStarted], []string{"e2", "e3"}) || len(got[sandbox.EventToolsChanged]) != 1 || len(got[sandbox.EventSkillsChanged]) != 1 || len(got[sandbox.EventPromptChanged]) != 1 {
		t.Errorf("after the first exec: %v", got)
	}
	feeds.End(thread)
	if err := <-s.end; err != nil {
		t.Errorf("the end of a deleted thread: %v", err)
	}
	if feeds.Open() != 0 {
		t.Errorf("%d feeds are left", feeds.Open())
	}
}

// TestActivated: a follower hears at once of a tool that the agent activated, which is no change of what there is.
func TestActivated(t *testing.T) {
	t.Parallel()
	h, _, x := newHouse()
	h.tools = []string{"late"}
	s := follow(t, x, "")
	first := s.want(t, sandbox.EventFollowing)
	h.mu.Lock()
	h.active = true
	h.mu.Unlock()
	h.actives <- struct{}{}
	if e := s.want(t, sandbox.EventToolsChanged); e.ev.Versions.Tools == first.ev.Versions.Tools {
		t.Error("the tools changed, and have the same version")
	}
	s.stop()
	<-s.end
}

// TestReset: where events are missing, the stream says so: another server, a restart, an id of no feed, a feed that went on too far.
func TestReset(t *testing.T) {
	t.Parallel()
	h, feeds, x := newHouse()
	s := follow(t, x, "")
	id := s.want(t, sandbox.EventFollowing).id
	for i := range maxEvents + 10 {
		exec(feeds, thread, fmt.Sprint(i))
	}
	s.stop()
	<-s.end
	for what, after := range map[string]string{
		"a feed that went on": id, "another server's": "OTHER.3.00.00.00", "no id": "x", "an injection": strings.Replace(id, ".", ".\n", 1), "a long one": strings.Repeat("a", 300),
	} {
		s := follow(t, x, after)
		if e := s.want(t, sandbox.EventReset); e.ev.Versions == nil {
			t.Errorf("%s: %+v", what, e.ev)
		} else if strings.ContainsAny(e.id, "\n\r") {
			t.Errorf("%s: the id has a line end", what)
		}
		s.stop()
		<-s.end
	}

	// Another server had the thread meanwhile: the feed lacks its events.
	s = follow(t, x, "")
	id = s.want(t, sandbox.EventFollowing).id
	h.mu.Lock()
	close(h.tenure)
	h.tenure = make(chan struct{})
	h.mu.Unlock()
	if err := <-s.end; !errors.Is(err, sandbox.Unavailable) {
		t.Errorf("the end of a stream whose thread moved: %v", err)
	}
	s = follow(t, x, id)
	s.want(t, sandbox.EventReset)
	s.stop()
	<-s.end
}

// TestSlowFollower: a follower that takes nothing has no memory of its own, and is told that events are missing.
func TestSlowFollower(t *testing.T) {
	t.Parallel()
	_, feeds, x := newHouse()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	began, hold := make(chan struct{}), make(chan struct{})
	var kinds []sandbox.ThreadEventKind
	end := make(chan error, 1)
	go func() {
		end <- x.FollowEvents(ctx, ann, thread.ID, "", func(_ string, kind sandbox.ThreadEventKind, _ []byte) error {
			kinds = append(kinds, kind)
			switch {
			case len(kinds) == 1:
				close(began)
				<-hold
			case kind == sandbox.EventReset:
				cancel()
			}
			return nil
		})
	}()
	<-began
	for i := range 4 * maxEvents {
		exec(feeds, thread, fmt.Sprint(i))
	}
	feeds.mu.Lock()
	d := feeds.of[thread]
	if len(d.events) > maxEvents || d.bytes > maxBytes {
		t.Errorf("the feed keeps %d events of %d bytes", len(d.events), d.bytes)
	}
	feeds.mu.Unlock()
	close(hold)
	<-end
	if !slices.Equal(kinds, []sandbox.ThreadEventKind{sandbox.EventFollowing, sandbox.EventReset}) {
		t.Errorf("a slow follower got %v", kinds)
	}
}

func TestBounds(t *testing.T) {
	t.Parallel()
	h, feeds, x := newHouse()
	long := strings.Repeat("p", 4000)
	s := follow(t, x, "")
	s.want(t, sandbox.EventFollowing)
	feeds.ExecEnded(thread, func() (sandbox.ExecInfo, sandbox.Result) {
		res := sandbox.Result{ExecID: "e", Files: []sandbox.FileChange{{Path: "/a"}, {Path: long}, {Path: long}, {Path: long}, {Path: "/b"}}}
		return sandbox.ExecInfo{ExecID: "e", Subject: strings.Repeat("ä", 5000)}, res
	})
	if e := s.want(t, sandbox.EventExecEnded); len(e.ev.Exec.Subject) > maxSubject+len("…") {
		t.Errorf("a subject of %d bytes", len(e.ev.Exec.Subject))
	}
	if e := s.want(t, sandbox.EventFilesChanged); !e.ev.Files.More || !slices.Equal(e.ev.Files.Paths, []string{"/a", long, long}) || e.ev.Files.ExecID != "e" {
		t.Errorf("files %d, more %t", len(e.ev.Files.Paths), e.ev.Files.More)
	}
	var more []*stream
	for range maxFollowers - 1 {
		one := follow(t, x, "")
		one.want(t, sandbox.EventFollowing)
		more = append(more, one)
	}
	if err := <-follow(t, x, "").end; !errors.Is(err, sandbox.CapacityExceeded) {
		t.Errorf("one follower too many: %v", err)
	}
	for _, one := range append(more, s) {
		one.stop()
		<-one.end
	}
	h.missing = true
	if err := <-follow(t, x, "").end; !errors.Is(err, sandbox.NotFound) {
		t.Errorf("a thread that is not there: %v", err)
	}
}

// TestNobodyFollows: nothing is made of events that nobody follows, and no feed outlives its time.
func TestNobodyFollows(t *testing.T) {
	t.Parallel()
	_, feeds, x := newHouse()
	feeds.Publish(thread, func() sandbox.ThreadEvent { t.Error("an event was made for nobody"); return sandbox.ThreadEvent{} })
	s := follow(t, x, "")
	s.want(t, sandbox.EventFollowing)
	other := sandbox.Thread{Owner: ann.Owner, ID: "other"}
	feeds.Publish(other, func() sandbox.ThreadEvent { t.Error("an event was made for nobody"); return sandbox.ThreadEvent{} })
	s.stop()
	<-s.end
	feeds.mu.Lock()
	d := feeds.of[thread]
	place := d.place
	feeds.mu.Unlock()
	feeds.expire(d, place)
	if feeds.Open() != 0 {
		t.Errorf("%d feeds are left", feeds.Open())
	}
}

// TestFilesElsewhere: what a server changes of another one's thread is told there.
func TestFilesElsewhere(t *testing.T) {
	t.Parallel()
	h, _, x := newHouse()
	h.tenure, h.owner = nil, "other"
	x.filesChanged(t.Context(), thread, []string{"/mnt/user-data/workspace/a"})
	if len(h.told) != 1 {
		t.Fatalf("told %v", h.told)
	}
	there, _, y := newHouse()
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() { y.Watch(ctx) })
	defer watching.Wait()
	defer cancel()
	s := follow(t, y, "")
	s.want(t, sandbox.EventFollowing)
	for {
		there.mu.Lock()
		changed := there.watching
		there.mu.Unlock()
		if changed != nil {
			changed("")          // the first connection
			changed(h.told[0])   // the change
			changed("")          // a later connection
			changed("{\"broken") // what is none of ours
			break
		}
	}
	if e := s.want(t, sandbox.EventFilesChanged); !slices.Equal(e.ev.Files.Paths, []string{"/mnt/user-data/workspace/a"}) || e.ev.Files.More {
		t.Errorf("%+v", e.ev.Files)
	}
	if e := s.want(t, sandbox.EventFilesChanged); !e.ev.Files.More || len(e.ev.Files.Paths) != 0 {
		t.Errorf("after a lost connection: %+v", e.ev.Files)
	}
	s.stop()
	<-s.end
	h.owner = "me"
	x.filesChanged(t.Context(), thread, nil)
	h.owner = ""
	x.filesChanged(t.Context(), thread, nil)
	if len(h.told) != 1 {
		t.Errorf("told %v", h.told)
	}
}

// BenchmarkPublish is what an exec pays for its two events.
func BenchmarkPublish(b *testing.B) {
	info := func() sandbox.ExecInfo { return sandbox.ExecInfo{ExecID: "0197", Action: "exec", Subject: "make test"} }
	b.Run("nobody follows", func(b *testing.B) {
		var feeds Feeds
		for b.Loop() {
			feeds.ExecStarted(thread, info)
		}
	})
	b.Run("another thread is followed", func(b *testing.B) {
		var feeds Feeds
		if _, _, _, err := feeds.follow(sandbox.Thread{ID: "other"}, nil, position{}); err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			feeds.ExecStarted(thread, info)
		}
	})
	b.Run("followed", func(b *testing.B) {
		var feeds Feeds
		if _, _, _, err := feeds.follow(thread, nil, position{}); err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			feeds.ExecStarted(thread, info)
		}
	})
}
