package sandboxd

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
	"github.com/skerry-sandbox/skerry/internal/sandboxd/interp"
	"github.com/skerry-sandbox/skerry/internal/sandboxd/process"
)

const (
	// waitingCheck is how often those that wait are looked over.
	waitingCheck = 2 * time.Second
	// memoryShort is the part of the sandbox's memory, in percent, above which none waits.
	memoryShort = 85
)

// standbys holds interpreters that wait for the next program: of each language, from its first use
// on. An interpreter is used for one program, so nothing of one run is left for the next.
type standbys struct {
	mu      sync.Mutex
	waiting map[string][]*waiting // by language, the oldest first
	making  map[string]int
	check   *time.Timer // nil: nothing waits
	closed  bool
}

// waiting is an interpreter that was started ahead.
type waiting struct {
	key     string
	program *interp.Program
	standby *process.Standby
	since   time.Time
}

// ofOneExec are the variables that each exec has its own of.
var ofOneExec = []string{"SKERRY_EXEC_ID=", "SKERRY_EXEC_TOKEN="}

// lasting is what of a request's environment is meant for every exec.
func lasting(request []string) []string {
	return slices.DeleteFunc(slices.Clone(request), func(kv string) bool {
		return slices.ContainsFunc(ofOneExec, func(prefix string) bool { return strings.HasPrefix(kv, prefix) })
	})
}

// standbyKey tells apart what an interpreter reads when it starts.
func (s *service) standbyKey(c *sandboxv1.Code, request []string, cwd string) string {
	env := lasting(request)
	slices.Sort(env)
	home := envValue(env, "HOME")
	if home == "" {
		home = envValue(s.o.BaseEnv, "HOME")
	}
	return strings.Join([]string{c.GetJavascript(), cwd, strings.Join(env, "\x00"), s.interp.Seen(c.GetLanguage(), cwd, home)}, "\x00\x00")
}

// takeStandby gives an interpreter that waits for such a program, or nil. Those that wait for another one
// are of no use any more. One that still imports what it is to have imported stays: that may take longer than
// all that the program needs. One that only starts is as far as a new one would be, or further.
func (s *service) takeStandby(c *sandboxv1.Code, request []string, cwd string) *waiting {
	language := c.GetLanguage()
	s.standbys.mu.Lock()
	all := s.standbys.waiting[language]
	s.standbys.mu.Unlock()
	if len(all) == 0 {
		return nil
	}
	key := s.standbyKey(c, request, cwd)
	for {
		s.standbys.mu.Lock()
		all = s.standbys.waiting[language]
		if len(all) == 0 {
			s.standbys.mu.Unlock()
			return nil
		}
		w := all[0]
		if w.key == key && !w.standby.Ready() {
			s.standbys.mu.Unlock()
			return nil
		}
		s.standbys.waiting[language] = all[1:]
		s.standbys.mu.Unlock()
		if w.key == key {
			return w
		}
		s.discard(w)
	}
}

func (s *service) discard(w *waiting) {
	s.execs.Discard(w.standby)
	w.program.Cleanup()
}

// prepareStandby starts interpreters for the next programs of a language, as many as are to wait. One that
// cannot be started is done without: the program starts its own.
func (s *service) prepareStandby(c *sandboxv1.Code, request []string, cwd string) {
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

func (s *service) newStandby(c *sandboxv1.Code, request []string, cwd string) *waiting {
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
	return &waiting{key: key, program: p, standby: sb, since: time.Now()}
}

// checkStandbys ends the interpreters that have waited too long, and all of them when memory runs short: a
// program then starts its own, which costs it time, not its life.
func (s *service) checkStandbys() {
	short := s.shortOfMemory()
	var ended []*waiting
	left := 0
	s.standbys.mu.Lock()
	for language, all := range s.standbys.waiting {
		kept := slices.DeleteFunc(slices.Clone(all), func(w *waiting) bool {
			old := short || time.Since(w.since) > s.o.WaitingAge
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

func (s *service) shortOfMemory() bool {
	used, limit, ok := process.MemoryUse(s.o.Cgroups)
	return ok && used > limit/100*memoryShort
}

// close ends the looking over. Those that wait end with the execs.
func (s *standbys) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.check != nil {
		s.check.Stop()
	}
	s.closed = true
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
