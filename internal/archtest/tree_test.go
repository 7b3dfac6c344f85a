package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// file is one Go source file.
type file struct {
	path      string // below the root, with slashes
	syntax    *ast.File
	fset      *token.FileSet
	lines     int
	test      bool
	generated bool
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

// declares reports whether a file declares a function or type, or a method of the type recv.
func (f file) declares(recv, name string) bool {
	for _, d := range f.syntax.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			of := ""
			if d.Recv != nil {
				of = receiver(d.Recv.List[0].Type)
			}
			if of == recv && d.Name.Name == name {
				return true
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if t, ok := s.(*ast.TypeSpec); ok && recv == "" && t.Name.Name == name {
					return true
				}
			}
		}
	}
	return false
}

func (f file) at(n ast.Node) token.Position { return f.fset.Position(n.Pos()) }

// load parses the tree, without folders that hold no code of ours.
func load(root fs.FS) ([]file, error) {
	var all []file
	err := fs.WalkDir(root, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			switch name := d.Name(); {
			case p != "." && strings.HasPrefix(name, "."), name == "testdata", name == "node_modules", p == "skerry-data", p == "bin":
				return fs.SkipDir
			}
			// A folder with a go.mod is a program of its own, as those of test/cluster.
			if _, err := fs.Stat(root, path.Join(p, "go.mod")); err == nil && p != "." {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		f, err := parse(root, p)
		all = append(all, f)
		return err
	})
	return all, err
}

func parse(root fs.FS, p string) (file, error) {
	text, err := fs.ReadFile(root, p)
	if err != nil {
		return file{}, err
	}
	fset := token.NewFileSet()
	syntax, err := parser.ParseFile(fset, p, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return file{}, fmt.Errorf("%s: %w", p, err)
	}
	return file{
		path: p, syntax: syntax, fset: fset, lines: strings.Count(string(text), "\n"),
		test: strings.HasSuffix(p, "_test.go"), generated: ast.IsGenerated(syntax),
	}, nil
}

// product leaves out tests, and generated files, which are not ours.
func product(files []file) []file {
	var out []file
	for _, f := range files {
		if !f.test && !f.generated {
			out = append(out, f)
		}
	}
	return out
}
