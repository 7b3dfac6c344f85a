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

// markEvery is how often a watch sends a mark until it has come back.
const markEvery = 50 * time.Millisecond

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

type stream = engineevents.Stream[*events.Envelope]

// connect subscribes first and looks at what runs then, so that nothing falls in between.
func (w *watch) connect(ctx context.Context) (stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	var filters []string
	for _, topic := range []string{topicStart, topicOOM, topicExit, topicUpdated, topicDeleted, topicMark} {
		filters = append(filters, fmt.Sprintf("namespace==%q,topic==%q", w.d.namespace, topic))
	}
	s := stream{Cancel: cancel}
	s.Events, s.Errs = w.d.engine.EventService().Subscribe(ctx, filters...)
	if err := w.awaitMark(ctx, s); err != nil {
		s.End()
		return stream{}, engineError(err, "containerd does not tell its events")
	}
	now, err := w.d.List(ctx, nil)
	if err != nil {
		s.End()
		return stream{}, err
	}
	w.ends.Compare(ctx, now)
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
			case e := <-s.Events:
				got := &wrapperspb.StringValue{}
				if e.Topic == topicMark && typeurl.UnmarshalTo(e.Event, got) == nil && got.Value == mark.Value {
					return nil
				}
				// What ends now is seen by List, which is asked next.
			case err := <-s.Errs:
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

// follow reports until the connection is lost or ctx ends.
func (w *watch) follow(ctx context.Context, s stream) {
	s.Each(ctx, w.handle, func(err error) { w.d.log.Warn("the events of containerd ended", "driver", Name, "error", err) })
}

func (w *watch) handle(ctx context.Context, e *events.Envelope) {
	switch e.Topic {
	case topicStart:
		var started apievents.TaskStart
		if typeurl.UnmarshalTo(e.Event, &started) == nil && isID(started.ContainerID) {
			w.ends.Started(sandbox.ID(started.ContainerID))
		}
	case topicOOM:
		var oom apievents.TaskOOM
		if typeurl.UnmarshalTo(e.Event, &oom) == nil && isID(oom.ContainerID) {
			w.ends.OutOfMemory(sandbox.ID(oom.ContainerID))
		}
	case topicExit:
		var exit apievents.TaskExit
		if typeurl.UnmarshalTo(e.Event, &exit) != nil || !isID(exit.ContainerID) {
			return
		}
		// Others end, too: what an operator ran in the container by hand.
		if id := sandbox.ID(exit.ContainerID); exit.ID == exit.ContainerID {
			killed := exit.ExitStatus >= endedBySignal && exit.ExitStatus <= endedByKill
			w.ends.Report(ctx, id, killed && w.ends.WasOutOfMemory(id) || endedByOOM(w.d.cgroups.Of(string(id)), exit.ExitStatus))
		}
	case topicUpdated:
		var updated apievents.ContainerUpdate
		if typeurl.UnmarshalTo(e.Event, &updated) == nil && isID(updated.ID) && updated.Labels[labelStarted] != "" {
			w.ends.Started(sandbox.ID(updated.ID))
		}
	case topicDeleted:
		var deleted apievents.ContainerDelete
		if typeurl.UnmarshalTo(e.Event, &deleted) == nil && w.ends.Alive(sandbox.ID(deleted.ID)) {
			w.ends.Report(ctx, sandbox.ID(deleted.ID), false)
		}
	}
}

func isID(name string) bool { return hardening.CheckID(sandbox.ID(name)) == nil }
