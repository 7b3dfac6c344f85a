package template

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/skerry-sandbox/skerry/internal/e2e/docblock"
)

// TestDocs: the template that the docs show is one, what they show of one can be added, and mistakes are told as they say.
func TestDocs(t *testing.T) {
	const small = "image: {docker: a}\nlimits: {memory: 1GiB, cpu: 1, pids: 9, open_files: 99, file_size: 1GiB, tmp: 1MiB, disk: 1GiB}\nruntime: runc\nlanguages: [bash]\n"
	const wrong = "name: reports\nimage: {docker: a}\nlimits:\n  memory: 1GB\n  pid: 9\n  cpu: 1\n  open_files: 99\n  file_size: 1GiB\n  tmp: 1MiB\n  disk: 1GiB\nruntime: runc\nlanguages: [bash]\n"
	said := map[string]bool{}
	for _, b := range docblock.Marked(t) {
		switch {
		case strings.Contains(b.Text, "extends:"):
			list, err := Load(fstest.MapFS{"a.yaml": {Data: []byte(b.Text)}}, os.DirFS("../../sandbox-templates"))
			if err != nil || list[0].Limits.Memory != 4<<30 || list[0].Image.OCI != "base" {
				t.Errorf("%s: %+v, %v", b, list, err)
			}
			said["extends"] = true
		case strings.HasPrefix(b.Text, "name:"):
			got, err := Parse([]byte(b.Text))
			if err != nil || got.Name != "reports" || len(got.Smoke) != 3 || got.Interpreters["python"].Preload[0] != "pandas" {
				t.Errorf("%s: %+v, %v", b, got, err)
			}
			said["template"] = true
		case b.Lang == "yaml":
			if _, err := Parse([]byte("name: x\n" + small + b.Text)); err != nil {
				t.Errorf("%s: %v", b, err)
			}
			said["part"] = true
		default:
			if _, err := Load(fstest.MapFS{"reports.yaml": {Data: []byte(wrong)}}); err == nil || err.Error()+"\n" != b.Text {
				t.Errorf("%v\n%s says\n%s", err, b, b.Text)
			}
			said["mistakes"] = true
		}
	}
	if len(said) != 4 {
		t.Errorf("tested were only %v", said)
	}
}
