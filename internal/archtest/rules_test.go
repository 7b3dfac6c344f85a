package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/skerry-sandbox/skerry/"

// rule says what the packages below a folder may import: of ours only what Ours lists (nil: no rule),
// and nothing that begins with one of Never. Why is printed with a violation.
type rule struct {
	Dir   string
	Ours  []string
	Never []string
	Why   string
}

// engines are what only a driver may talk to.
var engines = []string{"github.com/moby/", "github.com/docker/", "github.com/containerd/", "k8s.io/"}

var rules = []rule{
	{Dir: "internal/sandbox", Ours: []string{}, Never: []string{"github.com/", "golang.org/", "google.golang.org/"}, Why: "the vocabulary imports the standard library only"},
	{Dir: "internal/driver/oci", Ours: []string{"internal/sandbox", "internal/driver", "internal/driver/hardening", "internal/driver/idlock", "internal/driver/runtimeprobe", "internal/driver/drivertest"}, Why: "a driver knows its contract, never another driver"},
	{Dir: "internal/driver/docker", Ours: []string{"internal/sandbox", "internal/driver", "internal/driver/hardening", "internal/driver/idlock", "internal/driver/runtimeprobe", "internal/driver/drivertest"}, Why: "a driver knows its contract, never another driver"},
	{Dir: "internal/sandboxd", Ours: []string{"internal/sandboxd", "internal/sandboxapi", "internal/sandbox", "internal/buildinfo"}, Never: append([]string{"github.com/gin-gonic/", "github.com/redis/", "github.com/modelcontextprotocol/", "github.com/danielgtaylor/"}, engines...), Why: "the daemon in the sandbox stays small and knows no server"},
	{Dir: "cmd/skerry-sandboxd", Ours: []string{"internal/sandboxd", "internal/sandboxapi", "internal/sandbox", "internal/buildinfo"}, Why: "the daemon in the sandbox stays small and knows no server"},
	{Dir: "internal/orchestrator", Never: append([]string{module + "internal/driver/", module + "internal/httpserver", module + "internal/mcphub", "github.com/gin-gonic/", "github.com/danielgtaylor/"}, engines...), Why: "use cases know contracts, never implementations"},
	{Dir: "internal/httpserver", Never: append([]string{module + "internal/driver", module + "internal/orchestrator", module + "internal/store", module + "internal/mcphub", module + "internal/bridge", "github.com/redis/"}, engines...), Why: "HTTP reaches use cases through the interfaces that it declares"},
	{Dir: "internal/vpath", Ours: []string{"internal/sandbox"}, Why: "files stand below everything"},
	{Dir: "internal/store", Ours: []string{"internal/sandbox", "internal/store"}, Why: "state stands below everything"},
	{Dir: "internal/mcphub", Ours: []string{"internal/sandbox", "internal/mcphub"}, Why: "the hub knows tools, not who calls them"},
	{Dir: "internal/bridge", Ours: []string{"internal/sandbox"}, Why: "the bridge reaches the hub through the interface that it declares"},
	{Dir: "internal/codeapi", Ours: []string{"internal/sandbox"}, Why: "wrappers are made from a tool set alone"},
}

// file is one source file that is not a test.
type file struct {
	path   string // below the root, with slashes
	syntax *ast.File
	fset   *token.FileSet
}

func (f file) dir() string { return path.Dir(f.path) }

func (f file) imports() []string {
	var all []string
	for _, i := range f.syntax.Imports {
		if p, err := strconv.Unquote(i.Path.Value); err == nil {
			all = append(all, p)
		}
	}
	return all
}

// load parses the tree. Generated files are theirs, not ours.
func load(root fs.FS) ([]file, error) {
	var all []file
	err := fs.WalkDir(root, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && p != "." || d.Name() == "testdata" || d.Name() == "node_modules") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") {
			return nil
		}
		text, err := fs.ReadFile(root, p)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, p, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if !ast.IsGenerated(f) {
			all = append(all, file{p, f, fset})
		}
		return nil
	})
	return all, err
}

func within(dir, parent string) bool { return dir == parent || strings.HasPrefix(dir, parent+"/") }

