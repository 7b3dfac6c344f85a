package plugins

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/plugins/slash"
)

func TestInvocation(t *testing.T) {
	for text, want := range map[string][3]string{
		"/sales:call-prep Acme  Corp ": {"sales", "call-prep", "Acme  Corp"}, "/a:b": {"a", "b", ""}, "/a:team:b x": {"a", "team:b", "x"}, "/a:b\nx y": {"a", "b", "x y"},
		"a:b": {}, "/a": {}, "/:b": {}, "/a:": {}, "/../x:b": {}, "/a:../b": {}, "": {}, "hello /a:b": {},
	} {
		p, c, args, ok := Invocation(text)
		if got := [3]string{p, c, args}; got != want || ok != (want != [3]string{}) {
			t.Errorf("%q: %q %v", text, got, ok)
		}
	}
}

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
