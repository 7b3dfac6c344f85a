package template

import (
	"strings"
	"testing"
	"testing/fstest"

	sandboxtemplates "github.com/skerry-sandbox/skerry/sandbox-templates"
)

func TestBuiltInTemplates(t *testing.T) {
	all, err := Load(sandboxtemplates.FS)
	if err != nil || len(all) == 0 {
		t.Fatalf("%v, %v", all, err)
	}
	v := all[0].Vocabulary()
	if v.Name != "base" || v.Limits.MemoryBytes != 1<<30 || v.Limits.CPUMillis != 2000 || v.Limits.DiskBytes != 2<<30 {
		t.Errorf("%+v", v)
	}
	if image, ok := all[0].ImageFor(true, "/images"); !ok || image != "/images/base/rootfs" {
		t.Errorf("oci image %q %t", image, ok)
	}
	if image, ok := all[0].ImageFor(false, "/images"); !ok || image != "skerry/base:latest" {
		t.Errorf("docker image %q %t", image, ok)
	}
}

const good = `name: x
image: {docker: a, oci: host}
runtime: runc
limits: {memory: 64MiB, cpu: "1", pids: 10, open_files: 100, file_size: 1MiB, tmp: 1MiB, disk: 1048576}
`

func TestProblemsAreNamed(t *testing.T) {
	for text, want := range map[string][]string{
		strings.Replace(good, "64MiB", "64MB", 1):                            {"line 4", "64MB"},
		strings.Replace(good, "runc", "crun", 1):                             {"runtime", "crun"},
		strings.Replace(good, "pids: 10, ", "", 1):                           {"limits.pids"},
		strings.Replace(good, "name: x", "name: X Y\nlanguages: [cobol]", 1): {"name:", "languages:", "cobol"},
		strings.Replace(good, "name: x", "nmae: x", 1):                       {"nmae"},
		strings.Replace(good, "docker: a, oci: host", "oci: ../../etc", 1):   {"image.oci"},
		strings.Replace(good, `cpu: "1"`, "cpu: fast", 1):                    {"fast"},
		strings.Replace(good, "64MiB", "99999999999TiB", 1):                  {"99999999999TiB"},
	} {
		_, err := Parse([]byte(text))
		if err == nil {
			t.Errorf("no error for:\n%s", text)
			continue
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%q is not named in %q", w, err)
			}
		}
	}
	if _, err := Parse([]byte(good)); err != nil {
		t.Errorf("a good one: %v", err)
	}
	if _, err := Load(fstest.MapFS{"a.yaml": {Data: []byte(good)}, "b.yaml": {Data: []byte(good)}}); err == nil || !strings.Contains(err.Error(), "a.yaml") {
		t.Errorf("two of one name: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(good)
	f.Fuzz(func(t *testing.T, text string) {
		tmpl, err := Parse([]byte(text))
		if err == nil && (tmpl.Limits.Memory < 16<<20 || tmpl.Limits.PIDs < 8) {
			t.Errorf("a template without limits was taken: %+v", tmpl)
		}
	})
}
