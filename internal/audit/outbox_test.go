package audit

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"
)

// fakeSink takes records when it is up, and refuses the end of some batches after having taken them.
type fakeSink struct {
	mu     sync.Mutex
	name   string
	up     bool
	flaky  int
	got    []string
	most   int
	closed int
	block  chan struct{}
}

func (s *fakeSink) Name() string { return s.name }
func (s *fakeSink) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed++
	return nil
}

func (s *fakeSink) Send(ctx context.Context, entries []Entry) error {
	if s.block != nil {
		select {
		case <-s.block:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.up {
		return errors.New("away")
	}
	s.most = max(s.most, len(entries))
	for _, e := range entries {
		s.got = append(s.got, e.Subject)
	}
	if s.flaky--; s.flaky >= 0 {
		return errors.New("the answer was lost")
	}
	return nil
}

func (s *fakeSink) set(up bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.up = up
}

func (s *fakeSink) list() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got)
}

func caughtUp(t *testing.T, l *Log, name string) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		for _, s := range l.Sinks() {
			if s.Name == name && s.Behind == 0 && s.Error == "" {
				return
			}
		}
		if time.Now().After(end) {
			t.Fatalf("%+v", l.Sinks())
		}
	}
}

// TestOutbox: a sink that is away, loses answers, and sees the server start anew gets every record, in order; another sink that
// is stuck holds it up no more than it does Append.
func TestOutbox(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := &fakeSink{name: "hook", flaky: 3}
	stuck := &fakeSink{name: "stuck", up: true, block: make(chan struct{})}
	o := Options{Dir: dir, SegmentBytes: 32 << 10, Sinks: []Sink{s, stuck}}
	l := openLog(t, o)
	write(t, l, "acme", subjects(0, 1000))
	for end := time.Now().Add(30 * time.Second); l.Sinks()[0].Error == "" && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	if st := l.Sinks()[0]; st.Behind != 1000 || st.Error == "" {
		t.Errorf("away: %+v", st)
	}
	s.set(true)
	caughtUp(t, l, "hook")
	must(t, l.Close())
	if s.closed != 1 {
		t.Errorf("closed %d times", s.closed)
	}
	l = openLog(t, o)
	write(t, l, "acme", subjects(1000, 1500))
	caughtUp(t, l, "hook")
	if l.Sinks()[1].Behind != 1500 {
		t.Errorf("stuck: %+v", l.Sinks()[1])
	}
	got := s.list()
	if len(got) < 1500 || len(got) > 1500+3*batchRecords || s.most > batchRecords {
		t.Errorf("%d sent, %d at once", len(got), s.most)
	}
	// The first of each is in order, and a repetition is of what came just before.
	seen := map[string]bool{}
	var first []string
	for _, g := range got {
		if !seen[g] {
			seen[g] = true
			first = append(first, g)
		}
	}
	if !slices.Equal(first, subjects(0, 1500)) {
		t.Error("not all, or not in order")
	}
	close(stuck.block)
	caughtUp(t, l, "stuck")
	if !slices.Equal(stuck.list(), subjects(0, 1500)) {
		t.Error("the stuck one does not have all, each once")
	}
}
