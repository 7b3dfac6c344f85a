package events

import (
	"context"
	"errors"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestEndsCompare: what ran before the connection was lost, and does not now, has ended, once.
func TestEndsCompare(t *testing.T) {
	e := NewEnds()
	e.Compare(t.Context(), []sandbox.Instance{{ID: "a", State: sandbox.Running}, {ID: "b", State: sandbox.Starting}, {ID: "c", State: sandbox.Lost}})
	e.Started("d")
	if len(e.reports) != 0 || !e.Alive("a") || !e.Alive("b") || e.Alive("c") || !e.Alive("d") {
		t.Fatalf("%d reports, alive %v", len(e.reports), e.alive)
	}
	e.Report(t.Context(), "d", false)
	e.Compare(t.Context(), []sandbox.Instance{{ID: "a", State: sandbox.Lost, OOMKilled: true}, {ID: "b", State: sandbox.Running}})
	for _, want := range []driver.Event{{ID: "d", State: sandbox.Lost}, {ID: "a", State: sandbox.Lost, OOM: true}} {
		if got := <-e.reports; got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	if len(e.reports) != 0 || e.Alive("a") {
		t.Errorf("%d more reports", len(e.reports))
	}
}

// TestWatchEnds: a watch that cannot connect is none, and the channel of another one is closed with the driver.
func TestWatchEnds(t *testing.T) {
	away := errors.New("away")
	follow := func(ctx context.Context, _ int) { <-ctx.Done() }
	if _, err := Watch(t.Context(), t.Context(), NewEnds(), follow, func(context.Context) (int, error) { return 0, away }, nil); !errors.Is(err, away) {
		t.Errorf("%v", err)
	}
	closing, end := context.WithCancel(t.Context())
	ends := NewEnds()
	reports, err := Watch(t.Context(), closing, ends, follow, func(ctx context.Context) (int, error) {
		ends.Compare(ctx, nil)
		return 1, nil
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	end()
	if _, open := <-reports; open {
		t.Error("an event")
	}
}
