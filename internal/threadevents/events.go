package threadevents

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/skerry-sandbox/skerry/internal/ownership/ownerrecord"
	"github.com/skerry-sandbox/skerry/internal/prompt"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	// settles is how long a follower waits after a signal before it compares versions: changes come in bursts.
	settles = 100 * time.Millisecond
	// recheckEvery is how often a follower compares versions without a signal: what another server changed has none here.
	recheckEvery = 15 * time.Second
	// lookTime bounds one comparison, which may connect to MCP servers.
	lookTime = 30 * time.Second
)

// Threads knows which threads there are.
type Threads interface {
	// Exists is NotFound for a thread that is not there.
	Exists(ctx context.Context, t sandbox.Thread) error
}

// Owners knows which server has a thread.
type Owners interface {
	// Ending returns a channel that is closed when the thread is given up; nil: it is not this server's.
	Ending(t sandbox.Thread) (ended <-chan struct{}, going bool)
	Record(t sandbox.Thread) ownerrecord.OwnerRecord
}

// Tools knows when tools change.
type Tools interface {
	ToolsChanged() <-chan struct{}
}

// Active knows which tools the agents of threads activated.
type Active interface {
	// WatchActiveTools returns a channel that gets a value when those of the thread have changed, until stop is called.
	WatchActiveTools(t sandbox.Thread) (changed <-chan struct{}, stop func())
}

// Skills knows when skills change.
type Skills interface {
	SkillsChanged() <-chan struct{}
}

// Prompts knows what the agents of threads are told.
type Prompts interface {
	Told(ctx context.Context, c sandbox.Caller, thread string) (prompt.Told, error)
}

// Shared tells other servers of changed files.
type Shared interface {
	TellFileChange(ctx context.Context, text string) error
	WatchFileChanges(ctx context.Context, changed func(text string))
}

// Options are the parts that Events work with. All are needed.
type Options struct {
	Feeds   *Feeds
	Threads Threads
	Owners  Owners
	Replica string // names this server
	Tools   Tools
	Active  Active
	Skills  Skills
	Prompts Prompts
	Shared  Shared
	Log     *slog.Logger
}

// Events are those of threads, for callers.
type Events struct{ o Options }

// New returns the events of a server's threads.
func New(o Options) *Events { return &Events{o} }

// errMoved ends the stream of a thread that this server gave up.
var errMoved = sandbox.Errorf(sandbox.Unavailable, "another server took the thread over: follow its events again")

// FollowEvents calls emit with each event of a thread and its id, until ctx ends: first with started, or with reset when events
// after the id are missing. after is the id of an event of an earlier stream, or "". It returns nil when the thread is
// deleted; Unavailable: this server gave the thread up. It starts no sandbox, and keeps none from being idle.
func (x *Events) FollowEvents(ctx context.Context, c sandbox.Caller, id, after string, emit func(id string, kind sandbox.ThreadEventKind, data []byte) error) error {
	t, err := c.Thread(id)
	if err != nil {
		return err
	}
	if err := x.o.Threads.Exists(ctx, t); err != nil {
		return err
	}
	tenure, _ := x.o.Owners.Ending(t)
	from := parsePosition(after)
	d, at, resumed, err := x.o.Feeds.follow(t, tenure, from)
	if err != nil {
		return err
	}
	defer x.o.Feeds.leave(d)
	f := &follower{o: x.o, caller: c, feed: d, emit: emit, told: position{epoch: d.epoch, n: at}}
	active, unwatch := x.o.Active.WatchActiveTools(t)
	defer unwatch()
	f.active = active
	f.listen() // before the first look, so that no change falls between
	now, err := f.look(ctx)
	if err != nil {
		return err
	}
	if resumed {
		f.told.versions = from.versions
		err = f.say(sandbox.EventFollowing, nil)
	} else {
		f.told.versions = now
		kind := sandbox.EventFollowing
		if after != "" {
			kind = sandbox.EventReset
		}
		err = f.say(kind, &now)
	}
	if err != nil {
		return err
	}
	if err := f.compared(now); err != nil {
		return err
	}
	return f.run(ctx, tenure)
}

