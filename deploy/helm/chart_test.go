package helm

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

var update = flag.Bool("update", false, "write what is generated")

const chart = "skerry"

// cases are sets of values, testdata/NAME.values.yaml, whose renderings are kept in testdata/NAME.golden.yaml.
var cases = []string{"trial", "production", "one-namespace"}

// tool finds a program that scripts/install.sh helm installs. Without it the test is skipped, in CI it fails, but with -short.
func tool(t *testing.T, name string) string {
	t.Helper()
	cache := os.Getenv("SKERRY_CACHE")
	if cache == "" {
		cache = "/var/cache/skerry"
	}
	path := filepath.Join(cache, "bin", name)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("CI") != "" && !testing.Short() {
			t.Fatalf("%s is missing; CI needs it: scripts/install.sh helm", name)
		}
		t.Skipf("%s is missing: scripts/install.sh helm", name)
	}
	return path
}

// render returns what helm template prints for the chart, as release skerry in the namespace skerry.
func render(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), tool(t, "helm"), append([]string{"template", "skerry", chart, "--namespace", "skerry", "--kube-version", kubernetes[1]}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return errs.String(), err
	}
	return out.String(), nil
}

func rendered(t *testing.T, name string) string {
	t.Helper()
	out, err := render(t, "-f", valuesOf(name))
	if err != nil {
		t.Fatalf("%s: %s", name, out)
	}
	return out
}

func valuesOf(name string) string { return filepath.Join("testdata", name+".values.yaml") }

// objects are the documents of a rendering.
func objects(t *testing.T, text string) []map[string]any {
	t.Helper()
	var all []map[string]any
	for dec := yaml.NewDecoder(strings.NewReader(text)); ; {
		var o map[string]any
		err := dec.Decode(&o)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if o != nil {
			all = append(all, o)
		}
	}
}

// object is the one of a kind with a name.
func object(t *testing.T, text, kind, name string) map[string]any {
	t.Helper()
	for _, o := range objects(t, text) {
		if o["kind"] == kind && at(o, "metadata", "name") == name {
			return o
		}
	}
	t.Fatalf("no %s %s", kind, name)
	return nil
}

// at follows keys and indexes into a document; nil when there is nothing.
func at(v any, path ...any) any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[p]
		case int:
			l, _ := v.([]any)
			if p >= len(l) {
				return nil
			}
			v = l[p]
		}
	}
	return v
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// same compares a file with what it should hold, or writes it with -update.
func same(t *testing.T, path, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil { //nolint:gosec // a file of the repository
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	have, wanted := strings.Split(string(got), "\n"), strings.Split(want, "\n")
	for i := range wanted {
		if i >= len(have) || have[i] != wanted[i] {
			t.Fatalf("%s, line %d: not what would be generated (scripts/generate.sh), which is\n%s", path, i+1, wanted[i])
		}
	}
	if len(have) != len(wanted) {
		t.Fatalf("%s has %d lines, and would be generated with %d (scripts/generate.sh)", path, len(have), len(wanted))
	}
}
