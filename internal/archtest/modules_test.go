package archtest

import (
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
)

// dependency is one row of docs/dependencies.md.
type dependency struct {
	version string
	dirs    []string // where it may be imported; "tests" is any _test.go file
}

var dependencyRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (v[^ |]+) \\| ([^|]+) \\| ([^|]{10,}) \\|$")

func readDependencies(root fs.FS) (map[string]dependency, error) {
	text, err := fs.ReadFile(root, "docs/dependencies.md")
	if err != nil {
		return nil, err
	}
	all := map[string]dependency{}
	for _, m := range dependencyRow.FindAllStringSubmatch(string(text), -1) {
		d := dependency{version: m[2]}
		for dir := range strings.SplitSeq(m[3], ",") {
			d.dirs = append(d.dirs, strings.Trim(strings.TrimSpace(dir), "`"))
		}
		all[m[1]] = d
	}
	return all, nil
}

var requirement = regexp.MustCompile(`(?m)^\s*(?:require )?([a-z0-9.-]+\.[a-z]+/\S+) (v\S+)`)

// readModules returns the modules of go.mod with their versions.
func readModules(root fs.FS) (map[string]string, error) {
	text, err := fs.ReadFile(root, "go.mod")
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, m := range requirement.FindAllStringSubmatch(string(text), -1) {
		all[m[1]] = m[2]
	}
	return all, nil
}

// moduleOf returns the module that an import path is in, or "" for the standard library and our own.
func moduleOf(imp string, modules map[string]string) string {
	best := ""
	for m := range modules {
		if within(imp, m) && len(m) > len(best) {
			best = m
		}
	}
	return best
}

// heavy are packages that bring far more to compile than is used of them, with what serves instead
// (docs/decisions/0079-parts-of-client-go.md).
var heavy = map[string]string{
	"k8s.io/client-go/kubernetes":      "the groups of k8s.io/client-go/kubernetes/typed, as in internal/driver/kubernetes.Clientset",
	"k8s.io/client-go/kubernetes/fake": "the fakes of the groups in k8s.io/client-go/kubernetes/typed",
	"k8s.io/client-go/informers":       "k8s.io/client-go/tools/cache.NewSharedIndexInformer",
}

// checkModules: every import of a foreign module stands in docs/dependencies.md, and every row there
// is used and has the version of go.mod. No heavy package is imported.
func checkModules(files []file, modules map[string]string, known map[string]dependency) []string {
	var bad []string
	used := map[string]bool{}
	said := map[string]bool{}
	for _, f := range files {
		for _, imp := range f.imports() {
			m := moduleOf(imp, modules)
			if m == "" {
				continue
			}
			used[m] = true
			if instead := heavy[imp]; instead != "" {
				bad = append(bad, fmt.Sprintf("%s imports %s: use %s", f.path, imp, instead))
			}
			d, ok := known[m]
			if !ok {
				if !said[m] {
					bad = append(bad, fmt.Sprintf("%s: %s %s has no row in docs/dependencies.md", f.path, m, modules[m]))
				}
				said[m] = true
				continue
			}
			allowed := f.test || slices.ContainsFunc(d.dirs, func(dir string) bool { return within(f.dir(), dir) })
			if !allowed {
				bad = append(bad, fmt.Sprintf("%s imports %s, which docs/dependencies.md allows in %s", f.path, m, strings.Join(d.dirs, ", ")))
			}
		}
	}
	for m, d := range known {
		switch {
		case !used[m]:
			bad = append(bad, fmt.Sprintf("docs/dependencies.md: %s is used nowhere", m))
		case d.version != modules[m]:
			bad = append(bad, fmt.Sprintf("docs/dependencies.md: %s is at %s, go.mod at %s", m, d.version, modules[m]))
		}
	}
	return bad
}
