package orchestrator

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Where a sandbox does not see the disk of the server (driver.Remote), the server's folders of its thread and the sandbox's
// are copies of each other. Two rules make them one for those who look:
//
//   - What the sandbox changed is pulled before anybody is told of the end of what changed it, and before the server
//     reads or changes the files.
//   - What the server changed is due until it is pushed: before anything is pulled, which would undo it, and before
//     anything begins to run, which would miss it.
//
// So the server's copy is that of the last end that was told. It is what is read when there is no sandbox, and what the next one
// begins with.

// fileSync copies the files of one instance; nil with other drivers. Its methods may be called at the same time.
type fileSync struct {
	remote   driver.Remote
	id       sandbox.ID
	log      *slog.Logger
	ctx      context.Context // ends with the copying
	stop     context.CancelFunc
	work     sync.WaitGroup
	slots    chan struct{} // of all instances: pushes that nobody waits for
	onVolume bool          // the sandbox's are on a volume, which outlives it: they are pulled only for who looks
	lives    func() bool   // interpreters of contexts live in the sandbox

	// turn is held by whoever changes the server's copy: by a pull, or by the API, with the push of what it changed.
	turn    chan struct{}
	showing sync.Mutex // held while the view is changed, until that is due
	pulls   coalescer
	files   pendingPaths // of the thread
	views   pendingPaths // skills, plugins and wrappers

	mu        sync.Mutex
	open      bool // this process is attached, and both sides have been the same
	closed    bool
	following bool // a goroutine pushes what is due
	active    int  // what runs, and may change files
	began     uint64
	pulled    pulledState

	finished chan struct{} // closed after the last pull
	final    error         // what came of it
}

// pulledState is how things were when the last pull began that found nothing running.
type pulledState struct {
	ok    bool
	began uint64
	clean bool // no contexts lived, either
}

// pendingPaths are the paths that the server has changed and the sandbox does not have yet.
type pendingPaths struct {
	pushes coalescer
	mu     sync.Mutex
	paths  map[string]bool
	going  int // pushes that are under way
}

const (
	// pullTime bounds one pull: of what a sandbox may have, over a network that is slow.
	pullTime = 2 * time.Minute
	// endPullTime is how long an exec's end waits for its files, with all tries.
	endPullTime = pullTime + 30*time.Second
	// unreachableTime is how long it waits of that for a sandbox that cannot be reached.
	unreachableTime = 20 * time.Second
	// readPullTime is the same for somebody who reads or changes files, who can try again.
	readPullTime = 30 * time.Second
	// lastPullTime and deadPullTime bound the pull before a sandbox is removed, one that lives, and one that ended by
	// itself: its disk may still be there.
	lastPullTime, deadPullTime = 20 * time.Second, 3 * time.Second
	// upToDateTime is how long an exec waits to begin until the sandbox has what is due.
	upToDateTime = 15 * time.Second
	// followTime bounds one push that nobody waits for.
	followTime = 10 * time.Second
	// followParallel is how many of those go on side by side. One that waits for a sandbox out of reach holds a place.
	followParallel = 32
	// retryPause is between two tries, and doubles up to lastRetryPause where nobody waits.
	retryPause, lastRetryPause = 200 * time.Millisecond, 5 * time.Second
	// maxDue bounds the paths that wait for a sandbox out of reach.
	maxDue = 1000
)

var (
	errSyncEnded   = sandbox.Errorf(sandbox.SandboxLost, "the sandbox has ended")
	errNotAttached = sandbox.Errorf(sandbox.Unavailable, "the sandbox cannot be reached yet; try again")
)

// coalescer does one thing for many who want it at the same time: each is served by a round that began after they came, and
// there is one at a time.
type coalescer struct {
	mu        sync.Mutex
	now, next *round
}

type round struct {
	done chan struct{}
	err  error
}

// do waits for a round. spawn runs a function aside, or says that it does not any more.
func (co *coalescer) do(ctx context.Context, spawn func(func()) bool, once func() error) error {
	co.mu.Lock()
	var r *round
	switch {
	case co.now == nil:
		r = &round{done: make(chan struct{})}
		if !spawn(func() { co.work(r, once) }) {
			co.mu.Unlock()
			return errSyncEnded
		}
		co.now = r
	case co.next == nil:
		r = &round{done: make(chan struct{})}
		co.next = r
	default:
		r = co.next
	}
	co.mu.Unlock()
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return sandbox.Wrap(sandbox.Unavailable, context.Cause(ctx), "the sandbox's files were not copied in time; try again")
	}
}

