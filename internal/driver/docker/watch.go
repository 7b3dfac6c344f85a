package docker

import (
	"context"
	"strconv"
	"time"

	"github.com/moby/moby/api/types/events"
	"github.com/moby/moby/client"

	"github.com/skerry-sandbox/skerry/internal/driver"
	engineevents "github.com/skerry-sandbox/skerry/internal/driver/engine/events"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Watch implements driver.Driver. It follows the engine's events. When the connection is lost it
// connects again and compares what runs with what ran before, so that no end is missed.
func (d *Driver) Watch(ctx context.Context) (<-chan driver.Event, error) {
	w := &watch{d: d, ends: engineevents.NewEnds()}
	return engineevents.Watch(ctx, d.closing, w.ends, w.follow, w.connect, func(err error) {
		d.log.Warn("watching sandboxes is interrupted", "driver", Name, "error", err)
	})
}

// watch is one call of Watch. Only its goroutine touches it.
type watch struct {
	d    *Driver
	ends *engineevents.Ends
}

type stream = engineevents.Stream[events.Message]

// connect subscribes first and looks at what runs then, so that nothing falls in between.
func (w *watch) connect(ctx context.Context) (stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	filters := make(client.Filters).Add("type", string(events.ContainerEventType)).Add("label", labelMine+"=1").
		Add("event", string(events.ActionStart), string(events.ActionOOM), string(events.ActionDie))
	// The answer's head has no deadline of its own in the client.
	watchdog := time.AfterFunc(askTimeout, cancel)
	from := w.d.engine.Events(ctx, client.EventsListOptions{Filters: filters})
	s := stream{Events: from.Messages, Errs: from.Err, Cancel: cancel}
	if !watchdog.Stop() {
		s.End()
		return stream{}, sandbox.Errorf(sandbox.Unavailable, "the container engine does not tell its events")
	}
	select {
	case err := <-s.Errs:
		s.End()
		return stream{}, engineError(err, "the container engine does not tell its events")
	default:
	}
	now, err := w.d.List(ctx, nil)
	if err != nil {
		s.End()
		return stream{}, err
	}
	w.ends.Compare(ctx, now)
	return s, nil
}

// follow reports until the connection is lost or ctx ends.
func (w *watch) follow(ctx context.Context, s stream) {
	s.Each(ctx, w.handle, func(err error) { w.d.log.Warn("the container engine's events ended", "driver", Name, "error", err) })
}

func (w *watch) handle(ctx context.Context, m events.Message) {
	id := sandbox.ID(m.Actor.Attributes["name"])
	if hardening.CheckID(id) != nil {
		return
	}
	switch m.Action {
	case events.ActionStart:
		w.ends.Started(id)
	case events.ActionOOM:
		w.ends.OutOfMemory(id)
	case events.ActionDie:
		w.ends.Report(ctx, id, w.ends.WasOutOfMemory(id) || w.endedByOOM(ctx, id, m))
	}
}

// killedBySIGKILL is the exit code of a process that the kernel ended.
const killedBySIGKILL = 137

// endedByOOM asks for what the engine's two events leave open: the event of a lack of memory
// may come after the event of the end.
func (w *watch) endedByOOM(ctx context.Context, id sandbox.ID, m events.Message) bool {
	if code, err := strconv.Atoi(m.Actor.Attributes["exitCode"]); err != nil || code < 128 || code > killedBySIGKILL {
		return false
	}
	there, err := w.d.Inspect(ctx, id)
	return err == nil && there.OOMKilled
}
