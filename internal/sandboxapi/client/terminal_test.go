package client

import (
	"errors"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
)

// TestTerminalEvents: what a terminal shows has gaps and no bound, but goes forward only.
func TestTerminalEvents(t *testing.T) {
	t.Parallel()
	req := &sandboxv1.RunRequest{ExecId: "x", MaxOutputBytes: 1000, Terminal: &sandboxv1.TerminalSize{Cols: 80, Rows: 24}}
	h := &hostile{events: []*sandboxv1.Event{started(1), output(2, 900), output(7, 900), exit(8)}}
	c, _ := h.serve(t)
	var n []uint64
	if _, err := c.Run(t.Context(), req, func(e *sandboxv1.Event) error { n = append(n, e.GetN()); return nil }); err != nil || len(n) != 4 {
		t.Errorf("%v, %v", n, err)
	}
	for name, events := range map[string][]*sandboxv1.Event{
		"a repetition":      {started(1), output(2, 1), output(2, 1)},
		"backwards":         {started(1), output(9, 1), output(3, 1)},
		"started later":     {output(1, 1), started(5)},
		"a chunk too large": {started(1), output(2, maxChunk+1)},
		"stderr":            {started(1), onStderr(output(2, 1)), exit(3)},
	} {
		h := &hostile{events: events}
		c, _ := h.serve(t)
		if _, err := c.Run(t.Context(), req, ignore); !errors.Is(err, ErrContract) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestResizeOfAnOlderDaemon: a daemon without terminals says so.
func TestResizeOfAnOlderDaemon(t *testing.T) {
	t.Parallel()
	h := &hostile{}
	c, _ := h.serve(t)
	if err := c.Resize(t.Context(), "x", sandbox.TerminalSize{Cols: 1, Rows: 1}); !errors.Is(err, sandbox.NotSupported) {
		t.Error(err)
	}
}

func onStderr(e *sandboxv1.Event) *sandboxv1.Event {
	e.GetOutput().Stderr = true
	return e
}