// work does a round, and the ones that are wanted by then.
func (co *coalescer) work(r *round, once func() error) {
	for r != nil {
		r.err = once()
		co.mu.Lock()
		co.now, co.next = co.next, nil
		next := co.now
		co.mu.Unlock()
		close(r.done)
		r = next
	}
}

// newFileSync returns nil when the driver shares the server's disk.
func (r *Orchestrator) newFileSync(id sandbox.ID) *fileSync {
	if r.remote == nil {
		return nil
	}
	fs := &fileSync{
		remote: r.remote, id: id, log: r.o.Log.With("sandbox", string(id)), slots: r.follows,
		turn: make(chan struct{}, 1), finished: make(chan struct{}),
	}
	fs.ctx, fs.stop = context.WithCancel(r.ctx)
	return fs
}

// spawn runs a function that the end of the copying waits for.
func (fs *fileSync) spawn(do func()) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.closed {
		return false
	}
	fs.work.Go(do)
	return true
}

// opened says that this process is attached. same: neither side has changed since they were the same.
func (fs *fileSync) opened(same bool) {
	fs.mu.Lock()
	fs.open = true
	if same {
		fs.pulled = pulledState{ok: true, began: fs.began, clean: true}
	}
	fs.mu.Unlock()
	fs.follow()
}

