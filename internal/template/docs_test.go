package template

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

// TestDocs: the template that the docs show is one, and its mistakes are told as the docs say.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/templates.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(text), "<!-- tested by internal/template TestDocs -->\n```")[1:]
	if len(blocks) != 2 {
		t.Fatalf("%d tested blocks", len(blocks))
	}
	example, _, _ := strings.Cut(strings.TrimPrefix(blocks[0], "yaml\n"), "\n```")
	got, err := Parse([]byte(example))
	if err != nil || got.Name != "reports" || len(got.Smoke) != 3 || got.Interpreters["python"].Preload[0] != "pandas" {
		t.Errorf("%+v, %v", got, err)
	}
	said, _, _ := strings.Cut(strings.TrimPrefix(blocks[1], "\n"), "\n```")
	wrong := "name: reports\nimage: {docker: a}\nlimits:\n  memory: 1GB\n  pid: 9\n  cpu: 1\n  open_files: 99\n  file_size: 1GiB\n  tmp: 1MiB\n  disk: 1GiB\nruntime: runc\nlanguages: [bash]\n"
	if _, err := Load(fstest.MapFS{"reports.yaml": {Data: []byte(wrong)}}); err == nil || err.Error() != said {
		t.Errorf("%v\nthe docs say\n%s", err, said)
	}
}
