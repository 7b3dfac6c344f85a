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

// copies is what one box does for that; nil with other drivers. Its methods may be called at the same time.
type copies struct {
	remote driver.Remote
	id     sandbox.ID
	log    *slog.Logger
	ctx    context.Context // ends with the copying
	stop   context.CancelFunc
	work   sync.WaitGroup
	slots  chan struct{} // of all boxes: pushes that nobody waits for
	kept   bool          // the sandbox's are on a volume, which outlives it: they are pulled only for who looks
	lives  func() bool   // interpreters of contexts live in the sandbox

	// turn is held by whoever changes the server's copy: by a pull, or by the API, with the push of what it changed.
	turn    chan struct{}
	showing sync.Mutex // held while the view is changed, until that is due
	pulls   rounds
	files   due // of the thread
	views   due // skills, plugins and wrappers

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

// due are the paths that the server has changed and the sandbox does not have yet.
type due struct {
	rounds rounds
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
	errNoCopies    = sandbox.Errorf(sandbox.SandboxLost, "the sandbox has ended")
	errNotAttached = sandbox.Errorf(sandbox.Unavailable, "the sandbox cannot be reached yet; try again")
)

// rounds does one thing for many who want it at the same time: each is served by a round that began after they came, and
// there is one at a time.
type rounds struct {
	mu        sync.Mutex
	now, next *round
}

type round struct {
	done chan struct{}
	err  error
}

// do waits for a round. spawn runs a function aside, or says that it does not any more.
func (s *rounds) do(ctx context.Context, spawn func(func()) bool, once func() error) error {
	s.mu.Lock()
	var r *round
	switch {
	case s.now == nil:
		r = &round{done: make(chan struct{})}
		if !spawn(func() { s.work(r, once) }) {
			s.mu.Unlock()
			return errNoCopies
		}
		s.now = r
	case s.next == nil:
		r = &round{done: make(chan struct{})}
		s.next = r
	default:
		r = s.next
	}
	s.mu.Unlock()
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return sandbox.Wrap(sandbox.Unavailable, context.Cause(ctx), "the sandbox's files were not copied in time; try again")
	}
}

// work does a round, and the ones that are wanted by then.
func (s *rounds) work(r *round, once func() error) {
	for r != nil {
		r.err = once()
		s.mu.Lock()
		s.now, s.next = s.next, nil
		next := s.now
		s.mu.Unlock()
		close(r.done)
		r = next
	}
}

// newCopies gives what a box needs; nil: its sandbox sees the server's disk.
func (r *Orchestrator) newCopies(id sandbox.ID) *copies {
	if r.remote == nil {
		return nil
	}
	c := &copies{
		remote: r.remote, id: id, log: r.o.Log.With("sandbox", string(id)), slots: r.follows,
		turn: make(chan struct{}, 1), finished: make(chan struct{}),
	}
	c.ctx, c.stop = context.WithCancel(r.ctx)
	return c
}

// spawn runs a function that the end of the copying waits for.
func (c *copies) spawn(do func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.work.Go(do)
	return true
}

// opened says that this process is attached. same: neither side has changed since they were the same.
func (c *copies) opened(same bool) {
	c.mu.Lock()
	c.open = true
	if same {
		c.pulled = pulledState{ok: true, began: c.began, clean: true}
	}
	c.mu.Unlock()
	c.follow()
}

// shut holds up all copying until the next opened: the folders are about to be others.
func (c *copies) shut() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = false
}

// begin counts in what may change files from now on; end counts it out, when all of its processes are gone.
func (c *copies) begin() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active++
	c.began++
}

func (c *copies) end() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active--
}

// same reports whether nothing ran since the last pull. clean: no context could have changed anything, either.
func (c *copies) same(clean bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.pulled
	return c.active == 0 && p.ok && p.began == c.began && (p.clean || !clean)
}

func (c *copies) takeTurn(ctx context.Context) error {
	select {
	case c.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return sandbox.Wrap(sandbox.Unavailable, context.Cause(ctx), "the sandbox's files are being copied; try again")
	}
}

func (c *copies) giveTurn() { <-c.turn }