// shut holds up all copying until the next opened: the folders are about to be others.
func (fs *fileSync) shut() {
	if fs == nil {
		return
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.open = false
}

// begin counts in what may change files from now on; end counts it out, when all of its processes are gone.
func (fs *fileSync) begin() {
	if fs == nil {
		return
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.active++
	fs.began++
}

func (fs *fileSync) end() {
	if fs == nil {
		return
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.active--
}

// same reports whether nothing ran since the last pull. clean: no context could have changed anything, either.
func (fs *fileSync) same(clean bool) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	p := fs.pulled
	return fs.active == 0 && p.ok && p.began == fs.began && (p.clean || !clean)
}

func (fs *fileSync) takeTurn(ctx context.Context) error {
	select {
	case fs.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return sandbox.Wrap(sandbox.Unavailable, context.Cause(ctx), "the sandbox's files are being copied; try again")
	}
}

func (fs *fileSync) giveTurn() { <-fs.turn }

// pullOnce is one round of pulls.
func (fs *fileSync) pullOnce() error {
	ctx, cancel := context.WithTimeout(fs.ctx, pullTime)
	defer cancel()
	if err := fs.takeTurn(ctx); err != nil {
		return err
	}
	defer fs.giveTurn()
	if err := fs.push(ctx, &fs.files); err != nil && outOfReach(err) {
		return err
	}
	fs.mu.Lock()
	open, calm, began := fs.open, fs.active == 0, fs.began
	fs.mu.Unlock()
	if !open {
		return errNotAttached
	}
	clean := calm && (fs.lives == nil || !fs.lives())
	if _, err := fs.remote.Pull(ctx, fs.id); err != nil {
		return err
	}
	if calm {
		fs.mu.Lock()
		fs.pulled = pulledState{ok: true, began: began, clean: clean}
		fs.mu.Unlock()
	}
	return nil
}

// outOfReach says whether it may be otherwise at the next try.
func outOfReach(err error) bool {
	switch sandbox.KindOf(err) {
	case sandbox.Unavailable, sandbox.Timeout, sandbox.SandboxLost:
		return true
	}
	return false
}

// add notes what the server changes.
func (pending *pendingPaths) add(paths ...string) {
	pending.mu.Lock()
	defer pending.mu.Unlock()
	if pending.paths == nil {
		pending.paths = map[string]bool{}
	}
	for _, p := range paths {
		pending.paths[p] = true
	}
}

// any reports whether something is due, or under way.
func (pending *pendingPaths) any() bool {
	pending.mu.Lock()
	defer pending.mu.Unlock()
	return len(pending.paths) > 0 || pending.going > 0
}

func (pending *pendingPaths) full() bool {
	pending.mu.Lock()
	defer pending.mu.Unlock()
	return len(pending.paths) >= maxDue
}

// take returns what is due, and counts it as under way.
func (pending *pendingPaths) take() []string {
	pending.mu.Lock()
	defer pending.mu.Unlock()
	paths := slices.Sorted(maps.Keys(pending.paths))
	pending.paths = nil
	pending.going++
	return paths
}

// taken ends what take began. What the sandbox did not get is due again.
func (pending *pendingPaths) taken(again []string) {
	pending.add(again...)
	pending.mu.Lock()
	defer pending.mu.Unlock()
	pending.going--
}

// push sends the sandbox what is due. A path that it cannot have is not tried again: the error says so.
func (fs *fileSync) push(ctx context.Context, pending *pendingPaths) error {
	fs.mu.Lock()
	open := fs.open
	fs.mu.Unlock()
	if !open {
		if pending.any() {
			return errNotAttached
		}
		return nil
	}
	paths := pending.take()
	if len(paths) == 0 {
		pending.taken(nil)
		return nil
	}
	err := fs.remote.Push(ctx, fs.id, paths...)
	if err != nil && !outOfReach(err) {
		fs.log.Warn("the sandbox cannot have what the server changed", "paths", len(paths), "error", err)
	}
	if err == nil || !outOfReach(err) && len(paths) == 1 {
		pending.taken(nil)
		return err
	}
	if outOfReach(err) {
		pending.taken(paths)
		return err
	}
	var errs []error
	var again []string
	for _, p := range paths { // one of them is not to hold up the others
		err := fs.remote.Push(ctx, fs.id, p)
		if err != nil && outOfReach(err) {
			again = append(again, p)
		}
		errs = append(errs, err)
	}
	pending.taken(again)
	return errors.Join(errs...)
}

// pushAll sends the sandbox all that is due; at the same time for all who want it.
func (fs *fileSync) pushAll(ctx context.Context) error {
	var viewed, changed error
	if fs.views.any() {
		viewed = fs.views.pushes.do(ctx, fs.spawn, func() error {
			ctx, cancel := context.WithTimeout(fs.ctx, followTime)
			defer cancel()
			return fs.push(ctx, &fs.views)
		})
	}
	if fs.files.any() {
		changed = fs.files.pushes.do(ctx, fs.spawn, func() error {
			ctx, cancel := context.WithTimeout(fs.ctx, pullTime)
			defer cancel()
			if err := fs.takeTurn(ctx); err != nil {
				return err
			}
			defer fs.giveTurn()
			return fs.push(ctx, &fs.files)
		})
	}
	return errors.Join(viewed, changed)
}

// follow sees to it that what is due is pushed, in the background, until it is.
func (fs *fileSync) follow() {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.following || fs.closed || !fs.open || !fs.views.any() && !fs.files.any() {
		return
	}
	fs.following = true
	fs.work.Go(fs.catchUp)
}

func (fs *fileSync) catchUp() {
	for pause := retryPause; ; {
		select {
		case fs.slots <- struct{}{}:
		case <-fs.ctx.Done():
			return
		}
		ctx, cancel := context.WithTimeout(fs.ctx, followTime)
		err := fs.pushAll(ctx)
		cancel()
		<-fs.slots
		fs.mu.Lock()
		done := !fs.views.any() && !fs.files.any()
		fs.following = !done
		fs.mu.Unlock()
		if done {
			return
		}
		if err == nil {
			pause = retryPause
			continue
		}
		fs.log.Debug("not pushed; tried again", "error", err)
		select {
		case <-time.After(pause):
		case <-fs.ctx.Done():
			return
		}
		pause = min(2*pause, lastRetryPause)
	}
}

// close ends all copying. err is what came of the last pull.
func (fs *fileSync) close(err error) {
	fs.mu.Lock()
	if fs.closed {
		fs.mu.Unlock()
		<-fs.finished
		return
	}
	fs.closed = true
	fs.mu.Unlock()
	fs.stop()
	fs.work.Wait()
	fs.final = err
	close(fs.finished)
}
