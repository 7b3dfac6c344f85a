package sandboxd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
	"github.com/skerry-sandbox/skerry/internal/sandboxd/interp"
	"github.com/skerry-sandbox/skerry/internal/sandboxd/process"
	"github.com/skerry-sandbox/skerry/internal/sandboxd/procfs"
)

// standbyPool keeps interpreters ready.
type standbyPool struct{ *service }

const (
	// waitingCheck is how often the waiting interpreters are checked.
	waitingCheck = 2 * time.Second
	// memoryShort is the part of the sandbox's memory, in percent, above which none waits.
	memoryShort = 85
	// startTime is what an interpreter may take until it has imported what it is to import.
	startTime = 2 * time.Minute
	// forkTime is how long a program waits for a fork that is under way; usually it is milliseconds.
	forkTime = 500 * time.Millisecond
	// zygoteAge bounds the life of a zygote in use, in ages of an idle one: its forks have its hash seed.
	zygoteAge = 6
	// maxWarmed bounds the languages of one Warm.
	maxWarmed = 8
	// quietTime is how often it looks whether an exec runs.
	quietTime = 50 * time.Millisecond
)

// standbys holds interpreters that wait for the next program: of each language, from its first use
// on. A process is used for one program, so nothing of one run is left for the next.
type standbys struct {
	mu      sync.Mutex
	waiting map[string][]*waiting // by language, the oldest first
	making  map[string]int
	check   *time.Timer // nil: nothing waits
	closed  bool
	end     chan struct{}  // closed with it
	wg      sync.WaitGroup // of starting interpreters
}

// waiting is an interpreter that was started ahead. But for the first two fields it is guarded by standbys.mu;
// zygote is set once.
type waiting struct {
	key     string
	program *interp.Program
	standby *process.Standby // nil: not now
	zygote  *process.Zygote  // that is forked for each program; nil: standby is used once
	next    chan struct{}    // closed when the fork that is under way is there, or failed; nil: none is
	starts  bool             // it is unknown yet whether it is a zygote
	running bool             // a fork of it serves a program
	dropped bool
	began   time.Time
	used    time.Time
}

// ofOneExec are the variables that each exec has its own of, or that a sandbox which waits for its thread has not yet.
var ofOneExec = []string{"SKERRY_EXEC_ID=", "SKERRY_EXEC_TOKEN=", "SKERRY_THREAD_ID="}

// lasting is what of a request's environment is meant for every exec.
func lasting(request []string) []string {
	return slices.DeleteFunc(slices.Clone(request), func(kv string) bool {
		return slices.ContainsFunc(ofOneExec, func(prefix string) bool { return strings.HasPrefix(kv, prefix) })
	})
}

// standbyKey tells apart what an interpreter reads when it starts.
func (s standbyPool) standbyKey(c *sandboxv1.Code, request []string, cwd string) string {
	env := lasting(request)
	slices.Sort(env)
	home := envValue(env, "HOME")
	if home == "" {
		home = envValue(s.o.BaseEnv, "HOME")
	}
	return strings.Join([]string{c.GetJavascript(), cwd, strings.Join(env, "\x00"), s.interp.Seen(c.GetLanguage(), cwd, home)}, "\x00\x00")
}

// takeStandby returns an interpreter that waits for such a program, with the Standby to wake, or nil.
// Interpreters that wait for another program are of no use any more. An interpreter that still imports
// stays: that may take longer than all that the program needs. A starting one is as far as a new one would
// be, or further.
func (s standbyPool) takeStandby(c *sandboxv1.Code, request []string, cwd string) (*waiting, *process.Standby) {
	language := c.GetLanguage()
	if !s.standbys.any(language) {
		return nil, nil
	}
	key := s.standbyKey(c, request, cwd)
	for _, w := range s.standbys.unfit(language, key) {
		s.discard(w)
	}
	w, sb, next := s.standbys.take(language)
	if next == nil {
		return w, sb
	}
	late := time.NewTimer(forkTime)
	defer late.Stop()
	select {
	case <-next: // another program may have been quicker
		w, sb, _ = s.standbys.take(language)
		return w, sb
	case <-late.C:
		return nil, nil
	}
}

func (s *standbys) any(language string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting[language]) > 0
}

// unfit takes out the interpreters that were started for other programs.
func (s *standbys) unfit(language, key string) (out []*waiting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[language] = slices.DeleteFunc(slices.Clone(s.waiting[language]), func(w *waiting) bool {
		if w.key != key {
			out = append(out, w)
		}
		return w.key != key
	})
	return out
}

