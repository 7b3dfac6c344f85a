package packs

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"

	packsv1 "github.com/skerry-sandbox/skerry/sdk/packs/v1"
)

// outbox is what waits to be sent on one stream. Calls wait for a place, so that a pack which does not read holds up its
// own calls alone. Short messages go before them, and need no place.
type outbox struct {
	room *semaphore.Weighted
	wake chan struct{}

	mu     sync.Mutex
	urgent []*packsv1.ServerMessage
	calls  []outCall
}

type outCall struct {
	id   uint64
	size int64
	msg  *packsv1.ServerMessage
}

const (
	maxOutbox = 32 << 20 // bytes of calls that wait
	maxUrgent = 8192     // short messages that wait
)

func newOutbox() *outbox {
	return &outbox{room: semaphore.NewWeighted(maxOutbox), wake: make(chan struct{}, 1)}
}

func (o *outbox) ring() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// putUrgent adds a short message. false: so many wait that the pack does not read.
func (o *outbox) putUrgent(msg *packsv1.ServerMessage) bool {
	o.mu.Lock()
	full := len(o.urgent) >= maxUrgent
	if !full {
		o.urgent = append(o.urgent, msg)
	}
	o.mu.Unlock()
	o.ring()
	return !full
}

// putCall adds a call once there is room.
func (o *outbox) putCall(ctx context.Context, c outCall) error {
	if err := o.room.Acquire(ctx, c.size); err != nil {
		return err
	}
	o.mu.Lock()
	o.calls = append(o.calls, c)
	o.mu.Unlock()
	o.ring()
	return nil
}

// next returns what is sent next; id is that of a call. ok is false when nothing waits.
func (o *outbox) next() (msg *packsv1.ServerMessage, id uint64, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.urgent) > 0 {
		msg, o.urgent[0] = o.urgent[0], nil
		o.urgent = o.urgent[1:]
		return msg, 0, true
	}
	if len(o.calls) == 0 {
		return nil, 0, false
	}
	c := o.calls[0]
	o.calls[0] = outCall{}
	o.calls = o.calls[1:]
	o.room.Release(c.size)
	return c.msg, c.id, true
}
