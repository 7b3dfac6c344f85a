package sandboxd

import (
	"slices"
	"strings"
	"sync"

	"github.com/skerry-sandbox/skerry/internal/sandboxd/interp"
	"github.com/skerry-sandbox/skerry/internal/sandboxd/process"
)

// standbys holds interpreters that wait for the next program: one for a language, from its first use
// on. An interpreter is used for one program, so nothing of one run is left for the next.
type standbys struct {
	mu      sync.Mutex
	waiting map[string]*waiting // by language
	making  map[string]bool
}

// waiting is an interpreter that was started ahead.
type waiting struct {
	key     string
	program *interp.Program
	standby *process.Standby
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
func standbyKey(request []string, cwd string) string {
	env := lasting(request)
	slices.Sort(env)
	return cwd + "\x00" + strings.Join(env, "\x00")
}

// takeStandby gives the interpreter that waits for such a program, or nil.
func (s *service) takeStandby(language string, request []string, cwd string) *waiting {
	s.standbys.mu.Lock()
	w := s.standbys.waiting[language]
	delete(s.standbys.waiting, language)
	s.standbys.mu.Unlock()
	if w != nil && w.key != standbyKey(request, cwd) {
		s.discard(w)
		return nil
	}
	return w
}

func (s *service) discard(w *waiting) {
	s.execs.Discard(w.standby)
	w.program.Cleanup()
}

// prepareStandby starts the interpreter for the next program of a language. One that cannot be
// started is done without: the program starts its own.
func (s *service) prepareStandby(language string, preload, request []string, cwd string) {
	s.standbys.mu.Lock()
	enough := s.standbys.waiting[language] != nil || s.standbys.making[language]
	if !enough {
		s.standbys.making[language] = true
	}
	s.standbys.mu.Unlock()
	if enough {
		return
	}
	w := s.newStandby(language, preload, lasting(request), cwd)
	s.standbys.mu.Lock()
	delete(s.standbys.making, language)
	if w != nil {
		s.standbys.waiting[language] = w
	}
	s.standbys.mu.Unlock()
}

func (s *service) newStandby(language string, preload, request []string, cwd string) *waiting {
	p, err := s.interp.Ahead(language, cwd)
	if err != nil || p == nil {
		return nil
	}
	env := append(mergeEnv(s.o.BaseEnv, request, cwd, p), interp.StandbyEnv+"=3", interp.PreloadEnv+"="+strings.Join(preload, ","))
	sb, err := s.execs.Standby(process.Request{Argv: p.Argv, Env: env, Cwd: cwd})
	if err != nil {
		p.Cleanup()
		return nil
	}
	return &waiting{key: standbyKey(request, cwd), program: p, standby: sb}
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
