package runnable

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

var update = flag.Bool("update", false, "write testdata/verdicts.txt anew")

// probeOf is what a probe of the image of a built-in template said.
func probeOf(t testing.TB, template string) Profile {
	t.Helper()
	out, err := os.ReadFile("testdata/" + template + ".probe")
	if err != nil {
		t.Fatal(err)
	}
	p, err := parseProfile(out)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// base is what that of the template "base" said.
func base(t testing.TB) Profile { return probeOf(t, "base") }

// TestTemplatesDiffer: what a skill needs is there in one template and missing in another.
func TestTemplatesDiffer(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]map[string]string{
		"Run `pandoc in.docx -o out.pdf`.":                                                           {"base": "no", "data": "no", "office": "yes"},
		"```python\nimport sklearn, seaborn\n```\nand `pip install scikit-learn`":                    {"base": "no", "data": "yes", "office": "no"},
		"```python\nimport pandas\n```":                                                              {"base": "no", "data": "yes", "office": "yes"},
		"```js\nimport { Document } from 'docx'\n```":                                                {"base": "no", "data": "no", "office": "yes"},
		"`soffice --headless x.docx`, then `pdftoppm x.pdf x` and `tesseract x.png`":                 {"base": "no", "data": "no", "office": "yes"},
		"```python\nfrom playwright.sync_api import sync_playwright\n```\nand `npx playwright test`": {"base": "no", "office": "no", "browser": "yes"},
		"```python\nimport json\n```":                                                                {"base": "yes", "data": "yes", "office": "yes"},
	} {
		needs, err := Read(skillOf(md(text)))
		if err != nil {
			t.Fatal(err)
		}
		for template, verdict := range want {
			if r := probeOf(t, template).Check(needs); r.Template != verdict {
				t.Errorf("%s in %s: %+v, want %s", text, template, r, verdict)
			}
		}
	}
}

// TestRealSkills checks the verdicts on skills that others wrote, and prints their counts.
func TestRealSkills(t *testing.T) {
	t.Parallel()
	const data = "../../../testdata/knowledge-work-plugins"
	if _, err := os.Stat(data); err != nil {
		t.Fatal(err)
	}
	profile, counts := base(t), map[string]int{}
	more, yes := map[string]Profile{"data": probeOf(t, "data"), "office": probeOf(t, "office")}, map[string]int{}
	var lines []string
	err := filepath.WalkDir(data, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "SKILL.md" {
			return err
		}
		needs, err := Read(os.DirFS(filepath.Dir(p)))
		if err != nil {
			return err
		}
		r := profile.Check(needs)
		counts[r.Template]++
		for template, p := range more {
			if p.Check(needs).Template == sandbox.RunnableYes {
				yes[template]++
			}
		}
		name := strings.Replace(path.Dir(strings.TrimPrefix(filepath.ToSlash(p), data+"/")), "/skills/", "/", 1)
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s: %s", r.Template, name, strings.Join(append(r.Missing, r.Unsure...), "; "))))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(lines)
	total := len(lines)
	t.Logf("%d skills in base: %d yes, %d no, %d unknown", total, counts[sandbox.RunnableYes], counts[sandbox.RunnableNo], counts[sandbox.RunnableUnknown])
	for template, p := range more {
		t.Logf("in %s: %d yes", template, yes[template])
		if yes[template] <= counts[sandbox.RunnableYes] {
			t.Errorf("%s (%d modules) runs no more skills than base: %d", template, len(p.Modules), yes[template])
		}
	}
	if counts[sandbox.RunnableUnknown]*100 > total*15 {
		t.Errorf("%d of %d unknown: more than 15 %%", counts[sandbox.RunnableUnknown], total)
	}
	got := strings.Join(lines, "\n") + "\n"
	const golden = "testdata/verdicts.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(want), "\n") {
		if i < len(lines) && lines[i] != line {
			t.Fatalf("line %d: %q, want %q (with -update, look at the difference before you commit it)", i+1, lines[i], line)
		}
	}
	if got != string(want) {
		t.Errorf("%d skills, want %d", total, strings.Count(string(want), "\n"))
	}
}
