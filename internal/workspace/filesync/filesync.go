package filesync

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/platform/retry"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Sync copies the files of one instance; nil with other drivers. Its methods may be called at the same time.
type Sync struct {
	Remote   driver.Remote
	id       sandbox.ID
	log      *slog.Logger
	ctx      context.Context // ends with the copying
	stop     context.CancelFunc
	work     sync.WaitGroup
	slots    chan struct{} // of all instances: pushes that no caller waits for
	OnVolume bool          // the sandbox's are on a volume, which outlives it: they are pulled only for who looks
	Lives    func() bool   // interpreters of contexts live in the sandbox

	// turn is held while the server's copy is changed: by a pull, or by the API, with the push of what it changed.
	turn    chan struct{}
	Showing sync.Mutex // held while the view is changed, until that is due
	pulls   coalescer
	Files   pendingPaths // of the thread
	Views   pendingPaths // skills, plugins and wrappers

	mu        sync.Mutex
	open      bool // this process is attached, and both sides have been the same
	closed    bool
	following bool // a goroutine pushes what is due
	runs      runs

	Last lastPull
}

// runs counts what runs in the sandbox, and may change files.
type runs struct {
	active int
	began  uint64
	pulled pulledState
}

// lastPull is the pull before the sandbox is removed.
type lastPull struct {
	Done chan struct{} // closed after it
	Err  error
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
	// PullTime bounds one pull: of what a sandbox may have, over a network that is slow.
	PullTime = 2 * time.Minute
	// EndPullTime is how long an exec's end waits for its files, with all tries.
	EndPullTime = PullTime + 30*time.Second
	// UnreachableTime is how long it waits of that for a sandbox that cannot be reached.
	UnreachableTime = 20 * time.Second
	// ReadPullTime is the same for a caller who reads or changes files, who can try again.
	ReadPullTime = 30 * time.Second
	// LastPullTime and deadPullTime bound the pull before a sandbox is removed: of a living sandbox, and of
	// a sandbox that ended by itself. The latter's disk may still be there.
	LastPullTime, DeadPullTime = 20 * time.Second, 3 * time.Second
	// UpToDateTime is how long an exec waits to begin until the sandbox has what is due.
	UpToDateTime = 15 * time.Second
	// followTime bounds one push that no caller waits for.
	followTime = 10 * time.Second
	// followParallel is how many of those go on side by side. A pull that waits for a sandbox out of reach holds a place.
	followParallel = 32
	// RetryPause is between two tries, and doubles up to lastRetryPause where no caller waits.
	RetryPause, lastRetryPause = 200 * time.Millisecond, 5 * time.Second
	// MaxDue bounds the paths that wait for a sandbox out of reach.
	MaxDue = 1000
)

var (
	// ErrSyncEnded is the error of a copy that the end of the sandbox cut off.
	ErrSyncEnded   = sandbox.Errorf(sandbox.SandboxLost, "the sandbox has ended")
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
			return ErrSyncEnded
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

// work does a round, and then the rounds that were requested meanwhile.
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

// NewSlots returns the slots that all instances share.
func NewSlots() chan struct{} { return make(chan struct{}, followParallel) }

// New returns what copies the files of one sandbox until ctx ends. It shares slots with those of other sandboxes.
func New(ctx context.Context, remote driver.Remote, id sandbox.ID, slots chan struct{}, log *slog.Logger) *Sync {
	fs := &Sync{
		Remote: remote, id: id, log: log.With("sandbox", string(id)), slots: slots,
		turn: make(chan struct{}, 1), Last: lastPull{Done: make(chan struct{})},
	}
	fs.ctx, fs.stop = context.WithCancel(ctx)
	return fs
}

// Pull copies what the sandbox changed, in one round for all that want it at the same time.
func (fs *Sync) Pull(ctx context.Context) error { return fs.pulls.do(ctx, fs.spawn, fs.PullOnce) }

// Running returns how many runs may change files now.
func (fs *Sync) Running() int {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.runs.active
}

// IsOpen reports whether this process is attached and both sides have been the same.
func (fs *Sync) IsOpen() bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.open
}

