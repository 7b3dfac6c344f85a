package inprocess

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
)

// TestKept: before a part of an answer is kept, or of an event, it is asked for all of it. A refusal ends the answer; answers that are
// no success are not asked for.
func TestKept(t *testing.T) {
	t.Parallel()
	full := errors.New("full")
	status := http.StatusOK
	sent := 0
	api := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		for sent = 0; sent < 5; sent++ {
			if _, err := io.WriteString(w, "data: 1\nevent: e\n"); err != nil {
				return
			}
		}
		_, _ = io.WriteString(w, "\n\n")
	})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/x", nil)
	c := Caller{API: api, W: httptest.NewRecorder(), R: r}
	for name, ask := range map[string]func(q Request) error{
		"answer": func(q Request) error { _, err := c.Call(q); return err },
		"events": func(q Request) error { return c.Events(q, func(Event) error { return nil }) },
	} {
		for _, most := range []int64{1000, 34} {
			var asked []int64
			status = http.StatusOK
			err := ask(Request{Method: http.MethodGet, Path: "/y", Kept: func(n int64) error {
				asked = append(asked, n)
				if n > most {
					return full
				}
				return nil
			}})
			want := []int64{17, 34, 51, 68, 85, 87}
			if most == 34 {
				want = want[:3]
			}
			if errors.Is(err, full) != (most == 34) || !slices.Equal(asked, want) || most == 34 && sent != 2 {
				t.Errorf("%s, at most %d: asked %d, %v; %d parts were taken", name, most, asked, err, sent)
			}
		}
		status = http.StatusConflict
		var refused *Refusal
		if err := ask(Request{Method: http.MethodGet, Path: "/y", Kept: func(int64) error { return full }}); !errors.As(err, &refused) {
			t.Errorf("%s: %v for a refusal", name, err)
		}
	}
}
