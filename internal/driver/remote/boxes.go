package remote

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/platform/retry"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// box is a sandbox that this process knows.
type box struct {
	id    sandbox.ID
	made  made
	envd  *envd
	ended chan struct{} // closed when it is known to have ended

	// Guarded by boxes.mu:
	over     bool
	attached bool      // this process says that it is in use
	kept     time.Time // when it said so
	said     []byte    // the last of what it printed
}

// maxPrinted is how much of what a sandbox prints is kept, to say why it did not start.
const maxPrinted = 2 << 10

// boxes are the sandboxes that this process knows.
type boxes struct {
	mu   sync.Mutex
	byID map[sandbox.ID]*box
}

func (b *boxes) get(id sandbox.ID) *box {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.byID[id]
}

// put returns the box that is there, or the new one.
func (b *boxes) put(n *box) (there *box, isNew bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if old := b.byID[n.id]; old != nil && old.made.ID == n.made.ID {
		return old, false
	}
	if b.byID == nil {
		b.byID = map[sandbox.ID]*box{}
	}
	b.byID[n.id] = n
	return n, true
}

// all returns those that are known now.
func (b *boxes) all() []*box {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Values(b.byID))
}

// end notes that a sandbox has ended, and reports whether that is news.
func (b *boxes) end(x *box) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if x.over {
		return false
	}
	x.over = true
	close(x.ended)
	return true
}

func (b *boxes) isOver(x *box) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return x.over
}

// drop forgets a sandbox that is gone.
func (b *boxes) drop(x *box) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byID[x.id] == x {
		delete(b.byID, x.id)
	}
}

// printed keeps the last of what a sandbox prints.
func (b *boxes) printed(x *box, p []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	x.said = append(x.said, p...)
	x.said = x.said[max(0, len(x.said)-maxPrinted):]
}

func (b *boxes) lastWords(x *box) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(x.said)
}

// mark says whether this process uses a sandbox.
func (b *boxes) mark(x *box, attached bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	x.attached = attached
	if attached {
		x.kept = time.Time{}
	}
}

// due returns the sandboxes in use that the service has to hear of.
func (b *boxes) due(every time.Duration) []*box {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []*box
	for _, x := range b.byID {
		if x.attached && !x.over && time.Since(x.kept) >= every {
			x.kept = time.Now()
			out = append(out, x)
		}
	}
	return out
}

// ended tells the watchers that a sandbox has ended, once.
func (d *Driver) ended(x *box) {
	if d.boxes.end(x) {
		d.tunnel.Drop(x.id)
		d.feed.Put(driver.Event{ID: x.id, State: sandbox.Lost})
	}
}

// lookout sees what becomes of sandboxes.
type lookout struct{ *Driver }

// followBox reads what the sandbox's process prints until it ends. When the stream breaks, it looks what has become of it.
func (d lookout) followBox(x *box, pid uint32, s *stream) {
	pauses := retry.Doubling(pauseFirst, pauseMost)
	for {
		for s != nil {
			e, err := s.next()
			if err != nil {
				s.close()
				s = nil
				break
			}
			if e.GetEnd() != nil {
				s.close()
				d.ended(x)
				return
			}
			pauses.Reset()
			d.boxes.printed(x, append(e.GetData().GetStdout(), e.GetData().GetStderr()...))
		}
		select {
		case <-d.closing.Done():
			return
		case <-x.ended:
			return
		case <-time.After(pauses.NextBackOff()):
		}
		if d.isGone(x) {
			d.ended(x)
			return
		}
		ctx, cancel := context.WithTimeout(d.closing, askTimeout)
		s, _ = x.envd.follow(ctx, d.closing, pid) //nolint:errcheck // it is tried again
		cancel()
	}
}

// isGone reports whether the sandbox has surely ended. It may be that the service cannot be asked.
func (d lookout) isGone(x *box) bool {
	m, err := d.service.get(d.closing, x.made.ID)
	if err != nil {
		return errors.Is(err, sandbox.NotFound)
	}
	if m.State == statePaused {
		return true
	}
	pid, err := x.envd.bridge(d.closing)
	return err == nil && pid == 0
}

