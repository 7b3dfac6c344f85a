package e2b

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/skerry-sandbox/skerry/internal/api/e2b/envd/filesystem"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

const (
	// maxWatchers bounds the watchers of a sandbox that are asked now and then, maxOwnWatchers those of a user, and
	// maxAllWatchers those of a server: each holds what its folder was like. A watcher that is not asked for watcherIdle is forgotten.
	maxWatchers    = 32
	maxOwnWatchers = 128
	maxAllWatchers = 1024
	watcherIdle    = 10 * time.Minute
)

// changed are the events of E2B for changes below a folder. entry describes what is at a path now, if the client wants
// that, and is nil else.
func changed(at string, changes []paths.Change, entry func(path string) *filesystem.EntryInfo) []*filesystem.FilesystemEvent {
	var out []*filesystem.FilesystemEvent
	for _, c := range changes {
		name := strings.TrimPrefix(c.Path, strings.TrimSuffix(at, "/")+"/")
		var info *filesystem.EntryInfo
		if entry != nil && c.Change != "deleted" {
			info = entry(c.Path)
		}
		say := func(what filesystem.EventType) {
			out = append(out, &filesystem.FilesystemEvent{Name: name, Type: what, Entry: info})
		}
		switch {
		case c.Change == "deleted":
			say(filesystem.EventType_EVENT_TYPE_REMOVE)
		case c.Change == "created":
			say(filesystem.EventType_EVENT_TYPE_CREATE)
			if !c.IsDir && c.Bytes > 0 {
				say(filesystem.EventType_EVENT_TYPE_WRITE)
			}
		case c.ModeOnly:
			say(filesystem.EventType_EVENT_TYPE_CHMOD)
		default:
			say(filesystem.EventType_EVENT_TYPE_WRITE)
		}
	}
	return out
}

// events are changed, with a description of each file that is still there when the client wants it.
func (a *Adapter) events(ctx context.Context, q request, at string, changes []paths.Change, entries bool) (out []*filesystem.FilesystemEvent) {
	if !entries || len(changes) == 0 {
		return changed(at, changes, nil)
	}
	err := a.readTree(ctx, q, at, func(t paths.Tree) error {
		out = changed(at, changes, func(path string) *filesystem.EntryInfo {
			e, err := t.Stat(ctx, path)
			if err != nil {
				return nil // it is gone again
			}
			return described(t, e)
		})
		return nil
	})
	if err != nil {
		return changed(at, changes, nil) // the events count, with or without descriptions
	}
	return out
}

// WatchDir tells what changes until the client goes, its sandbox ends, or the server stops.
func (f *filesystemService) WatchDir(ctx context.Context, r *connect.Request[filesystem.WatchDirRequest], s *connect.ServerStream[filesystem.WatchDirResponse]) error {
	q, err := f.a.enter(ctx, r.Header())
	if err != nil {
		return f.a.rpcError(ctx, err)
	}
	at, err := virtual(r.Msg.GetPath())
	if err != nil {
		return f.a.rpcError(ctx, err)
	}
	q.held.End() // the request is short
	ctx, cancel := context.WithCancel(ctx)
	out := &watchStream{s: s, gone: cancel}
	var alive sync.WaitGroup
	began := false
	watch := f.a.watchListed
	if ofThread(at) {
		watch = func(ctx context.Context, q request, at string, recursive bool, emit func([]paths.Change) error) error {
			return f.a.o.Files.WatchFiles(ctx, q.caller, q.thread, at, recursive, emit)
		}
	}
	err = watch(ctx, q, at, r.Msg.GetRecursive(), func(changes []paths.Change) error {
		if !began {
			began = true
			alive.Go(func() { out.keepAlive(ctx) })
			return out.send(&filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Start{Start: &filesystem.WatchDirResponse_StartEvent{}}})
		}
		for _, e := range f.a.events(ctx, q, at, changes, r.Msg.GetIncludeEntry()) {
			if err := out.send(&filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Filesystem{Filesystem: e}}); err != nil {
				return err
			}
		}
		return nil
	})
	cancel()
	alive.Wait()
	return f.a.rpcError(ctx, err)
}

// watchStream is what a client of WatchDir gets, from the goroutines that watch and keep it alive.
type watchStream struct {
	mu   sync.Mutex
	s    *connect.ServerStream[filesystem.WatchDirResponse]
	gone context.CancelFunc
}

func (w *watchStream) send(r *filesystem.WatchDirResponse) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.s.Send(r)
}

func (w *watchStream) keepAlive(ctx context.Context) {
	tick := time.NewTicker(keepAlive)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if w.send(&filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Keepalive{Keepalive: &filesystem.WatchDirResponse_KeepAlive{}}}) != nil {
			w.gone()
			return
		}
	}
}

// watchers are folders that clients ask about now and then. Nothing runs for them in between.
type watchers struct {
	mu sync.Mutex
	by map[string]*watcher
}

type watcher struct {
	thread sandbox.Thread
	path   string
	asked  time.Time

	recursive bool
	entries   bool // its events describe the files

	mu    sync.Mutex
	watch *paths.Watch
}

// look says what has changed since the look before.
func (a *Adapter) look(ctx context.Context, q request, n *watcher) (changes []paths.Change, err error) {
	if !ofThread(n.path) {
		items, err := a.listed(ctx, q, n.path, n.recursive)
		if err != nil {
			return nil, err
		}
		return n.watch.Update(items), nil
	}
	err = a.o.Files.ReadFiles(ctx, q.caller, q.thread, func(files *paths.FS) error {
		var err error
		changes, err = n.watch.Look(ctx, files)
		return err
	})
	return changes, err
}

func newWatchers() *watchers { return &watchers{by: map[string]*watcher{}} }

func (w *watchers) add(n *watcher) (id string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	own, ofOwner := 0, 0
	for id, o := range w.by {
		if time.Since(o.asked) > watcherIdle {
			delete(w.by, id)
			continue
		}
		if o.thread.Owner == n.thread.Owner {
			ofOwner++
		}
		if o.thread == n.thread {
			own++
		}
	}
	if len(w.by) >= maxAllWatchers {
		return "", sandbox.TooManyCalls("the server has %d watchers, the most: try again later", maxAllWatchers)
	}
	if ofOwner >= maxOwnWatchers {
		return "", sandbox.TooManyCalls("at most %d watchers of a user", maxOwnWatchers)
	}
	if own >= maxWatchers {
		return "", sandbox.TooManyCalls("at most %d watchers of a sandbox", maxWatchers)
	}
	var raw [12]byte
	rand.Read(raw[:]) //nolint:errcheck // never fails
	id, n.asked = hex.EncodeToString(raw[:]), time.Now()
	w.by[id] = n
	return id, nil
}

// get returns a watcher of a sandbox, nil when there is none.
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
	n := &watcher{
		thread: threadOf(q), path: at, recursive: r.Msg.GetRecursive(), entries: r.Msg.GetIncludeEntry(), watch: paths.NewWatch(at, r.Msg.GetRecursive()),
	}
	if _, err := f.a.look(ctx, q, n); err != nil {
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
	changes, err := f.a.look(ctx, q, n)
	if err != nil {
		return nil, f.a.rpcError(ctx, err)
	}
	return connect.NewResponse(&filesystem.GetWatcherEventsResponse{Events: f.a.events(ctx, q, n.path, changes, n.entries)}), nil
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
