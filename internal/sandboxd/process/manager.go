package process

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/sandboxd/procfs"
)

// Limits of a Manager.
const (
	maxRunning   = 256
	maxKept      = 256              // ended execs
	maxKeptBytes = 64 << 20         // of their output
	keptFor      = 10 * time.Minute // after their end
	sweepEvery   = 2 * time.Second
)

// Options configure a Manager.
type Options struct {
	// Supervisor is the command line that runs Supervise. Its first word is a path.
	Supervisor []string
	// Orphans makes the Manager reap every child of this process and kill the children that it did not
	// start. This is right for PID 1, where the orphans of a killed supervisor arrive. When this process is
	// not PID 1 it becomes a sub-reaper. No other code of the process may start children then.
	Orphans bool
	// SpillRoot is the folder that spill files may be made in.
	SpillRoot string
	// OOMCounters are tried in turn; usually the variable of that name.
	OOMCounters []string
	Log         *slog.Logger
}

// Manager runs execs. Its methods may be called concurrently.
type Manager struct {
	opts    Options
	log     *slog.Logger
	wardens *wardens
	oom     procfs.OOMCounter
	left    *left

	mu       sync.Mutex
	execs    map[string]*Exec
	standbys map[*Standby]bool
	zygotes  map[*Zygote]bool
	sessions map[*Session]bool
	running  int
	ended    []*Exec // oldest first
	closed   bool

	stop chan struct{}
	wg   sync.WaitGroup
}

// New makes a Manager and starts its first supervisors. The caller closes it.
func New(opts Options) (*Manager, error) {
	if len(opts.Supervisor) == 0 || opts.SpillRoot == "" || opts.Log == nil {
		return nil, fmt.Errorf("process: Supervisor, SpillRoot and Log are required")
	}
	if opts.Orphans && os.Getpid() != 1 {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return nil, fmt.Errorf("process: sub-reaper: %w", err)
		}
	}
	m := &Manager{
		opts:     opts,
		log:      opts.Log,
		wardens:  &wardens{argv: opts.Supervisor, orphan: opts.Orphans, live: map[int]*warden{}},
		left:     &left{trees: map[string]*leftTree{}},
		oom:      procfs.OpenOOMCounter(opts.OOMCounters),
		execs:    map[string]*Exec{},
		standbys: map[*Standby]bool{},
		zygotes:  map[*Zygote]bool{},
		sessions: map[*Session]bool{},
		stop:     make(chan struct{}),
	}
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	m.wg.Go(func() {
		defer signal.Stop(children)
		m.reapLoop(children)
	})
	m.left.wardens = m.wardens
	m.wardens.wg.Go(func() { m.wardens.warm(warmSupervisors) })
	return m, nil
}

func (m *Manager) reapLoop(children <-chan os.Signal) {
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	for {
		select {
		case <-children:
			m.wardens.reap()
		case <-sweep.C:
			if n := killAll(m.wardens.orphans); n > 0 {
				m.log.Warn("killed orphans", "processes", n)
			}
			m.wardens.reap()
			m.expire(time.Now())
		case <-m.stop:
			return
		}
	}
}

// Start begins an exec and returns at once. When id is known it returns that exec, and started is
// false. Errors: ErrBusy, ErrClosed, or a request that breaks a rule.
func (m *Manager) Start(id string, req Request) (e *Exec, started bool, err error) {
	if err := req.check(); err != nil {
		return nil, false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, false, ErrClosed
	}
	if e := m.execs[id]; e != nil {
		return e, false, nil
	}
	if m.running >= maxRunning {
		return nil, false, ErrBusy
	}
	e = newExec(m, id, req)
	m.execs[id] = e
	m.running++
	m.wg.Go(func() {
		e.run()
		m.note(e)
	})
	return e, true, nil
}

// Get finds an exec, running or ended. Error: ErrNotFound.
func (m *Manager) Get(id string) (*Exec, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.execs[id]; e != nil {
		return e, nil
	}
	return nil, ErrNotFound
}

// List returns all execs that are known, in no order.
func (m *Manager) List() []*Exec {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]*Exec, 0, len(m.execs))
	for _, e := range m.execs {
		list = append(list, e)
	}
	return list
}

// Running is how many execs run.
func (m *Manager) Running() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.running
}

// Forget drops an ended exec. Errors: ErrNotFound, ErrRunning.
func (m *Manager) Forget(id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.execs[id]
	switch {
	case e == nil:
		return ErrNotFound
	case !e.Ended():
		return ErrRunning
	}
	delete(m.execs, id)
	return nil
}

// note counts an exec as ended, and drops the oldest ended ones beyond the limits.
func (m *Manager) note(e *Exec) {
	m.mu.Lock()
	m.running--
	m.ended = append(m.ended, e)
	m.mu.Unlock()
	m.expire(time.Now())
}

func (m *Manager) expire(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	kept := m.ended[:0]
	for _, e := range m.ended {
		if m.execs[e.id] == e && now.Sub(e.endedAt) < keptFor {
			kept = append(kept, e)
		} else if m.execs[e.id] == e {
			delete(m.execs, e.id)
		}
	}
	clear(m.ended[len(kept):])
	m.ended = kept
	total := 0
	for i := len(m.ended) - 1; i >= 0; i-- {
		total += m.ended[i].keptBytes
		if len(m.ended)-i > maxKept || total > maxKeptBytes && i < len(m.ended)-1 {
			for _, old := range m.ended[:i+1] {
				delete(m.execs, old.id)
			}
			m.ended = append([]*Exec(nil), m.ended[i+1:]...)
			return
		}
	}
}

// Close kills all execs, ends the supervisors and waits for both, until ctx ends.
func (m *Manager) Close(ctx context.Context) {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return
	}
	m.closed = true
	running := make([]*Exec, 0, m.running)
	for _, e := range m.execs {
		if !e.Ended() {
			running = append(running, e)
		}
	}
	standbys, sessions := m.standbys, slices.Collect(maps.Keys(m.sessions))
	m.standbys = nil
	m.mu.Unlock()
	for s := range standbys {
		m.end(s)
	}
	for _, e := range running {
		e.end(causeKill)
	}
	for _, e := range running {
		_ = e.Wait(ctx)
	}
	m.mu.Lock()
	zygotes := slices.Collect(maps.Keys(m.zygotes))
	m.mu.Unlock()
	for _, z := range zygotes {
		z.kill()
	}
	for _, s := range sessions {
		s.kill()
	}
	for _, s := range sessions {
		<-s.gone // bounded: see Session.kill
	}
	m.left.close()
	m.wardens.close(time.Second)
	close(m.stop)
	m.wg.Wait()
	m.oom.Close()
}
