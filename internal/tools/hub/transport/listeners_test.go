package transport

import (
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestWatchersDoNotMix: on a link of many users a log message outside all streams reaches no user.
func TestWatchersDoNotMix(t *testing.T) {
	t.Parallel()
	l := NewListeners(slog.New(slog.DiscardHandler), false)
	var heard int
	a := l.Add(sandbox.ToolWatch{Log: func(sandbox.ToolLog) { heard++ }})
	b := l.Add(sandbox.ToolWatch{})
	l.message([]byte(`{"level":"info","data":"secret of b"}`), nil)
	l.message([]byte(`{"level":"info","data":"on b's stream"}`), &Capture{Listener: b})
	l.message([]byte(`{"level":"info","data":"on another stream"}`), &Capture{})
	l.Remove(b)
	l.message([]byte(`{"level":"info","data":"a is alone"}`), nil)
	l.shared = true
	l.message([]byte(`{"level":"info","data":"perhaps of an earlier call of b"}`), nil)
	l.Remove(a)
	l.message([]byte(`{"level":"info","data":"too late"}`), &Capture{Listener: a})
	if heard != 1 {
		t.Errorf("%d messages", heard)
	}
}

// TestSlowListener: a server that talks faster than its listener hears loses the oldest sayings only.
func TestSlowListener(t *testing.T) {
	t.Parallel()
	l := NewListeners(slog.New(slog.DiscardHandler), false)
	var mu sync.Mutex
	var got []float64
	hold := make(chan struct{})
	c := l.Add(sandbox.ToolWatch{Progress: func(p sandbox.ToolProgress) {
		<-hold
		mu.Lock()
		defer mu.Unlock()
		got = append(got, p.Progress)
	}})
	const n = 5000
	for i := range n {
		l.progress(fmt.Appendf(nil, `{"progressToken":%q,"progress":%d}`, c.Token, i))
	}
	close(hold)
	l.Remove(c)
	if len(got) > 2*maxSayings+1 || got[len(got)-1] != n-1 {
		t.Errorf("%d sayings, the last is %v", len(got), got[len(got)-1])
	}
}
