package instance

import (
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Life is how far an instance is, from the first call that asks for it until its last part is removed: whether it
// runs, what runs in it, and how its execs end when it goes. The fields above mu do not change once Ready is closed.
type Life struct {
	Ready chan struct{} // closed when the start has ended, well or with Err
	Err   error
	Gone  chan struct{} // closed when the instance is out of the map
	Asked time.Time     // when its first caller did; zero: it was adopted
	Turn  Turn

	PauseMu sync.Mutex // serialises pause and resume

	mu     sync.Mutex
	info   sandbox.Info
	ending sandbox.Status // why its execs end: set before the sandbox is removed, "" while it lives
	use    Usage
	unused bool // its first exec is still to come
	loan   loan
}

// loan is the thread's files in the hands of a second instance, where sandboxes have disks of their own: they are changed in
// one sandbox at a time, so that none undoes what another one did.
type loan struct {
	template string    // of the second instance
	scripts  int       // that run there, or are about to; 0: there is no loan
	holder   *Instance // the second instance; nil: it does not begin yet
}

// Usage is what runs in an instance, and when something last did.
type Usage struct {
	Running    int // execs
	Waits      int // of them, those whose calls wait for people
	LastActive time.Time
	OverAge    bool // it is put away when nothing runs in it
}

// ErrPaused is the error of an exec that comes while the sandbox is being paused.
var ErrPaused = sandbox.Errorf(sandbox.Conflict, "the sandbox was paused just now; try again")

// maxRunning is how many execs run at once in one sandbox.
const maxRunning = 256

// Info returns what callers are told about the sandbox.
func (l *Life) Info() sandbox.Info {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.info
}

// IsReady says whether the start has ended well.
func (l *Life) IsReady() bool {
	select {
	case <-l.Ready:
		return l.Err == nil
	default:
		return false
	}
}

// End says how the execs of an instance that is going away end; the first word counts.
func (l *Life) End(s sandbox.Status) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.endsAs() == "" {
		l.ending = s
	}
}

// Ending says how the instance's execs end, "" while it lives.
func (l *Life) Ending() sandbox.Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.endsAs()
}

// endsAs is Ending for callers that hold mu.
func (l *Life) endsAs() sandbox.Status {
	if l.ending == "" && l.Turn.gaveUp() {
		return sandbox.StatusLost
	}
	return l.ending
}

// BeginStop takes an instance that is ready out of use if ok agrees. ok is asked in the same step, so that no exec comes
// in between. The instance's execs end as killed.
func (l *Life) BeginStop(ok func(Usage) bool) bool {
	if !l.IsReady() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.endsAs() != "" || !ok(l.use) {
		return false
	}
	l.ending = sandbox.StatusKilled
	l.info.State = sandbox.Stopping
	return true
}

// LastUse returns when the instance was last active.
func (l *Life) LastUse() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.use.LastActive
}

// BeginPause shuts the door for execs. done: it is paused already.
func (l *Life) BeginPause() (done bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.endsAs() != "":
		return false, sandbox.Errorf(sandbox.SandboxLost, "the sandbox ended just now")
	case l.info.State == sandbox.Paused:
		return true, nil
	case l.use.Running > 0:
		return false, sandbox.Errorf(sandbox.Conflict, "%d execs run in the sandbox, and their deadlines would go on: wait for them, or kill them", l.use.Running)
	}
	l.info.State = sandbox.Paused
	return false, nil
}

// ChangeState changes the state of an instance that is in another one.
func (l *Life) ChangeState(from, to sandbox.State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.info.State == from {
		l.info.State = to
	}
}

// MarkRunning makes the instance run.
func (l *Life) MarkRunning(took sandbox.Timings) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.info.State = sandbox.Running
	l.info.Timings = took
}

// StopAs begins to stop the instance, whatever runs in it, and reports whether this is the first to do so.
func (l *Life) StopAs(status sandbox.Status) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.endsAs() != "" {
		return false
	}
	l.ending = status
	l.info.State = sandbox.Stopping
	return true
}

// StopIdle takes the instance out of use, without ending its sandbox, if nothing runs in it.
func (l *Life) StopIdle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.endsAs() != "" || l.use.Running > 0 {
		return false
	}
	l.ending = sandbox.StatusLost
	return true
}

// MarkOverAge has the instance put away as soon as nothing runs in it.
func (l *Life) MarkOverAge() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.use.OverAge = true
}

// MarkActive notes a use.
func (l *Life) MarkActive() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.use.LastActive = time.Now()
}

// Busy reports whether an exec runs in the instance.
func (l *Life) Busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.use.Running > 0
}

// FirstUse reports whether no exec asked before.
func (l *Life) FirstUse() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := l.unused
	l.unused = false
	return first
}

// enter counts an exec in, and Leave counts it out. template is that of a second instance to which the thread's files go
// with the exec; "": they stay.
func (l *Life) enter(template string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.endsAs() != "" {
		return sandbox.Errorf(sandbox.SandboxLost, "the sandbox ended just now; try again")
	}
	if l.info.State == sandbox.Paused {
		return ErrPaused
	}
	if l.use.Running >= maxRunning {
		return sandbox.Errorf(sandbox.CapacityExceeded, "the sandbox runs %d execs, its most", maxRunning)
	}
	switch {
	case template == "" && l.loan.scripts > 0 || template != "" && l.loan.scripts > 0 && l.loan.template != template:
		return sandbox.Errorf(sandbox.Conflict, "a script runs in the thread's second sandbox, of template %q, which has the thread's files meanwhile: wait for its end, or kill it", l.loan.template)
	case template != "" && l.use.Running > l.loan.scripts:
		return sandbox.Errorf(sandbox.Conflict, "%d execs run in the thread's sandbox, and the script needs its files in a second one, of template %q: wait for them, or kill them", l.use.Running-l.loan.scripts, template)
	case template != "":
		l.loan.template = template
		l.loan.scripts++
	}
	l.use.Running++
	return nil
}

// Hold makes inst the holder of the thread's files, for a loan that goes on.
func (l *Life) Hold(inst *Instance) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loan.holder = inst
}

// EndLoan counts a script of a loan out. The last one ends the loan.
func (l *Life) EndLoan() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.loan.scripts--; l.loan.scripts <= 0 {
		l.loan = loan{}
	}
}

// holder returns the second instance that has the thread's files, or nil.
func (l *Life) holder() *Instance {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.loan.holder
}

// Leave counts an exec out.
func (l *Life) Leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.use.Running--
	l.use.LastActive = time.Now()
}

// Waiting counts the execs of an instance whose calls wait for people.
func (l *Life) Waiting(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.use.Waits += n
}

// Backdate makes the instance older than it is, and longer unused: tests of lifetimes do not wait.
func (l *Life) Backdate(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.use.LastActive = l.use.LastActive.Add(-d)
	l.info.CreatedAt = l.info.CreatedAt.Add(-d)
}