// follower is one stream.
type follower struct {
	o      Options
	caller sandbox.Caller
	feed   *feed
	emit   func(id string, kind sandbox.ThreadEventKind, data []byte) error
	told   position // what the client has
	tools  <-chan struct{}
	active <-chan struct{}
	skills <-chan struct{}
}

func (f *follower) listen() {
	f.tools, f.skills = f.o.Tools.ToolsChanged(), f.o.Skills.SkillsChanged()
}

// look returns the versions as they are now for the caller.
func (f *follower) look(ctx context.Context) (v sandbox.ThreadVersions, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	told, err := f.o.Prompts.Told(ctx, f.caller, f.feed.thread.ID)
	if err != nil {
		return v, err
	}
	return sandbox.ThreadVersions{Tools: toolsVersion(told.Offer), Skills: skillsVersion(told.Skills), Prompt: told.Version}, nil
}

// say sends an event of the stream itself.
func (f *follower) say(kind sandbox.ThreadEventKind, v *sandbox.ThreadVersions) error {
	if v == nil {
		v = &f.told.versions
	}
	data, err := json.Marshal(sandbox.ThreadEvent{Kind: kind, At: time.Now().UTC(), Versions: v})
	if err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the event cannot be written")
	}
	return f.emit(f.told.String(), kind, data)
}

// compared tells of what differs from what the client has.
func (f *follower) compared(now sandbox.ThreadVersions) error {
	was := &f.told.versions
	for _, one := range []struct {
		kind sandbox.ThreadEventKind
		was  *string
		now  string
	}{
		{sandbox.EventToolsChanged, &was.Tools, now.Tools},
		{sandbox.EventSkillsChanged, &was.Skills, now.Skills},
		{sandbox.EventPromptChanged, &was.Prompt, now.Prompt},
	} {
		if *one.was == one.now {
			continue
		}
		*one.was = one.now
		if err := f.say(one.kind, &now); err != nil {
			return err
		}
	}
	return nil
}

// drain sends what the feed has. ended: the thread is deleted.
func (f *follower) drain(ctx context.Context) (more <-chan struct{}, ended bool, err error) {
	b := f.o.Feeds.next(f.feed, f.told.n)
	if b.passed {
		f.told.n = b.first - 1
		now, err := f.look(ctx)
		if err != nil {
			return nil, false, err
		}
		f.told.versions = now
		return b.more, b.ended, f.say(sandbox.EventReset, &now)
	}
	for _, e := range b.events {
		f.told.n++
		if err := f.emit(f.told.String(), e.kind, e.data); err != nil {
			return nil, false, err
		}
	}
	if b.gone && !b.ended {
		return nil, false, errMoved
	}
	return b.more, b.ended, nil
}

// run sends events until the stream ends.
func (f *follower) run(ctx context.Context, tenure <-chan struct{}) error {
	compare := time.NewTimer(recheckEvery)
	defer compare.Stop()
	for {
		more, ended, err := f.drain(ctx)
		if err != nil || ended {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tenure:
			return errMoved
		case <-more:
		case <-f.tools:
			f.listen()
			compare.Reset(settles)
		case <-f.active:
			compare.Reset(settles)
		case <-f.skills:
			f.listen()
			compare.Reset(settles)
		case <-compare.C:
			compare.Reset(recheckEvery)
			now, err := f.look(ctx)
			if err != nil {
				if ctx.Err() == nil && !errors.Is(err, sandbox.NotFound) { // the next look finds what this one did not
					f.o.Log.Debug("versions of a thread not compared", "thread", f.feed.thread.String(), "error", err)
				}
				continue
			}
			if err := f.compared(now); err != nil {
				return err
			}
		}
	}
}
