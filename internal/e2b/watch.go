package e2b

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/skerry-sandbox/skerry/internal/e2b/envd/filesystem"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/vpath"
)

const (
	// watchEvery is how often a folder that is watched is looked at. What comes and goes in between is not seen.
	watchEvery = 250 * time.Millisecond
	// maxWatchers bounds the watchers of a sandbox that are asked now and then; one that is not asked for watcherIdle is
	// forgotten.
	maxWatchers = 32
	watcherIdle = 10 * time.Minute
)

// seen is a folder as it was, by the paths below it.
type seen map[string]vpath.Entry

// look lists a folder for a watch.
func (a *Adapter) look(ctx context.Context, q request, at string, recursive bool) (seen, error) {
	depth := 1
	if recursive {
		depth = maxDepth
	}
	out := seen{}
	err := a.o.Files.ReadFiles(ctx, q.caller, q.thread, func(files *vpath.FS) error {
		e, err := files.Stat(at)
		if err != nil {
			return err
		}
		if !e.IsDir {
			return sandbox.Errorf(sandbox.Invalid, "path %s is not a directory", at)
		}
		l, err := files.List(ctx, at, depth, vpath.MaxEntries)
		if err == nil && l.Truncated {
			err = sandbox.Errorf(sandbox.QuotaExceeded, "more than %d entries: watch a folder of it", vpath.MaxEntries)
		}
		for _, e := range l.Items {
			out[strings.TrimPrefix(e.Path, strings.TrimSuffix(at, "/")+"/")] = e
		}
		return err
	})
	return out, err
}

// changes are the events between two looks, by name.
func changes(before, after seen) []*filesystem.FilesystemEvent {
	var out []*filesystem.FilesystemEvent
	say := func(name string, what filesystem.EventType) {
		out = append(out, &filesystem.FilesystemEvent{Name: name, Type: what})
	}
	for name := range before {
		if _, ok := after[name]; !ok {
			say(name, filesystem.EventType_EVENT_TYPE_REMOVE)
		}
	}
	for name, e := range after {
		old, there := before[name]
		switch {
		case !there:
			say(name, filesystem.EventType_EVENT_TYPE_CREATE)
			if !e.IsDir && e.Bytes > 0 {
				say(name, filesystem.EventType_EVENT_TYPE_WRITE)
			}
		case !e.IsDir && (e.Bytes != old.Bytes || !e.ModifiedAt.Equal(old.ModifiedAt)):
			say(name, filesystem.EventType_EVENT_TYPE_WRITE)
		case e.Mode != old.Mode:
			say(name, filesystem.EventType_EVENT_TYPE_CHMOD)
		}
	}
	slices.SortStableFunc(out, func(a, b *filesystem.FilesystemEvent) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// WatchDir tells what changes until the client goes, or the server stops.
func (f *filesystemService) WatchDir(ctx context.Context, r *connect.Request[filesystem.WatchDirRequest], s *connect.ServerStream[filesystem.WatchDirResponse]) error {
	q, err := f.a.enter(ctx, r.Header())
	if err != nil {
		return f.a.rpcError(ctx, err)
	}
	at, err := virtual(r.Msg.GetPath())
	if err != nil {
		return f.a.rpcError(ctx, err)
	}
	before, err := f.a.look(ctx, q, at, r.Msg.GetRecursive())
	if err != nil {
		return f.a.rpcError(ctx, err)
	}
	if err := s.Send(&filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Start{Start: &filesystem.WatchDirResponse_StartEvent{}}}); err != nil {
		return err
	}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	said := time.Now()
	for {
		select {
		case <-ctx.Done():
			return f.a.rpcError(ctx, ctx.Err())
		case <-tick.C:
		}
		after, err := f.a.look(ctx, q, at, r.Msg.GetRecursive())
		if err != nil {
			return f.a.rpcError(ctx, err)
		}
		for _, e := range changes(before, after) {
			said = time.Now()
			if err := s.Send(&filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Filesystem{Filesystem: e}}); err != nil {
				return err
			}
		}
		before = after
		if time.Since(said) > keepAlive {
			said = time.Now()
			if err := s.Send(&filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Keepalive{Keepalive: &filesystem.WatchDirResponse_KeepAlive{}}}); err != nil {
				return err
			}
		}
	}
}