// checkImports applies the table.
func checkImports(files []file, rules []rule) []string {
	var bad []string
	for _, f := range files {
		for _, r := range rules {
			if !within(f.dir(), r.Dir) {
				continue
			}
			for _, imp := range f.imports() {
				if why := r.refuses(imp); why {
					bad = append(bad, fmt.Sprintf("%s imports %s: %s", f.path, imp, r.Why))
				}
			}
		}
	}
	return bad
}

func (r rule) refuses(imp string) bool {
	for _, n := range r.Never {
		if strings.HasPrefix(imp, n) {
			return true
		}
	}
	own, ours := strings.CutPrefix(imp, module)
	if !ours || r.Ours == nil {
		return false
	}
	for _, ok := range append([]string{r.Dir}, r.Ours...) {
		// A contract's own folder does not open those below it, which are implementations.
		if own == ok || ok != "internal/driver" && within(own, ok) {
			return false
		}
	}
	return true
}

var vague = regexp.MustCompile(`^(util|utils|common|helper|helpers|manager|misc|shared|base)$`)

// checkNames refuses names that say nothing.
func checkNames(files []file) []string {
	var bad []string
	for _, f := range files {
		if vague.MatchString(f.syntax.Name.Name) {
			bad = append(bad, fmt.Sprintf("%s: the package name %s says nothing", f.path, f.syntax.Name.Name))
		}
	}
	return bad
}

// checkEnvironment: only cmd/ reads the environment. The suite of the drivers, which reads CI, is a test.
func checkEnvironment(files []file) []string {
	var bad []string
	for _, f := range files {
		if within(f.dir(), "cmd") || within(f.dir(), "bench") || within(f.dir(), "internal/driver/drivertest") || strings.HasSuffix(f.dir(), "test") {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == "os" {
				switch sel.Sel.Name {
				case "Getenv", "LookupEnv", "Environ", "ExpandEnv":
					bad = append(bad, fmt.Sprintf("%s: os.%s outside of cmd/", f.fset.Position(n.Pos()), sel.Sel.Name))
				}
			}
			return true
		})
	}
	return bad
}

// checkDocs: each package has a package comment, each exported name of internal/ a comment.
func checkDocs(files []file) []string {
	documented, seen := map[string]bool{}, map[string]bool{}
	var bad []string
	for _, f := range files {
		seen[f.dir()] = true
		documented[f.dir()] = documented[f.dir()] || f.syntax.Doc != nil
		for _, d := range f.syntax.Decls {
			bad = append(bad, undocumented(f, d)...)
		}
	}
	for dir := range seen {
		if !documented[dir] {
			bad = append(bad, dir+": no package comment")
		}
	}
	return bad
}

func undocumented(f file, d ast.Decl) []string {
	at := func(name string, n ast.Node) []string {
		return []string{fmt.Sprintf("%s: %s has no comment", f.fset.Position(n.Pos()), name)}
	}
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && d.Doc == nil && exportedReceiver(d) {
			return at(d.Name.Name, d)
		}
	case *ast.GenDecl:
		var bad []string
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() && d.Doc == nil && s.Doc == nil {
					bad = append(bad, at(s.Name.Name, s)...)
				}
			case *ast.ValueSpec:
				if s.Names[0].IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
					bad = append(bad, at(s.Names[0].Name, s)...)
				}
			}
		}
		return bad
	}
	return nil
}

// exportedReceiver: a method of an unexported type fulfils an interface that documents it. The same
// goes for the few names that the standard library's interfaces fix.
func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	switch d.Name.Name {
	case "Error", "String", "Unwrap", "Is", "Read", "ReadAt", "Write", "Seek", "Close":
		return false
	}
	t := d.Recv.List[0].Type
	if s, ok := t.(*ast.StarExpr); ok {
		t = s.X
	}
	id, ok := t.(*ast.Ident)
	return ok && id.IsExported()
}

func TestTheHouse(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	files, err := load(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 50 {
		t.Fatalf("only %d files: the tree was not read", len(files))
	}
	for name, bad := range map[string][]string{
		"imports": checkImports(files, rules), "names": checkNames(files), "environment": checkEnvironment(files), "docs": checkDocs(files),
	} {
		for _, b := range bad {
			t.Errorf("%s: %s", name, b)
		}
	}
	for _, r := range rules {
		if _, err := os.Stat(filepath.Join(root, r.Dir)); err != nil {
			t.Errorf("a rule is about %s, which is not there", r.Dir)
		}
	}
}
