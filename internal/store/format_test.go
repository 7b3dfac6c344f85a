package store

import (
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store/redistest"
)

func TestCheckFormat(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	s, err := Open(t.Context(), Options{URL: r.URL()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // a test's
	for range 2 {
		if err := s.CheckFormat(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for text, want := range map[string]sandbox.Kind{"1": "", "2": sandbox.NotSupported, "0": sandbox.Invalid, "one": sandbox.Invalid} {
		if err := s.rdb.Set(t.Context(), formatKey, text, 0).Err(); err != nil {
			t.Fatal(err)
		}
		wantKind(t, s.CheckFormat(t.Context()), want)
	}
}
