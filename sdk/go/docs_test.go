package skerry_test

import (
	"os"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/e2e/docblock"
)

// TestDocs: what docs/go.md shows is part of an example, which runs.
func TestDocs(t *testing.T) {
	examples, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := docblock.Marked(t)
	if len(blocks) < 2 {
		t.Fatalf("%d blocks", len(blocks))
	}
	for _, b := range blocks {
		if !strings.Contains(strings.ReplaceAll(string(examples), "\n\t", "\n"), b.Text) {
			t.Errorf("%s: no example has this:\n%s", b, b.Text)
		}
	}
}
