package sqlpack_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/e2e/docblock"
	"github.com/skerry-sandbox/skerry/internal/policy"
	sqlpack "github.com/skerry-sandbox/skerry/packs/sql"
)

// TestDocs: the configuration and the policy of the README are read.
func TestDocs(t *testing.T) {
	t.Parallel()
	for _, b := range docblock.Marked(t) {
		if strings.HasPrefix(b.Text, "version:") {
			if _, err := policy.Parse([]byte(b.Text)); err != nil {
				t.Errorf("%s: %v", b, err)
			}
			continue
		}
		file := filepath.Join(t.TempDir(), "sql.yaml")
		must(t, os.WriteFile(file, []byte(b.Text), 0o600))
		if c, err := sqlpack.ReadConfig(file); err != nil || len(c.Databases) != 2 || c.Limits.Connections != 8 {
			t.Errorf("%s: %v %+v", b, err, c)
		}
	}
}
