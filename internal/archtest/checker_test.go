package archtest

import (
	"testing"
	"testing/fstest"
)

// TestTheCheckerFails: each check must fail on a tree that breaks its rule.
func TestTheCheckerFails(t *testing.T) {
	const head = "// Package x is documented.\npackage x\n"
	for name, c := range map[string]struct {
		path, text string
		check      func([]file) []string
	}{
		"vocabulary imports ours":   {"internal/sandbox/a.go", head + `import _ "` + module + `internal/store"`, imports},
		"vocabulary imports others": {"internal/sandbox/a.go", head + `import _ "github.com/google/uuid"`, imports},
		"driver imports a driver":   {"internal/driver/oci/a.go", head + `import _ "` + module + `internal/driver/docker"`, imports},
		"orchestrator on a driver":  {"internal/orchestrator/a.go", head + `import _ "` + module + `internal/driver/docker"`, imports},
		"sandboxd imports redis":    {"internal/sandboxd/process/a.go", head + `import _ "github.com/redis/go-redis/v9"`, imports},
		"http imports orchestrator": {"internal/httpserver/a.go", head + `import _ "` + module + `internal/orchestrator"`, imports},
		"a name that says nothing":  {"internal/util/a.go", "// Package util is.\npackage util\n", checkNames},
		"the environment":           {"internal/store/a.go", head + "import \"os\"\n\nvar x = os.Getenv(\"X\")\n", checkEnvironment},
		"no package comment":        {"internal/store/a.go", "package store\n", checkDocs},
		"an undocumented function":  {"internal/store/a.go", head + "\nfunc F() {}\n", checkDocs},
		"an undocumented type":      {"internal/store/a.go", head + "\ntype T struct{}\n", checkDocs},
		"an undocumented constant":  {"internal/store/a.go", head + "\nconst C = 1\n", checkDocs},
		"an undocumented method":    {"internal/store/a.go", head + "\n// T is.\ntype T struct{}\n\nfunc (T) M() {}\n", checkDocs},
	} {
		files, err := load(fstest.MapFS{c.path: {Data: []byte(c.text)}})
		if err != nil {
			t.Fatal(err)
		}
		if bad := c.check(files); len(bad) != 1 {
			t.Errorf("%s: %q, want one violation", name, bad)
		}
	}
	good, err := load(fstest.MapFS{
		"internal/driver/oci/a.go": {Data: []byte(head + `import _ "` + module + `internal/driver"`)},
		"internal/store/a_test.go": {Data: []byte("package store\nfunc F() {}\n")},
		"cmd/x/main.go":            {Data: []byte("// Command x is.\npackage main\nimport \"os\"\nvar x = os.Getenv(\"X\")\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, check := range []func([]file) []string{imports, checkNames, checkEnvironment, checkDocs} {
		if bad := check(good); len(bad) != 0 {
			t.Errorf("a good tree: %q", bad)
		}
	}
}

func imports(files []file) []string { return checkImports(files, rules) }