// spawn runs a function that the end of the copying waits for.
func (fs *Sync) spawn(do func()) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.closed {
		return false
	}
	fs.work.Go(do)
	return true
}

// Opened says that this process is attached. same: neither side has changed since they were the same.
func (fs *Sync) Opened(same bool) {
	fs.mu.Lock()
	fs.open = true
	if same {
		fs.runs.pulled = pulledState{ok: true, began: fs.runs.began, clean: true}
	}
	fs.mu.Unlock()
	fs.Follow()
}

// Shut holds up all copying until the next opened: the folders are about to be others.
func (fs *Sync) Shut() {
	if fs == nil {
		return
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.open = false
}

// Begin counts in what may change files from now on; end counts it out, when all of its processes are gone.
func (fs *Sync) Begin() {
	if fs == nil {
		return
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.runs.active++
	fs.runs.began++
}

// End counts out what Begin counted in, once all of its processes are gone.
func (fs *Sync) End() {
	if fs == nil {
		return
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.runs.active--
}

// Same reports whether nothing ran since the last pull. clean: no context could have changed anything, either.
func (fs *Sync) Same(clean bool) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	p := fs.runs.pulled
	return fs.runs.active == 0 && p.ok && p.began == fs.runs.began && (p.clean || !clean)
}

// TakeTurn waits for the turn to change the server's copy.
func (fs *Sync) TakeTurn(ctx context.Context) error {
	select {
	case fs.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return sandbox.Wrap(sandbox.Unavailable, context.Cause(ctx), "the sandbox's files are being copied; try again")
	}
}

// GiveTurn returns the turn that TakeTurn took.
func (fs *Sync) GiveTurn() { <-fs.turn }

// PullOnce is one round of pulls.
func (fs *Sync) PullOnce() error {
	ctx, cancel := context.WithTimeout(fs.ctx, PullTime)
	defer cancel()
	if err := fs.TakeTurn(ctx); err != nil {
		return err
	}
	defer fs.GiveTurn()
	if err := fs.Push(ctx, &fs.Files); err != nil && OutOfReach(err) {
		return err
	}
	fs.mu.Lock()
	open, calm, began := fs.open, fs.runs.active == 0, fs.runs.began
	fs.mu.Unlock()
	if !open {
		return errNotAttached
	}
	clean := calm && (fs.Lives == nil || !fs.Lives())
	if _, err := fs.Remote.Pull(ctx, fs.id); err != nil {
		return err
	}
	if calm {
		fs.mu.Lock()
		fs.runs.pulled = pulledState{ok: true, began: began, clean: clean}
		fs.mu.Unlock()
	}
	return nil
}

// OutOfReach says whether it may be otherwise at the next try.
func OutOfReach(err error) bool {
	switch sandbox.KindOf(err) {
	case sandbox.Unavailable, sandbox.Timeout, sandbox.SandboxLost:
		return true
	}
	return false
}

// Add notes what the server changes.
func (pending *pendingPaths) Add(paths ...string) {
	pending.mu.Lock()
	defer pending.mu.Unlock()
	if pending.paths == nil {
		pending.paths = map[string]bool{}
	}
	for _, p := range paths {
		pending.paths[p] = true
	}
}

// Any reports whether something is due, or under way.
func (pending *pendingPaths) Any() bool {
	pending.mu.Lock()
	defer pending.mu.Unlock()
	return len(pending.paths) > 0 || pending.going > 0
}

func (pending *pendingPaths) Full() bool {
	pending.mu.Lock()
	defer pending.mu.Unlock()
	return len(pending.paths) >= MaxDue
}

// Take returns what is due, and counts it as under way.
func (pending *pendingPaths) Take() []string {
	pending.mu.Lock()
	defer pending.mu.Unlock()
	paths := slices.Sorted(maps.Keys(pending.paths))
	pending.paths = nil
	pending.going++
	return paths
}

// taken ends what take began. What the sandbox did not get is due again.
func (pending *pendingPaths) taken(again []string) {
	pending.Add(again...)
	pending.mu.Lock()
	defer pending.mu.Unlock()
	pending.going--
}

// Push sends the sandbox what is due. A path that it cannot have is not tried again: the error says so.
func (fs *Sync) Push(ctx context.Context, pending *pendingPaths) error {
	if !fs.IsOpen() {
		if pending.Any() {
			return errNotAttached
		}
		return nil
	}
	paths := pending.Take()
	if len(paths) == 0 {
		pending.taken(nil)
		return nil
	}
	err := fs.Remote.Push(ctx, fs.id, paths...)
	if err != nil && !OutOfReach(err) {
		fs.log.Warn("the sandbox cannot have what the server changed", "paths", len(paths), "error", err)
	}
	if err == nil || !OutOfReach(err) && len(paths) == 1 {
		pending.taken(nil)
		return err
	}
	if OutOfReach(err) {
		pending.taken(paths)
		return err
	}
	var errs []error
	var again []string
	for _, p := range paths { // one of them is not to hold up the others
		err := fs.Remote.Push(ctx, fs.id, p)
		if err != nil && OutOfReach(err) {
			again = append(again, p)
		}
		errs = append(errs, err)
	}
	pending.taken(again)
	return errors.Join(errs...)
}

// PushAll sends the sandbox all that is due; at the same time for all who want it.
func (fs *Sync) PushAll(ctx context.Context) error {
	var viewed, changed error
	if fs.Views.Any() {
		viewed = fs.Views.pushes.do(ctx, fs.spawn, func() error {
			ctx, cancel := context.WithTimeout(fs.ctx, followTime)
			defer cancel()
			return fs.Push(ctx, &fs.Views)
		})
	}
	if fs.Files.Any() {
		changed = fs.Files.pushes.do(ctx, fs.spawn, func() error {
			ctx, cancel := context.WithTimeout(fs.ctx, PullTime)
			defer cancel()
			if err := fs.TakeTurn(ctx); err != nil {
				return err
			}
			defer fs.GiveTurn()
			return fs.Push(ctx, &fs.Files)
		})
	}
	return errors.Join(viewed, changed)
}

// Follow sees to it that what is due is pushed, in the background, until it is.
func (fs *Sync) Follow() {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.following || fs.closed || !fs.open || !fs.Views.Any() && !fs.Files.Any() {
		return
	}
	fs.following = true
	fs.work.Go(fs.catchUp)
}

func (fs *Sync) catchUp() {
	pauses := retry.Doubling(RetryPause, lastRetryPause)
	for {
		select {
		case fs.slots <- struct{}{}:
		case <-fs.ctx.Done():
			return
		}
		ctx, cancel := context.WithTimeout(fs.ctx, followTime)
		err := fs.PushAll(ctx)
		cancel()
		<-fs.slots
		fs.mu.Lock()
		done := !fs.Views.Any() && !fs.Files.Any()
		fs.following = !done
		fs.mu.Unlock()
		if done {
			return
		}
		if err == nil {
			pauses.Reset()
			continue
		}
		fs.log.Debug("not pushed; tried again", "error", err)
		select {
		case <-time.After(pauses.NextBackOff()):
		case <-fs.ctx.Done():
			return
		}
	}
}

// Close ends all copying. err is what came of the last pull.
func (fs *Sync) Close(err error) {
	fs.mu.Lock()
	if fs.closed {
		fs.mu.Unlock()
		<-fs.Last.Done
		return
	}
	fs.closed = true
	fs.mu.Unlock()
	fs.stop()
	fs.work.Wait()
	fs.Last.Err = err
	close(fs.Last.Done)
}
