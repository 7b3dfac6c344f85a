package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func openHouse(t *testing.T) (fs.FS, []file) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	house := os.DirFS(root)
	files, err := load(house)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 100 {
		t.Fatalf("only %d files: the tree was not read", len(files))
	}
	return house, files
}

func report(t *testing.T, bad []string) {
	t.Helper()
	for _, b := range bad {
		t.Error(b)
	}
}

func TestImports(t *testing.T) {
	house, files := openHouse(t)
	report(t, checkTable(table))
	report(t, checkImports(files))
	for _, r := range table {
		if _, err := fs.Stat(house, r.dir); err != nil {
			t.Errorf("the table has a row for %s, which is not there", r.dir)
		}
	}
}

func TestModules(t *testing.T) {
	house, files := openHouse(t)
	modules, err := readModules(house)
	if err != nil || len(modules) < 10 {
		t.Fatalf("go.mod: %d modules, %v", len(modules), err)
	}
	known, err := readDependencies(house)
	if err != nil {
		t.Fatal(err)
	}
	report(t, checkModules(files, modules, known))
}

func TestNames(t *testing.T) {
	_, files := openHouse(t)
	report(t, checkNames(files))
}

// TestSizes prints with -v all parts that are near a limit, and the exceptions.
func TestSizes(t *testing.T) {
	_, files := openHouse(t)
	report(t, checkSizes(files, oversize))
	all := sizes(files)
	for _, p := range inOrder(all) {
		if limit := limits[p.what]; all[p] > limit {
			t.Logf("exception  %-60s %5d %s, of %d: %s", p.name, all[p], p.what, limit, oversize[p].why)
		} else if all[p]*10 >= limit*8 {
			t.Logf("           %-60s %5d %s, of %d", p.name, all[p], p.what, limit)
		}
	}
	t.Logf("%d exceptions", len(oversize))
}

func TestMutexes(t *testing.T) {
	_, files := openHouse(t)
	report(t, checkMutexes(files))
}

func TestEnvironment(t *testing.T) {
	_, files := openHouse(t)
	report(t, checkEnvironment(files))
}

func TestComments(t *testing.T) {
	_, files := openHouse(t)
	report(t, checkDocs(files))
}

func TestDocuments(t *testing.T) {
	house, _ := openHouse(t)
	report(t, checkLinks(house))
	report(t, checkDeclared(house, "ARCHITECTURE.md"))
	report(t, checkDecisions(house))
	report(t, checkBlocks(house))
	readme, err := fs.ReadFile(house, "README.md")
	if err != nil {
		t.Fatal(err)
	}
	report(t, checkReadme(string(readme)))
	page, err := fs.ReadFile(house, "docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	report(t, checkKubernetesPage(string(page)))
}