// take returns a ready one, or a channel that is closed when one may be ready.
func (s *standbys) take(language string) (*waiting, *process.Standby, chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var next chan struct{}
	for i, w := range s.waiting[language] {
		switch {
		case w.next != nil:
			next = w.next
		case w.standby == nil || w.starts || !w.standby.Ready():
		case w.zygote != nil:
			sb := w.standby
			w.standby, w.running, w.used = nil, true, time.Now()
			return w, sb, nil
		default:
			s.waiting[language] = slices.Delete(slices.Clone(s.waiting[language]), i, i+1)
			return w, w.standby, nil
		}
	}
	return nil, nil, next
}

// discard ends an interpreter that is in no list any more. A fork of it that serves a program goes on, and the goroutine that sees to that
// program's end removes what is left.
func (s standbyPool) discard(w *waiting) {
	s.standbys.mu.Lock()
	sb, zygote, running := w.standby, w.zygote, w.running
	w.dropped, w.standby = true, nil
	s.standbys.mu.Unlock()
	if sb != nil {
		s.execs.Discard(sb)
	}
	if zygote != nil {
		zygote.End()
	}
	if !running {
		w.program.Cleanup()
	}
}

// spoilt ends one whose folder does not take a program.
func (s standbyPool) spoilt(language string, w *waiting, sb *process.Standby) {
	s.standbys.mu.Lock()
	w.running, w.standby = false, sb
	s.standbys.mu.Unlock()
	s.standbys.remove(language, w)
	s.discard(w)
}

// afterRun makes what a program leaves behind ready for the next.
func (s standbyPool) afterRun(w *waiting, sb *process.Standby, c *sandboxv1.Code, request []string, cwd string) {
	s.standbys.mu.Lock()
	w.running = false
	again := w.zygote != nil && !w.dropped && !sb.Stale() && !c.GetCold() && slices.Contains(s.standbys.waiting[c.GetLanguage()], w)
	if again {
		w.next = make(chan struct{})
	}
	s.standbys.mu.Unlock()
	if again {
		s.fork(c.GetLanguage(), w, w.program.Renew)
	} else {
		s.standbys.remove(c.GetLanguage(), w)
		s.discard(w)
	}
	if !c.GetCold() {
		s.prepareStandby(c, request, cwd)
	}
}

func (s *standbys) remove(language string, w *waiting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[language] = slices.DeleteFunc(slices.Clone(s.waiting[language]), func(x *waiting) bool { return x == w })
}

// fork has a zygote make the process of the next program, behind what is to be done first. The caller has set w.next.
func (s standbyPool) fork(language string, w *waiting, first func() error) {
	err := first()
	var sb *process.Standby
	if err == nil {
		sb, err = w.zygote.Fork()
	}
	s.standbys.mu.Lock()
	close(w.next)
	w.next = nil
	kept := err == nil && !w.dropped
	if kept {
		w.standby = sb
	}
	s.standbys.mu.Unlock()
	if kept {
		return
	}
	if err != nil {
		s.o.Log.Info("the interpreter that is forked is lost", "language", language, "error", err)
	} else {
		s.execs.Discard(sb)
	}
	s.standbys.remove(language, w)
	s.discard(w)
}

// prepareStandby starts interpreters for the next programs of a language, as many as are to wait. An interpreter that
// cannot be started is done without: the program starts its own.
func (s standbyPool) prepareStandby(c *sandboxv1.Code, request []string, cwd string) {
	language, most := c.GetLanguage(), min(max(int(c.GetWaiting()), 1), sandbox.MaxWarm)
	for !s.shortOfMemory() {
		s.standbys.mu.Lock()
		enough := len(s.standbys.waiting[language])+s.standbys.making[language] >= most
		if !enough {
			s.standbys.making[language]++
		}
		s.standbys.mu.Unlock()
		if enough {
			return
		}
		w := s.newStandby(c, lasting(request), cwd)
		s.standbys.mu.Lock()
		s.standbys.making[language]--
		kept := w != nil && !s.standbys.closed
		if kept {
			s.standbys.waiting[language] = append(s.standbys.waiting[language], w)
			if s.standbys.check == nil {
				s.standbys.check = time.AfterFunc(waitingCheck, s.checkStandbys)
			}
			if w.starts {
				sb := w.standby
				s.standbys.wg.Go(func() { s.settle(language, w, sb) })
			}
		}
		s.standbys.mu.Unlock()
		if w != nil && !kept {
			s.discard(w)
		}
		if !kept {
			return
		}
	}
}

// settle waits until a starting one says what it is. A zygote is forked at once.
func (s standbyPool) settle(language string, w *waiting, sb *process.Standby) {
	z, err := s.execs.Zygote(sb, startTime)
	s.standbys.mu.Lock()
	w.starts, w.zygote = false, z
	if z != nil {
		w.standby, w.next = nil, make(chan struct{})
	}
	s.standbys.mu.Unlock()
	switch {
	case err != nil:
		s.standbys.remove(language, w)
		s.discard(w)
	case z != nil:
		s.fork(language, w, func() error { return nil })
	}
}

