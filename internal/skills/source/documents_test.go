package source

import (
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/e2e/docblock"
)

// TestDocuments: the lists of sources that documents show are right.
func TestDocuments(t *testing.T) {
	for _, b := range docblock.Marked(t) {
		file := t.TempDir() + "/skills.json"
		write(t, file, b.Text)
		want := map[bool]int{true: 5, false: 3}[strings.Contains(b.Text, `"sources"`)]
		if c, err := Read(file); err != nil || len(c.Sources) != want {
			t.Errorf("%s: %+v, %v", b, c, err)
		}
	}
}
