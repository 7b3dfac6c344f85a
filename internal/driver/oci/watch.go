package oci

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/cgroup"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	// scanEvery is how often a watch looks for sandboxes that it does not hold a handle of: those made
	// by others since. Twice within the second that the contract allows.
	scanEvery = 500 * time.Millisecond
	// eventBuffer lets a watch go on while its reader is busy with a burst.
	eventBuffer = 64
)

// Watch implements driver.Driver. It holds a handle (pidfd) of the PID 1 of each sandbox, which
// becomes readable the moment that the process ends.
func (d *Driver) Watch(ctx context.Context) (<-chan driver.Event, error) {
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "sandboxes cannot be watched")
	}
	ctx, cancel := context.WithCancel(ctx)
	stopWithDriver := context.AfterFunc(d.closing, cancel)
	w := &watch{d: d, wake: wake, handles: make(map[sandbox.ID]int), ended: make(map[sandbox.ID]bool), events: make(chan driver.Event, eventBuffer)}
	// What has ended already is for List to tell.
	if err := w.scan(ctx, false); err != nil {
		cancel()
		stopWithDriver()
		w.close()
		return nil, err
	}
	go func() {
		defer close(w.events)
		defer w.close()
		defer cancel()
		defer stopWithDriver()
		w.run(ctx)
	}()
	return w.events, nil
}

// watch is one call of Watch. Only its goroutine touches it.
type watch struct {
	d       *Driver
	wake    int                 // eventfd, written when ctx ends
	handles map[sandbox.ID]int  // pidfds of what runs
	ended   map[sandbox.ID]bool // what was reported, or had ended before; until its bundle is gone
	events  chan driver.Event
}

func (w *watch) close() {
	for _, fd := range w.handles {
		_ = unix.Close(fd)
	}
	_ = unix.Close(w.wake)
}

func (w *watch) run(ctx context.Context) {
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		_, _ = unix.Write(w.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	})
	defer func() {
		if !stop() {
			<-done // the descriptor must not be closed under the write
		}
	}()
	for next := time.Now().Add(scanEvery); ctx.Err() == nil; {
		w.wait(ctx, time.Until(next))
		if !time.Now().Before(next) {
			if err := w.scan(ctx, true); err != nil {
				w.d.log.Warn("looking for new sandboxes failed", "error", err)
			}
			next = time.Now().Add(scanEvery)
		}
	}
}

// wait blocks until a sandbox ends, ctx ends or the time is over, and reports what ended.
func (w *watch) wait(ctx context.Context, limit time.Duration) {
	fds := make([]unix.PollFd, 1, 1+len(w.handles))
	ids := make([]sandbox.ID, 1, 1+len(w.handles))
	fds[0] = unix.PollFd{Fd: int32(w.wake), Events: unix.POLLIN} //nolint:gosec // descriptors are small
	for id, fd := range w.handles {
		fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}) //nolint:gosec // descriptors are small
		ids = append(ids, id)
	}
	millis := max(0, int(limit.Milliseconds())+1)
	if n, err := unix.Poll(fds, millis); n <= 0 || err != nil {
		return // the time is over, or a signal came: the loop looks again
	}
	for i, fd := range fds {
		if i > 0 && fd.Revents != 0 {
			w.report(ctx, ids[i])
		}
	}
}

// scan opens handles of new sandboxes, and closes those of removed ones. With report, it reports a sandbox
// that ended before its handle was open.
func (w *watch) scan(ctx context.Context, report bool) error {
	ids, err := bundleIDs(w.d.bundles())
	if err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the records of sandboxes cannot be read")
	}
	there := make(map[sandbox.ID]bool, len(ids))
	for _, id := range ids {
		there[id] = true
		if _, held := w.handles[id]; held || w.ended[id] {
			continue
		}
		fd, _, err := removal{w.d}.openInit(id)
		switch {
		case err == nil:
			w.handles[id] = fd
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, errNoPID):
			// Still starting, or just removed.
		case report:
			w.report(ctx, id)
		default:
			w.ended[id] = true
		}
	}
	for id := range w.handles {
		if !there[id] {
			w.report(ctx, id)
		}
	}
	for id := range w.ended {
		if !there[id] {
			delete(w.ended, id)
		}
	}
	return nil
}

func (w *watch) report(ctx context.Context, id sandbox.ID) {
	if fd, held := w.handles[id]; held {
		_ = unix.Close(fd)
		delete(w.handles, id)
	}
	w.ended[id] = true
	select {
	case w.events <- driver.Event{ID: id, State: sandbox.Lost, OOM: cgroup.OOMKilled(w.d.cgroupPath(id))}:
	case <-ctx.Done():
	}
}
