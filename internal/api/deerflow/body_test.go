package deerflow

import (
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestManyValues: a body of 72 MiB would hold 24 million words, of sixteen bytes each and more.
func TestManyValues(t *testing.T) {
	t.Parallel()
	var c grepRequest
	err := decode([]byte(`{"include":[`+strings.Repeat(`"",`, maxValues)+`""]}`), &c)
	if sandbox.KindOf(err) != sandbox.Invalid || len(c.Include) > 0 {
		t.Errorf("%d words, %v", len(c.Include), err)
	}
	if err := decode([]byte(`{"pattern":"`+strings.Repeat("[,", maxValues)+`"}`), &c); err != nil {
		t.Errorf("a long text: %v", err)
	}
}