func (s standbyPool) newStandby(c *sandboxv1.Code, request []string, cwd string) *waiting {
	key := s.standbyKey(c, request, cwd) // before it starts: what changes meanwhile shows
	p, err := s.interp.Ahead(c.GetLanguage(), cwd, choice(c), c.GetPreload())
	if err != nil || p == nil {
		return nil
	}
	env := append(mergeEnv(s.o.BaseEnv, request, cwd, p), p.AheadEnv...)
	sb, err := s.execs.Standby(process.Request{Argv: p.Argv, Env: env, Cwd: cwd, SaysReady: p.SaysReady})
	if err != nil {
		p.Cleanup()
		return nil
	}
	now := time.Now()
	return &waiting{key: key, program: p, standby: sb, starts: p.SaysReady, began: now, used: now}
}

// Warm starts interpreters ahead of the first program.
func (s *service) Warm(_ context.Context, req *connect.Request[sandboxv1.WarmRequest]) (*connect.Response[sandboxv1.WarmResponse], error) {
	m := req.Msg
	if len(m.GetCode()) > maxWarmed {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("%d languages, at most %d", len(m.GetCode()), maxWarmed))
	}
	cwd := m.GetCwd()
	if cwd == "" {
		cwd = s.o.WorkspaceDir
	}
	s.standbys.mu.Lock()
	defer s.standbys.mu.Unlock()
	if s.standbys.closed {
		return nil, execError(process.ErrClosed)
	}
	s.standbys.wg.Go(func() { standbyPool{s}.warm(m.GetCode(), m.GetEnv(), cwd) })
	return connect.NewResponse(&sandboxv1.WarmResponse{}), nil
}

// warm waits for a moment in which no exec runs: the first one is not to share the CPU with what may help the second.
func (s standbyPool) warm(code []*sandboxv1.Code, env []string, cwd string) {
	quiet := time.NewTicker(quietTime)
	defer quiet.Stop()
	for late := time.Now().Add(startTime); time.Now().Before(late); {
		select {
		case <-quiet.C:
		case <-s.standbys.end:
			return
		}
		if s.execs.Running() == 0 {
			break
		}
	}
	for _, c := range code {
		for _, w := range s.standbys.unfit(c.GetLanguage(), s.standbyKey(c, env, cwd)) {
			s.discard(w)
		}
		s.prepareStandby(c, env, cwd)
	}
}

func (s *standbys) status() (list []*sandboxv1.InterpreterStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for language, all := range s.waiting {
		for _, w := range all {
			i := &sandboxv1.InterpreterStatus{Language: language, Starts: w.starts, Forks: w.zygote != nil}
			switch {
			case w.zygote != nil:
				i.MemoryBytes = w.zygote.Memory()
			case w.standby != nil:
				i.MemoryBytes = w.standby.Memory()
			}
			list = append(list, i)
		}
	}
	slices.SortFunc(list, func(a, b *sandboxv1.InterpreterStatus) int { return strings.Compare(a.GetLanguage(), b.GetLanguage()) })
	return list
}

// checkStandbys ends the interpreters that have waited too long, and all of them when memory runs short: a
// program then starts its own, which costs it time, not its life.
func (s standbyPool) checkStandbys() {
	short := s.shortOfMemory()
	var ended []*waiting
	left := 0
	s.standbys.mu.Lock()
	for language, all := range s.standbys.waiting {
		kept := slices.DeleteFunc(slices.Clone(all), func(w *waiting) bool {
			old := short || !w.running && time.Since(w.used) > s.o.WaitingAge || time.Since(w.began) > zygoteAge*s.o.WaitingAge
			old = old || w.zygote != nil && !w.running && !w.zygote.Alive()
			if old {
				ended = append(ended, w)
			}
			return old
		})
		s.standbys.waiting[language] = kept
		left += len(kept)
	}
	s.standbys.check = nil
	if left > 0 && !s.standbys.closed {
		s.standbys.check = time.AfterFunc(waitingCheck, s.checkStandbys)
	}
	s.standbys.mu.Unlock()
	for _, w := range ended {
		s.discard(w)
	}
}

func (s standbyPool) shortOfMemory() bool {
	used, limit, ok := procfs.MemoryUse(s.o.Cgroups)
	return ok && used > limit/100*memoryShort
}

// close ends the checks. Waiting interpreters end with the execs, and so do starting ones.
func (s *standbys) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.check != nil {
		s.check.Stop()
	}
	if !s.closed {
		s.closed = true
		close(s.end)
	}
}

// wakeText is what a Standby of package interp is woken with.
func wakeText(env []string) []byte {
	var b strings.Builder
	for _, kv := range env {
		b.WriteString(kv)
		b.WriteByte(0)
	}
	return []byte(b.String())
}
