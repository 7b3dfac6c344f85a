package source

import (
	"testing"

	"github.com/skerry-sandbox/skerry/internal/e2e/docblock"
)

// TestDocuments: the lists of sources that documents show are right.
func TestDocuments(t *testing.T) {
	for _, b := range docblock.Marked(t) {
		file := t.TempDir() + "/skills.json"
		write(t, file, b.Text)
		if c, err := Read(file); err != nil || len(c.Sources) != 4 {
			t.Errorf("%s: %+v, %v", b, c, err)
		}
	}
}
