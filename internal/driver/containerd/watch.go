package containerd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	apievents "github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/v2/core/events"
	"github.com/containerd/typeurl/v2"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/skerry-sandbox/skerry/internal/driver"
	engineevents "github.com/skerry-sandbox/skerry/internal/driver/engine/events"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	// eventBuffer lets a watch go on while its reader is busy with a burst.
	eventBuffer = 64
	// markEvery is how often a watch sends a mark until it has come back.
	markEvery = 50 * time.Millisecond
)

// Topics of the events that a watch follows. Those of tasks come from their shims, and an event that is sent
// to go takes what it has not said yet with it; those of containers come from containerd itself.
const (
	topicStart   = "/tasks/start"
	topicOOM     = "/tasks/oom"
	topicExit    = "/tasks/exit"
	topicUpdated = "/containers/update" // Create sets a label once the task runs
	topicDeleted = "/containers/delete" // the end of Remove
	topicMark    = "/skerry/watch"
)

// Watch implements driver.Driver. It follows containerd's events. When the connection is lost it
// connects again and compares what runs with what ran before, so that no end is missed.
func (d *Driver) Watch(ctx context.Context) (<-chan driver.Event, error) {
	ctx, cancel := context.WithCancel(ctx)
	stopWithDriver := context.AfterFunc(d.closing, cancel)
	w := &watch{d: d, events: make(chan driver.Event, eventBuffer), oom: make(map[sandbox.ID]bool)}
	s, err := w.connect(ctx)
	if err != nil {
		cancel()
		stopWithDriver()
		return nil, err
	}
	go func() {
		defer close(w.events)
		defer cancel()
		defer stopWithDriver()
		w.run(ctx, s)
	}()
	return w.events, nil
}

// watch is one call of Watch. Only its goroutine touches it.
type watch struct {
	d      *Driver
	events chan driver.Event
	alive  map[sandbox.ID]bool // nil before the first connection
	oom    map[sandbox.ID]bool // of which containerd said so before their end
}

// stream is one subscription. cancel ends it.
type stream struct {
	events <-chan *events.Envelope
	errs   <-chan error
	cancel context.CancelFunc
}

// end ends a subscription and waits until the client's goroutine has ended.
func (s stream) end() {
	s.cancel()
	for {
		select {
		case <-s.events:
		case _, open := <-s.errs:
			if !open {
				return
			}
		}
	}
}

// connect subscribes first and looks at what runs then, so that nothing falls in between.
func (w *watch) connect(ctx context.Context) (stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	var filters []string
	for _, topic := range []string{topicStart, topicOOM, topicExit, topicUpdated, topicDeleted, topicMark} {
		filters = append(filters, fmt.Sprintf("namespace==%q,topic==%q", w.d.namespace, topic))
	}
	s := stream{cancel: cancel}
	s.events, s.errs = w.d.engine.EventService().Subscribe(ctx, filters...)
	if err := w.awaitMark(ctx, s); err != nil {
		s.end()
		return stream{}, engineError(err, "containerd does not tell its events")
	}
	now, err := w.d.List(ctx, nil)
	if err != nil {
		s.end()
		return stream{}, err
	}
	w.compare(ctx, now)
	return s, nil
}

// awaitMark returns once the subscription is in force. containerd does not say when it is, so the watch
// sends an event of its own until it comes back.
func (w *watch) awaitMark(ctx context.Context, s stream) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	mark := wrapperspb.String(rand.Text())
	for {
		if err := w.d.engine.EventService().Publish(ctx, topicMark, mark); err != nil {
			return err
		}
		for late := time.After(markEvery); late != nil; {
			select {
			case e := <-s.events:
				got := &wrapperspb.StringValue{}
				if e.Topic == topicMark && typeurl.UnmarshalTo(e.Event, got) == nil && got.Value == mark.Value {
					return nil
				}
				// What ends now is seen by List, which is asked next.
			case err := <-s.errs:
				return errors.Join(errStreamEnded, err)
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-late:
				late = nil
			}
		}
	}
}

var errStreamEnded = errors.New("the stream of events ended")

// compare reports what ran when the last connection was lost, and does not now.
func (w *watch) compare(ctx context.Context, now []sandbox.Instance) {
	alive := make(map[sandbox.ID]bool)
	ended := make(map[sandbox.ID]sandbox.Instance)
	for _, i := range now {
		if i.State == sandbox.Lost {
			ended[i.ID] = i
		} else {
			alive[i.ID] = true
		}
	}
	before := w.alive
	w.alive = alive
	for id := range before {
		if !alive[id] {
			w.report(ctx, id, ended[id].OOMKilled)
		}
	}
}

func (w *watch) run(ctx context.Context, s stream) {
	engineevents.Follow(ctx, s, w.follow, w.connect, func(err error) {
		w.d.log.Warn("watching sandboxes is interrupted", "driver", Name, "error", err)
	})
}

// follow reports until the connection is lost or ctx ends.
func (w *watch) follow(ctx context.Context, s stream) {
	defer s.end()
	for {
		select {
		case <-ctx.Done():
			return
		case err := <-s.errs:
			if ctx.Err() == nil {
				w.d.log.Warn("the events of containerd ended", "driver", Name, "error", err)
			}
			return
		case e := <-s.events:
			w.handle(ctx, e)
		}
	}
}

func (w *watch) handle(ctx context.Context, e *events.Envelope) {
	switch e.Topic {
	case topicStart:
		var started apievents.TaskStart
		if typeurl.UnmarshalTo(e.Event, &started) == nil && isID(started.ContainerID) {
			w.alive[sandbox.ID(started.ContainerID)] = true
		}
	case topicOOM:
		var oom apievents.TaskOOM
		if typeurl.UnmarshalTo(e.Event, &oom) == nil && isID(oom.ContainerID) {
			w.oom[sandbox.ID(oom.ContainerID)] = true
		}
	case topicExit:
		var exit apievents.TaskExit
		if typeurl.UnmarshalTo(e.Event, &exit) != nil || !isID(exit.ContainerID) {
			return
		}
		// Others end, too: what an operator ran in the container by hand.
		if id := sandbox.ID(exit.ContainerID); exit.ID == exit.ContainerID {
			killed := exit.ExitStatus >= endedBySignal && exit.ExitStatus <= endedByKill
			w.report(ctx, id, killed && w.oom[id] || endedByOOM(id, exit.ExitStatus))
		}
	case topicUpdated:
		var updated apievents.ContainerUpdate
		if typeurl.UnmarshalTo(e.Event, &updated) == nil && isID(updated.ID) && updated.Labels[labelStarted] != "" {
			w.alive[sandbox.ID(updated.ID)] = true
		}
	case topicDeleted:
		var deleted apievents.ContainerDelete
		if typeurl.UnmarshalTo(e.Event, &deleted) == nil && w.alive[sandbox.ID(deleted.ID)] {
			w.report(ctx, sandbox.ID(deleted.ID), false)
		}
	}
}

func isID(name string) bool { return hardening.CheckID(sandbox.ID(name)) == nil }

func (w *watch) report(ctx context.Context, id sandbox.ID, oom bool) {
	delete(w.alive, id)
	delete(w.oom, id)
	select {
	case w.events <- driver.Event{ID: id, State: sandbox.Lost, OOM: oom}:
	case <-ctx.Done():
	}
}