// pullOnce is one round of pulls.
func (c *copies) pullOnce() error {
	ctx, cancel := context.WithTimeout(c.ctx, pullTime)
	defer cancel()
	if err := c.takeTurn(ctx); err != nil {
		return err
	}
	defer c.giveTurn()
	if err := c.push(ctx, &c.files); err != nil && outOfReach(err) {
		return err
	}
	c.mu.Lock()
	open, calm, began := c.open, c.active == 0, c.began
	c.mu.Unlock()
	if !open {
		return errNotAttached
	}
	clean := calm && (c.lives == nil || !c.lives())
	if _, err := c.remote.Pull(ctx, c.id); err != nil {
		return err
	}
	if calm {
		c.mu.Lock()
		c.pulled = pulledState{ok: true, began: began, clean: clean}
		c.mu.Unlock()
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

// owe notes what the server changes.
func (d *due) owe(paths ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.paths == nil {
		d.paths = map[string]bool{}
	}
	for _, p := range paths {
		d.paths[p] = true
	}
}

// any reports whether something is due, or under way.
func (d *due) any() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.paths) > 0 || d.going > 0
}

func (d *due) full() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.paths) >= maxDue
}

// take gives what is due, and counts it as under way.
func (d *due) take() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	paths := slices.Sorted(maps.Keys(d.paths))
	d.paths = nil
	d.going++
	return paths
}

// taken ends what take began. What the sandbox did not get is due again.
func (d *due) taken(again []string) {
	d.owe(again...)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.going--
}

// push gives the sandbox what is due. A path that it cannot have is not tried again: the error says so.
func (c *copies) push(ctx context.Context, d *due) error {
	c.mu.Lock()
	open := c.open
	c.mu.Unlock()
	if !open {
		if d.any() {
			return errNotAttached
		}
		return nil
	}
	paths := d.take()
	if len(paths) == 0 {
		d.taken(nil)
		return nil
	}
	err := c.remote.Push(ctx, c.id, paths...)
	if err != nil && !outOfReach(err) {
		c.log.Warn("the sandbox cannot have what the server changed", "paths", len(paths), "error", err)
	}
	if err == nil || !outOfReach(err) && len(paths) == 1 {
		d.taken(nil)
		return err
	}
	if outOfReach(err) {
		d.taken(paths)
		return err
	}
	var errs []error
	var again []string
	for _, p := range paths { // one of them is not to hold up the others
		err := c.remote.Push(ctx, c.id, p)
		if err != nil && outOfReach(err) {
			again = append(again, p)
		}
		errs = append(errs, err)
	}
	d.taken(again)
	return errors.Join(errs...)
}

// pushAll gives the sandbox all that is due; at the same time for all who want it.
func (c *copies) pushAll(ctx context.Context) error {
	var viewed, changed error
	if c.views.any() {
		viewed = c.views.rounds.do(ctx, c.spawn, func() error {
			ctx, cancel := context.WithTimeout(c.ctx, followTime)
			defer cancel()
			return c.push(ctx, &c.views)
		})
	}
	if c.files.any() {
		changed = c.files.rounds.do(ctx, c.spawn, func() error {
			ctx, cancel := context.WithTimeout(c.ctx, pullTime)
			defer cancel()
			if err := c.takeTurn(ctx); err != nil {
				return err
			}
			defer c.giveTurn()
			return c.push(ctx, &c.files)
		})
	}
	return errors.Join(viewed, changed)
}

// follow sees to it that what is due is pushed, in the background, until it is.
func (c *copies) follow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.following || c.closed || !c.open || !c.views.any() && !c.files.any() {
		return
	}
	c.following = true
	c.work.Go(c.catchUp)
}

func (c *copies) catchUp() {
	for pause := retryPause; ; {
		select {
		case c.slots <- struct{}{}:
		case <-c.ctx.Done():
			return
		}
		ctx, cancel := context.WithTimeout(c.ctx, followTime)
		err := c.pushAll(ctx)
		cancel()
		<-c.slots
		c.mu.Lock()
		done := !c.views.any() && !c.files.any()
		c.following = !done
		c.mu.Unlock()
		if done {
			return
		}
		if err == nil {
			pause = retryPause
			continue
		}
		c.log.Debug("not pushed; tried again", "error", err)
		select {
		case <-time.After(pause):
		case <-c.ctx.Done():
			return
		}
		pause = min(2*pause, lastRetryPause)
	}
}

// close ends all copying. err is what came of the last pull.
func (c *copies) close(err error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		<-c.finished
		return
	}
	c.closed = true
	c.mu.Unlock()
	c.stop()
	c.work.Wait()
	c.final = err
	close(c.finished)
}
