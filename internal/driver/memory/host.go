package memory

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/events"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/idlock"
	"github.com/skerry-sandbox/skerry/internal/platform/retry"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sandboxapi/link"
)

// Host holds the instances, as a machine does: they outlive the driver that made them. Drivers on
// the same Host stand for one server after another. Make one with NewHost.
type Host struct {
	handler    HandlerFunc
	log        *slog.Logger
	mu         sync.Mutex
	containers map[sandbox.ID]*container
	events     events.Feed
	daemons    sync.WaitGroup
	volumes    string // the folder of all volumes; "": there is none yet
	starts     idlock.Locks
}

// container is one instance. Its fields are guarded by Host.mu.
type container struct {
	spec   sandbox.Spec
	seen   sandbox.Instance
	cancel context.CancelFunc // ends the daemon
	load   driver.Load
	weight driver.Weight
	pod    *pod // its own disk; nil: it sees the server's
}

// NewHost makes a host without instances. handler may be nil: then no daemon runs in them. log may be
// nil.
func NewHost(handler HandlerFunc, log *slog.Logger) *Host {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Host{handler: handler, log: log, containers: make(map[sandbox.ID]*container)}
}

// Stop ends all daemons and waits for them. The instances are Lost then.
func (h *Host) Stop() {
	h.mu.Lock()
	ids := make([]sandbox.ID, 0, len(h.containers))
	for id := range h.containers {
		ids = append(ids, id)
	}
	h.mu.Unlock()
	for _, id := range ids {
		h.Kill(id)
	}
	h.daemons.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, b := range h.containers {
		b.pod.remove()
	}
	if h.volumes != "" {
		_ = os.RemoveAll(h.volumes)
	}
}

// Kill ends an instance as a crash would, and reports whether it was alive.
func (h *Host) Kill(id sandbox.ID) bool { return h.end(id, false) }

// KillOOM ends an instance as a lack of memory would, and reports whether it was alive.
func (h *Host) KillOOM(id sandbox.ID) bool { return h.end(id, true) }

// killedBySIGKILL is the exit code of a process that was killed.
const killedBySIGKILL = 137

func (h *Host) end(id sandbox.ID, oom bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.containers[id]
	if b == nil || b.seen.State == sandbox.Lost {
		return false
	}
	b.cancel()
	b.pod.end()
	b.seen.State, b.seen.OOMKilled, b.seen.ExitCode = sandbox.Lost, oom, killedBySIGKILL
	h.events.Put(driver.Event{ID: id, State: sandbox.Lost, OOM: oom})
	return true
}

// create makes an instance, or returns the existing one. With a pod that is its disk; used is false when there was
// one already.
func (h *Host) create(spec sandbox.Spec, p *pod) (inst sandbox.Instance, used bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b := h.containers[spec.ID]; b != nil {
		if b.seen.State == sandbox.Lost {
			return inst, false, sandbox.Errorf(sandbox.Conflict, "sandbox %s has ended and is not removed", spec.ID)
		}
		return b.view(), false, nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	b := &container{spec: spec, cancel: cancel, weight: driver.UsualWeight, pod: p, seen: sandbox.Instance{
		ID: spec.ID, State: sandbox.Running, Runtime: spec.Runtime,
		Labels: maps.Clone(spec.Labels), CreatedAt: time.Now().UTC(),
	}}
	h.containers[spec.ID] = b
	if p != nil {
		spec.Mounts = p.own(spec.Mounts) // what runs inside knows no other paths
	}
	if socket := controlSocket(spec); h.handler != nil && socket != "" {
		handler := h.handler(spec)
		h.daemons.Go(func() { h.runDaemon(ctx, spec.ID, socket, handler) })
	}
	return b.view(), true, nil
}

// controlSocket returns the host path of the socket that the daemon dials, or "".
func controlSocket(spec sandbox.Spec) string {
	for _, m := range spec.Mounts {
		if m.Target == sandbox.RunDir {
			return filepath.Join(m.Source, filepath.Base(sandbox.ControlSocket))
		}
	}
	return ""
}

// remove ends an instance and forgets it.
func (h *Host) remove(id sandbox.ID) {
	h.end(id, false)
	h.mu.Lock()
	b := h.containers[id]
	delete(h.containers, id)
	h.mu.Unlock()
	if b != nil {
		b.pod.remove()
	}
}

func (h *Host) inspect(id sandbox.ID) (sandbox.Instance, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b := h.containers[id]; b != nil {
		return b.view(), nil
	}
	return sandbox.Instance{}, sandbox.Errorf(sandbox.NotFound, "there is no sandbox %s", id)
}

func (h *Host) list(labels map[string]string) []sandbox.Instance {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]sandbox.Instance, 0, len(h.containers))
	for _, b := range h.containers {
		if driver.HasLabels(b.seen.Labels, labels) {
			out = append(out, b.view())
		}
	}
	return out
}

func (h *Host) freeze(id sandbox.ID, want sandbox.State) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.containers[id]
	switch {
	case b == nil:
		return sandbox.Errorf(sandbox.NotFound, "there is no sandbox %s", id)
	case b.seen.State == sandbox.Lost:
		return sandbox.Errorf(sandbox.Conflict, "sandbox %s is %s", id, b.seen.State)
	}
	b.seen.State = want
	return nil
}

// SetLoad says what an instance has used, as far as its driver knows.
func (h *Host) SetLoad(id sandbox.ID, load driver.Load) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b := h.containers[id]; b != nil {
		b.load = load
	}
}

// Weight is what an instance counts; 0: it is not there.
func (h *Host) Weight(id sandbox.ID) driver.Weight {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b := h.containers[id]; b != nil {
		return b.weight
	}
	return 0
}

func (h *Host) weigh(id sandbox.ID, weight driver.Weight) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b := h.containers[id]; b != nil {
		b.weight = weight
		return nil
	}
	return sandbox.Errorf(sandbox.NotFound, "there is no sandbox %s", id)
}

func (h *Host) loadOf(id sandbox.ID) (driver.Load, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b := h.containers[id]; b != nil {
		return b.load, nil
	}
	return driver.Load{}, sandbox.Errorf(sandbox.NotFound, "there is no sandbox %s", id)
}

// view returns what a caller may keep and change.
func (b *container) view() sandbox.Instance {
	out := b.seen
	out.Labels = maps.Clone(out.Labels)
	return out
}

// How long a daemon waits between attempts to reach its server: as skerry-sandboxd does.
const (
	redialFirst = 20 * time.Millisecond
	redialMost  = time.Second
)

// runDaemon plays skerry-sandboxd: it dials the server, does the handshake, serves, and dials again
// when the connection is lost, until the instance ends.
func (h *Host) runDaemon(ctx context.Context, id sandbox.ID, socket string, handler http.Handler) {
	secret := ""
	pauses := retry.Doubling(redialFirst, redialMost)
	for ctx.Err() == nil {
		conn, next, err := link.Dial(ctx, socket, secret)
		if err == nil {
			secret = next
			pauses.Reset()
			err = link.Serve(ctx, conn, handler)
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			h.log.Debug("fake daemon", "sandbox", id, "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pauses.NextBackOff()):
		}
	}
}