// watchers are folders that clients ask about now and then. Nothing runs for them in between.
type watchers struct {
	mu sync.Mutex
	by map[string]*watcher
}

type watcher struct {
	thread    sandbox.Thread
	path      string
	recursive bool
	asked     time.Time

	mu     sync.Mutex
	before seen
}

func newWatchers() *watchers { return &watchers{by: map[string]*watcher{}} }

func (w *watchers) add(n *watcher) (id string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	own := 0
	for id, o := range w.by {
		switch {
		case time.Since(o.asked) > watcherIdle:
			delete(w.by, id)
		case o.thread == n.thread:
			own++
		}
	}
	if own >= maxWatchers {
		return "", sandbox.Errorf(sandbox.QuotaExceeded, "at most %d watchers of a sandbox", maxWatchers)
	}
	var raw [12]byte
	rand.Read(raw[:]) //nolint:errcheck // never fails
	id, n.asked = hex.EncodeToString(raw[:]), time.Now()
	w.by[id] = n
	return id, nil
}

// get gives a watcher of a sandbox, nil when there is none.
func (w *watchers) get(t sandbox.Thread, id string, remove bool) *watcher {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.by[id]
	if n == nil || n.thread != t {
		return nil
	}
	n.asked = time.Now()
	if remove {
		delete(w.by, id)
	}
	return n
}

func noWatcher(id string) error {
	return sandbox.Errorf(sandbox.NotFound, "watcher with id %.64q not found", id)
}

func (f *filesystemService) CreateWatcher(ctx context.Context, r *connect.Request[filesystem.CreateWatcherRequest]) (*connect.Response[filesystem.CreateWatcherResponse], error) {
	q, err := f.a.enter(ctx, r.Header())
	if err != nil {
		return nil, f.a.rpcError(ctx, err)
	}
	at, err := virtual(r.Msg.GetPath())
	if err != nil {
		return nil, f.a.rpcError(ctx, err)
	}
	n := &watcher{thread: threadOf(q), path: at, recursive: r.Msg.GetRecursive()}
	if n.before, err = f.a.look(ctx, q, at, n.recursive); err != nil {
		return nil, f.a.rpcError(ctx, err)
	}
	id, err := f.a.watchers.add(n)
	return connect.NewResponse(&filesystem.CreateWatcherResponse{WatcherId: id}), f.a.rpcError(ctx, err)
}

func (f *filesystemService) GetWatcherEvents(ctx context.Context, r *connect.Request[filesystem.GetWatcherEventsRequest]) (*connect.Response[filesystem.GetWatcherEventsResponse], error) {
	q, err := f.a.enter(ctx, r.Header())
	if err != nil {
		return nil, f.a.rpcError(ctx, err)
	}
	n := f.a.watchers.get(threadOf(q), r.Msg.GetWatcherId(), false)
	if n == nil {
		return nil, f.a.rpcError(ctx, noWatcher(r.Msg.GetWatcherId()))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	after, err := f.a.look(ctx, q, n.path, n.recursive)
	if err != nil {
		return nil, f.a.rpcError(ctx, err)
	}
	out := &filesystem.GetWatcherEventsResponse{Events: changes(n.before, after)}
	n.before = after
	return connect.NewResponse(out), nil
}

func (f *filesystemService) RemoveWatcher(ctx context.Context, r *connect.Request[filesystem.RemoveWatcherRequest]) (*connect.Response[filesystem.RemoveWatcherResponse], error) {
	q, err := f.a.enter(ctx, r.Header())
	if err != nil {
		return nil, f.a.rpcError(ctx, err)
	}
	if f.a.watchers.get(threadOf(q), r.Msg.GetWatcherId(), true) == nil {
		return nil, f.a.rpcError(ctx, noWatcher(r.Msg.GetWatcherId()))
	}
	return connect.NewResponse(&filesystem.RemoveWatcherResponse{}), nil
}
