package plugins

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/plugins/slash"
)

// TestCommandsOfTestData: what real commands become.
func TestCommandsOfTestData(t *testing.T) {
	dir := "../../testdata/knowledge-work-plugins/product-management"
	if _, err := os.Stat(dir); err != nil {
		t.Fatal("the test data is not there: ", err)
	}
	p, err := loadDir(t, filepath.Clean(dir), nil)
	if err != nil || len(p.Commands) != 1 {
		t.Fatalf("%v %+v", err, p.Commands)
	}
	m, err := slash.Render(context.Background(), p.Commands[0], "a new onboarding", slash.Context{})
	if err != nil || !strings.Contains(m.Text, "a new onboarding") || p.Commands[0].ArgumentHint != "<topic, problem, or idea to explore>" {
		t.Errorf("%v %.300q", err, m.Text)
	}
}
