package archtest

import (
	"fmt"
	"go/ast"
	"regexp"
	"strings"
)

// checkTable: a package has one row. Of two, the first would have no effect.
func checkTable(rows []row) []string {
	var bad []string
	seen := map[string]bool{}
	for _, r := range rows {
		if seen[r.dir] {
			bad = append(bad, "internal/archtest/table_test.go: two rows for "+r.dir)
		}
		seen[r.dir] = true
	}
	return bad
}

// checkImports applies the table to all but tests.
func checkImports(files []file) []string {
	rows := map[string]row{}
	for _, r := range table {
		rows[r.dir] = r
	}
	var bad []string
	missing := map[string]bool{}
	for _, f := range files {
		if f.test || within(f.dir(), "cmd") {
			continue
		}
		r, ok := rows[f.dir()]
		if !ok {
			if !missing[f.dir()] {
				bad = append(bad, f.dir()+": has no row in internal/archtest/table_test.go")
			}
			missing[f.dir()] = true
			continue
		}
		for _, imp := range f.imports() {
			if own, ours := strings.CutPrefix(imp, module); ours && own != r.dir && !r.allows(own) {
				bad = append(bad, fmt.Sprintf("%s imports %s: %s", f.path, own, r.why))
			}
		}
	}
	return bad
}

var vague = regexp.MustCompile(`^(utils?|commons?|helpers?|managers?|misc|shared|base)$`)

// checkNames refuses names that say nothing.
func checkNames(files []file) []string {
	var bad []string
	for _, f := range files {
		if vague.MatchString(strings.TrimSuffix(f.syntax.Name.Name, "_test")) {
			bad = append(bad, fmt.Sprintf("%s: the package name %s says nothing", f.path, f.syntax.Name.Name))
		}
	}
	return bad
}

// forTests are packages that only tests use; they may read CI and the like.
func forTests(dir string) bool {
	return within(dir, "internal/driver/drivertest") || dir == "internal/store/redistest" || dir == "internal/platform/s3/s3test" || dir == "sdk/go/packs/conformance" || dir == "packs/sql/pgtest"
}

var environment = map[string]string{"Getenv": "os", "LookupEnv": "os", "Environ": "os", "ExpandEnv": "os", "Setenv": "os", "Unsetenv": "os"}

// checkEnvironment: only programs and internal/app read or set the environment. internal/app takes keys out of it before
// the server starts a child.
func checkEnvironment(files []file) []string {
	var bad []string
	for _, f := range product(files) {
		if within(f.dir(), "cmd") || within(f.dir(), "internal/app") || within(f.dir(), "bench") || f.dir() == "packs/sql/skerry-pack-sql" || forTests(f.dir()) {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, ok := sel.X.(*ast.Ident)
			if ok && (x.Name == "os" || x.Name == "syscall" || x.Name == "unix") && environment[sel.Sel.Name] != "" {
				bad = append(bad, fmt.Sprintf("%s: %s.%s outside of cmd/", f.at(n), x.Name, sel.Sel.Name))
			}
			return true
		})
	}
	return bad
}

// checkDocs: each package has one package comment, each exported name a comment.
func checkDocs(files []file) []string {
	comments := map[string]int{}
	var bad []string
	for _, f := range product(files) {
		if _, seen := comments[f.dir()]; !seen {
			comments[f.dir()] = 0
		}
		if f.syntax.Doc != nil {
			comments[f.dir()]++
		}
		for _, d := range f.syntax.Decls {
			bad = append(bad, undocumented(f, d)...)
		}
	}
	for dir, n := range comments {
		if n != 1 {
			bad = append(bad, fmt.Sprintf("%s: %d package comments, want one", dir, n))
		}
	}
	return bad
}

func undocumented(f file, d ast.Decl) []string {
	var bad []string
	check := func(name *ast.Ident, comments ...*ast.CommentGroup) {
		for _, c := range comments {
			if c != nil {
				return
			}
		}
		if name.IsExported() {
			bad = append(bad, fmt.Sprintf("%s: %s has no comment", f.at(name), name.Name))
		}
	}
	switch d := d.(type) {
	case *ast.FuncDecl:
		if needsComment(d) {
			check(d.Name, d.Doc)
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				check(s.Name, d.Doc, s.Doc)
			case *ast.ValueSpec:
				for _, name := range s.Names {
					check(name, d.Doc, s.Doc, s.Comment)
				}
			}
		}
	}
	return bad
}

// needsComment: a method of an unexported type fulfils an interface that documents it. The same goes
// for the names that interfaces of the standard library fix.
func needsComment(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	switch d.Name.Name {
	case "Error", "String", "Unwrap", "Is", "Len", "Less", "Swap":
		return false
	}
	t := d.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return false
		}
	}
}
