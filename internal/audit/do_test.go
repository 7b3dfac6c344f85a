package audit

import (
	"context"
	"errors"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// memo is an Appender in memory.
type memo struct {
	records             []Record
	noAttempt, noResult error
}

func (m *memo) Append(_ context.Context, r Record) (Record, error) {
	if m.noAttempt != nil {
		return Record{}, m.noAttempt
	}
	r.ID = "attempt"
	m.records = append(m.records, r)
	return r, nil
}

func (m *memo) AppendSync(ctx context.Context, r Record) (Record, error) {
	if ctx.Err() != nil {
		return Record{}, ctx.Err()
	}
	if m.noResult != nil {
		return Record{}, m.noResult
	}
	m.records = append(m.records, r)
	return r, nil
}

func TestDo(t *testing.T) {
	t.Parallel()
	full, refused := errors.New("the disk is full"), sandbox.Errorf(sandbox.Forbidden, "no")
	for name, c := range map[string]struct {
		log     memo
		do      error
		want    error
		outcome string // "": no result is recorded
		called  bool
	}{
		"done":                           {memo{}, nil, nil, "ok", true},
		"the attempt cannot be recorded": {memo{noAttempt: full}, nil, full, "", false},
		"denied":                         {memo{}, refused, refused, "denied", true},
		"failed":                         {memo{}, sandbox.Conflict, sandbox.Conflict, "error", true},
		"the result cannot be recorded":  {memo{noResult: full}, nil, full, "", true},
		"it failed and neither can that": {memo{noResult: full}, refused, refused, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			// The caller leaves meanwhile: the result is recorded all the same.
			ctx, leave := context.WithCancel(t.Context())
			called := false
			err := Do(ctx, &c.log, Record{Action: "x"}, func(r *Record) error {
				called = true
				if r.Parent != "attempt" {
					t.Errorf("the attempt's id is %q", r.Parent)
				}
				leave()
				return c.do
			})
			if called != c.called || !errors.Is(err, c.want) {
				t.Errorf("called %v, error %v, want %v and %v", called, err, c.called, c.want)
			}
			var outcome string
			for _, r := range c.log.records {
				if r.Phase == PhaseResult {
					outcome = r.Outcome
				}
			}
			if outcome != c.outcome {
				t.Errorf("outcome %q, want %q", outcome, c.outcome)
			}
		})
	}
}
