package archtest

import (
	"fmt"
	"go/ast"
	"maps"
	"path"
	"slices"
	"strings"
)

// The largest that a part may be. A larger one holds a second part, which needs a name of its own.
const (
	maxMethods          = 25   // of a type
	maxFields           = 20   // of a struct
	maxInterfaceMethods = 8    // of an interface: its consumer needs only some of them
	maxPackageLines     = 4000 // without tests and generated code
)

// The things that have a size.
const (
	methods          = "methods"
	fields           = "fields"
	interfaceMethods = "methods of an interface"
	packageLines     = "lines"
)

var limits = map[string]int{methods: maxMethods, fields: maxFields, interfaceMethods: maxInterfaceMethods, packageLines: maxPackageLines}

// part is a type or a package: its name is "internal/store.Store" or "internal/store".
type part struct{ name, what string }

func (p part) String() string { return p.what + " " + p.name }

// sizes measures all types and packages of the product, without commands of tests and the like.
func sizes(files []file) map[part]int {
	all := map[part]int{}
	for _, f := range product(files) {
		if forTests(f.dir()) || !within(f.dir(), "internal") && !within(f.dir(), "cmd") && !within(f.dir(), "sdk") {
			continue
		}
		all[part{f.dir(), packageLines}] += f.lines
		for _, d := range f.syntax.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil {
					all[part{f.dir() + "." + receiver(d.Recv.List[0].Type), methods}]++
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if t, ok := s.(*ast.TypeSpec); ok {
						sizeOfType(all, f.dir()+"."+t.Name.Name, t.Type)
					}
				}
			}
		}
	}
	return all
}

func sizeOfType(all map[part]int, name string, t ast.Expr) {
	switch t := t.(type) {
	case *ast.StructType:
		all[part{name, fields}] = count(t.Fields)
	case *ast.InterfaceType:
		all[part{name, interfaceMethods}] = count(t.Methods)
	}
}

// count counts names: two fields may stand in one line, and an embedded one has no name.
func count(list *ast.FieldList) int {
	n := 0
	for _, f := range list.List {
		n += max(1, len(f.Names))
	}
	return n
}

// receiver returns the name of a method's type, without its star and its type parameters.
func receiver(t ast.Expr) string {
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name
		default:
			return "?"
		}
	}
}

// checkSizes compares sizes with the limits and with the list of known exceptions. The list only shrinks: an
// entry that is too high is a violation, too.
func checkSizes(files []file, known map[part]exception) []string {
	all := sizes(files)
	var bad []string
	for _, p := range inOrder(all) {
		n, limit := all[p], limits[p.what]
		e, listed := known[p]
		had := e.size
		switch {
		case listed && e.why == "":
			bad = append(bad, fmt.Sprintf("%s is an exception without a reason", p))
		case n > limit && !listed:
			bad = append(bad, fmt.Sprintf("%s has %d %s, more than %d: find the second part in it", p.name, n, p.what, limit))
		case listed && n > had:
			bad = append(bad, fmt.Sprintf("%s has %d %s, and had %d: it may only shrink", p.name, n, p.what, had))
		case listed && n <= limit:
			bad = append(bad, fmt.Sprintf("%s has %d %s now: remove it from the list in internal/archtest/oversize_test.go", p.name, n, p.what))
		case listed && n < had:
			bad = append(bad, fmt.Sprintf("%s has %d %s now: write that into internal/archtest/oversize_test.go", p.name, n, p.what))
		}
	}
	for _, p := range inOrder(known) {
		if _, there := all[p]; !there {
			bad = append(bad, fmt.Sprintf("%s is not there: remove it from the list in internal/archtest/oversize_test.go", p))
		}
	}
	return bad
}

func inOrder[V any](all map[part]V) []part {
	return slices.SortedFunc(maps.Keys(all), func(a, b part) int { return strings.Compare(a.String(), b.String()) })
}

// checkMutexes: a package with a mutex has a paragraph in doc.go that begins with "Locks:". It says what
// each mutex guards and which ones may be taken while it is held.
func checkMutexes(files []file) []string {
	has, says := map[string]bool{}, map[string]bool{}
	for _, f := range product(files) {
		if path.Base(f.path) == "doc.go" && f.syntax.Doc != nil && strings.Contains(f.syntax.Doc.Text(), "\nLocks:") {
			says[f.dir()] = true
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				x, ok := sel.X.(*ast.Ident)
				has[f.dir()] = has[f.dir()] || ok && x.Name == "sync" && (sel.Sel.Name == "Mutex" || sel.Sel.Name == "RWMutex")
			}
			return true
		})
	}
	var bad []string
	for _, dir := range slices.Sorted(maps.Keys(has)) {
		if has[dir] && !says[dir] {
			bad = append(bad, dir+`: has a mutex, and its doc.go has no paragraph "Locks:" that says what it guards and what may be taken while it is held`)
		}
	}
	return bad
}
