package store

import (
	"fmt"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store/format"
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
	for text, want := range map[string]sandbox.Kind{
		"1": "", "2": sandbox.NotSupported, "99999": sandbox.NotSupported, "0": sandbox.Invalid, "-1": sandbox.Invalid, "one": sandbox.Invalid, "99999999999999999999": sandbox.Invalid,
	} {
		if err := s.rdb.Set(t.Context(), formatKey, text, 0).Err(); err != nil {
			t.Fatal(err)
		}
		err := s.CheckFormat(t.Context())
		wantKind(t, err, want)
		if says := format.Check("the state in Redis", "the key "+formatKey, text); fmt.Sprint(err) != fmt.Sprint(says) { // whose own test says what that is
			t.Errorf("format %q: %v, want %v", text, err, says)
		}
	}
}
