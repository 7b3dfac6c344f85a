package helm

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/e2e/docblock"
)

var (
	helmCall = regexp.MustCompile(`(?m)^helm (?:-n \S+ )?(\S+) skerry(?: deploy/helm/skerry)?(.*)$`)
	flagWord = regexp.MustCompile(` --?[a-z][a-z-]*`)
	named    = regexp.MustCompile(`(?m) (deploy|service|statefulset)/([a-z0-9-]+)(?: |$)`)
	target   = regexp.MustCompile(`docker build --target (\S+) -t \S+/(\S+):`)
)

// TestCommands: the values that documents show can be installed, by the commands that they show; what these name is there.
func TestCommands(t *testing.T) {
	blocks, values, installs := docblock.Marked(t), filepath.Join(t.TempDir(), "values.yaml"), 0
	for _, b := range blocks {
		if b.Lang == "yaml" { // the file that commands of the page name
			if err := os.WriteFile(values, []byte(b.Text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, b := range blocks {
		if b.Lang == "yaml" {
			continue
		}
		known := false
		for _, line := range helmCall.FindAllStringSubmatch(b.Text, -1) {
			known = true
			if line[1] == "install" || line[1] == "upgrade" {
				installs++
				if out, err := render(t, strings.Fields(helmFlags(line[2], values))...); err != nil {
					t.Errorf("%s: %s: %s", b, line[0], out)
				}
			}
			help, err := exec.CommandContext(t.Context(), tool(t, "helm"), line[1], "--help").CombinedOutput()
			if err != nil {
				t.Fatalf("%s: helm %s: %v", b, line[1], err)
			}
			for _, flag := range flagWord.FindAllString(line[2], -1) {
				if !regexp.MustCompile(flag + `\b`).Match(help) {
					t.Errorf("%s: helm %s has no flag%s", b, line[1], flag)
				}
			}
		}
		known = namesThere(t, b) || known
		for _, m := range target.FindAllStringSubmatch(b.Text, -1) {
			known = true
			if m[1] != m[2] || !strings.Contains(read(t, "../../Dockerfile"), " AS "+m[1]+"\n") {
				t.Errorf("%s: the Dockerfile makes no %s", b, m[1])
			}
		}
		if !known && !strings.Contains(b.Text, "create secret") {
			t.Errorf("%s: nothing in it is looked at", b)
		}
	}
	if installs < 3 {
		t.Errorf("only %d installations", installs)
	}
}

// helmFlags are those of an installation that also say how it is rendered.
func helmFlags(flags, values string) string {
	kept := slices.DeleteFunc(strings.Fields(flags), func(f string) bool { return f == "--wait" || f == "--create-namespace" || f == "--atomic" })
	return strings.ReplaceAll(strings.Join(kept, " "), "values.yaml", values)
}

// namesThere looks for the objects that commands of kubectl name, and says whether there are any.
func namesThere(t *testing.T, b docblock.Block) bool {
	t.Helper()
	all := named.FindAllStringSubmatch(b.Text, -1)
	kinds := map[string]string{"deploy": "Deployment", "service": "Service", "statefulset": "StatefulSet"}
	for _, m := range all {
		if !slices.ContainsFunc(objects(t, rendered(t, cases[0])), func(o map[string]any) bool {
			meta, _ := o["metadata"].(map[string]any)
			return o["kind"] == kinds[m[1]] && meta["name"] == m[2]
		}) {
			t.Errorf("%s: the chart makes no %s", b, m[0])
		}
	}
	return len(all) > 0 || strings.Contains(b.Text, "kubectl -n skerry-sandboxes")
}
