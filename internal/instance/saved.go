package instance

import (
	"maps"
	"sync"
	"time"
)

// Saved is what is saved of an instance beyond its end: its environment, and when its thread was last active.
type Saved struct {
	WriteMu sync.Mutex // serialises writes of the saved spec

	mu        sync.Mutex
	env       map[string]string // of every exec; replaced, never changed
	forgotten bool              // its template and environment are not saved
	touched   time.Time         // when the last activity was written down
}

// Env returns the variables of every exec.
func (s *Saved) Env() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.env
}

// SetEnv replaces the variables of every exec, and reports whether they are others now.
func (s *Saved) SetEnv(env map[string]string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if maps.Equal(env, s.env) {
		return false
	}
	s.env = env
	return true
}

// Forget has the instance's template and environment forgotten at its end.
func (s *Saved) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgotten = true
}

// Forgotten reports whether the thread's next instance must not be as this one.
func (s *Saved) Forgotten() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.forgotten
}

// Touch reports whether the last activity is due to be written down, which was done longer than every ago.
func (s *Saved) Touch(every time.Duration) (now time.Time, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now = time.Now()
	if due = now.Sub(s.touched) > every; due {
		s.touched = now
	}
	return now, due
}