// look begins to look for sandboxes of others, and to say which are in use, until the driver is closed.
func (d *Driver) look() {
	d.looking.Do(func() {
		d.running.Go(func() {
			tick := time.NewTicker(d.o.LookEvery)
			defer tick.Stop()
			told := map[string]bool{} // ends of sandboxes that were never seen alive
			for {
				select {
				case <-d.closing.Done():
					return
				case <-tick.C:
				}
				lookout{d}.keepAll()
				lookout{d}.lookOnce(told)
			}
		})
	})
}

// keepAll makes the life of those longer that this process uses.
func (d lookout) keepAll() {
	for _, x := range d.boxes.due(d.o.Lifetime / 4) {
		if err := d.keep(x); err != nil && d.closing.Err() == nil {
			d.o.Log.Warn("the service was not told that a sandbox is in use", "sandbox", x.id, "error", err)
			d.boxes.mark(x, true) // again with the next look
		}
	}
}

// keep tells the service that a sandbox is in use, while no server removes it: a service may take that for a wish to have
// it again.
func (d lookout) keep(x *box) error {
	l, err := lockedfile.TryShare(d.records.path(x.id, ".lock"))
	if errors.Is(err, lockedfile.ErrBusy) {
		return nil // it is being removed
	}
	if err != nil {
		return err
	}
	defer l.Unlock() //nolint:errcheck // it ends with the file at the latest
	if d.boxes.isOver(x) || d.boxes.get(x.id) != x {
		return nil
	}
	err = d.service.keep(d.closing, x.made.ID, d.o.Lifetime)
	if errors.Is(err, sandbox.Conflict) || errors.Is(err, sandbox.NotFound) {
		return nil // the look that follows sees what has become of it
	}
	return err
}

func (d lookout) lookOnce(told map[string]bool) {
	list, err := d.service.list(d.closing, d.records.mine("", nil))
	if err != nil {
		if d.closing.Err() == nil {
			d.o.Log.Warn("the service does not tell which sandboxes there are", "error", err)
		}
		return
	}
	there := map[string]bool{}
	for _, m := range list {
		there[m.ID] = true
		id, err := idOf(m)
		if err != nil || told[m.ID] {
			continue
		}
		if x := d.boxes.get(id); x != nil && x.made.ID == m.ID {
			continue
		}
		switch state, err := d.discover(d.closing, m, false); {
		case err == nil && state == sandbox.Lost:
			told[m.ID] = true
			d.feed.Put(driver.Event{ID: id, State: sandbox.Lost})
		case err != nil && d.closing.Err() == nil:
			d.o.Log.Debug("a sandbox at the service cannot be looked at", "sandbox", id, "error", err)
		}
	}
	for id := range told {
		if !there[id] {
			delete(told, id)
		}
	}
	for _, x := range d.boxes.all() {
		if !there[x.made.ID] && d.isGone(x) { // it may have been made since the list
			d.ended(x)
			d.boxes.drop(x)
		}
	}
}

// discover finds out what state a sandbox is in that this process does not know, and follows one that runs.
func (d *Driver) discover(ctx context.Context, m made, locked bool) (sandbox.State, error) {
	id, err := idOf(m)
	if err != nil {
		return "", err
	}
	if m.State == statePaused {
		return sandbox.Lost, nil
	}
	if !locked && d.records.isStarting(id) {
		return sandbox.Starting, nil
	}
	full, err := d.service.get(ctx, m.ID) // with the token
	if errors.Is(err, sandbox.NotFound) {
		return sandbox.Lost, nil
	}
	if err != nil {
		return "", err
	}
	e := d.service.envd(full)
	pid, err := e.bridge(ctx)
	if err != nil {
		return "", err
	}
	if pid == 0 {
		if !locked && d.records.isStarting(id) {
			return sandbox.Starting, nil
		}
		return sandbox.Lost, nil
	}
	d.adopt(&box{id: id, made: full, envd: e, ended: make(chan struct{})}, pid, nil)
	return sandbox.Running, nil
}

// adopt follows a sandbox that runs.
func (d *Driver) adopt(x *box, pid uint32, s *stream) *box {
	there, isNew := d.boxes.put(x)
	if isNew {
		d.running.Go(func() { lookout{d}.followBox(x, pid, s) })
	}
	return there
}
