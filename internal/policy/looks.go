package policy

import (
	"fmt"
	"maps"
	"slices"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
)

// looks are the names of arguments at which a condition looks. A call with such a name in another case cannot be
// judged: the condition does not see it, and the MCP server may take it for the name that is meant.
type looks struct {
	paths [][]string // from the arguments down: args.user.id is user, id
	words []string   // anywhere: of an object that the condition finds in another way
}

// looksOf finds the names in a condition. Within a loop a text may be compared with a name, so that all texts count.
func looksOf(e ast.Expr, loops bool) looks {
	var l looks
	ast.PreOrderVisit(e, ast.NewExprVisitor(func(e ast.Expr) {
		if object, name, ok := nameIn(e); ok {
			if path, known := pathOf(object); known {
				l.paths = append(l.paths, append(path, name))
			} else {
				l.words = append(l.words, name)
			}
		} else if text, ok := textOf(e); ok && loops {
			l.words = append(l.words, text)
		}
	}))
	return l
}

// nameIn reads an expression that takes a name from an object, or asks whether the name is there: o.name, o.?name,
// o["name"], o[?"name"], "name" in o.
func nameIn(e ast.Expr) (object ast.Expr, name string, ok bool) {
	switch e.Kind() {
	case ast.SelectKind:
		return e.AsSelect().Operand(), e.AsSelect().FieldName(), true
	case ast.CallKind:
		args := e.AsCall().Args()
		if len(args) != 2 {
			return nil, "", false
		}
		switch e.AsCall().FunctionName() {
		case operators.Index, operators.OptIndex, operators.OptSelect:
			name, ok = textOf(args[1])
			return args[0], name, ok
		case operators.In:
			name, ok = textOf(args[0])
			return args[1], name, ok
		}
	}
	return nil, "", false
}

// pathOf returns where an object is in the arguments; known is false when that is not written in the expression.
func pathOf(e ast.Expr) (path []string, known bool) {
	if e.Kind() == ast.IdentKind {
		return nil, e.AsIdent() == "args"
	}
	object, name, ok := nameIn(e)
	if !ok {
		return nil, false
	}
	path, known = pathOf(object)
	return append(path, name), known
}

func textOf(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	text, ok := e.AsLiteral().(types.String)
	return string(text), ok
}

// check reports a name in the arguments that differs in case from one at which the condition looks.
func (l looks) check(args any) error {
	for _, path := range l.paths {
		v := args
		for _, name := range path {
			object, ok := v.(map[string]any)
			if !ok {
				break
			}
			if err := checkNames(object, map[string][]string{foldName(name): {name}}); err != nil {
				return err
			}
			v = object[name]
		}
	}
	if len(l.words) == 0 {
		return nil
	}
	meant := map[string][]string{}
	for _, w := range l.words {
		meant[foldName(w)] = append(meant[foldName(w)], w)
	}
	return checkAll(args, meant)
}

func checkAll(v any, meant map[string][]string) error {
	switch v := v.(type) {
	case map[string]any:
		if err := checkNames(v, meant); err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if err := checkAll(v[name], meant); err != nil {
				return err
			}
		}
	case []any:
		for _, x := range v {
			if err := checkAll(x, meant); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkNames looks at one object. meant has the names by how they fold.
func checkNames(object map[string]any, meant map[string][]string) error {
	for name := range object {
		as := meant[foldName(name)]
		if len(as) > 0 && !slices.Contains(as, name) {
			return fmt.Errorf("the arguments have %s, which some programs take for %s", shownPath([]string{name}), shownPath(as[:1]))
		}
	}
	return nil
}
