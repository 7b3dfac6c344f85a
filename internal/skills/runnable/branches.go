package runnable

import (
	"regexp"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// A script that looks whether a program is there needs it in one branch, and something else in the other. What is found
// in a branch is needed only where that branch is taken, see Need.When and Need.Unless. A branch for another system is
// not read.

var (
	otherSystems = regexp.MustCompile(`(?i)\b(?:darwin|mac ?os(?: ?x)?|osx|homebrew|windows(?:_nt)?|win32|mingw\w*|cygwin\w*|msys\w*|freebsd|openbsd|powershell)`)
	thisSystem   = regexp.MustCompile(`(?i)\b(?:linux|debian|ubuntu|all platforms|any platform)`)
	asksSystem   = regexp.MustCompile(`\buname\b|\bOSTYPE\b|(?i:\bos\b|\bplatform\b|\bos_?name\b|\bos_?type\b)`)
	givesUp      = regexp.MustCompile(`(?m)^\s*(?:exit|return)\s+[1-9]|\bsys\.exit\(|\bexit\(|^\s*raise\b|\bprocess\.exit\(`)
)

// isOther reports whether a text is about another system than the sandbox's, and not about this one as well.
func isOther(text string) bool {
	return otherSystems.MatchString(text) && !thisSystem.MatchString(text)
}

// condition says when a branch is taken, as Need does.
type condition struct{ when, unless string }

// and is the condition of a branch within, that is taken when a program is there, or when it is not.
func (c condition) and(there bool, program string) condition {
	if there {
		c.when = joinedWords(c.when, program)
	} else {
		c.unless = joinedWords(c.unless, program)
	}
	return c
}

// where is the place within a branch that is taken when the program is there, or when it is not.
func (p place) where(there bool, program string) place {
	p.condition = p.and(there, program)
	return p
}

func joinedWords(words, word string) string {
	switch {
	case word == "" || strings.Contains(" "+words+" ", " "+word+" "):
		return words
	case words == "":
		return word
	}
	return words + " " + word
}

// lookups ask whether a program is there.
var lookups = map[string]string{"command": "-v -V", "which": "", "hash": "", "type": "-p -P -t"}

// looksUp returns the program that a condition looks for, and whether the condition holds when it is missing.
func looksUp(stmts []*syntax.Stmt) (program string, negated bool) {
	if len(stmts) != 1 {
		return "", false
	}
	s := stmts[0]
	negated = s.Negated
	if b, ok := s.Cmd.(*syntax.TestClause); ok { // [[ -z "$(command -v x)" ]], [[ -x "$(command -v x)" ]]
		if u, ok := b.X.(*syntax.UnaryTest); ok {
			if w, ok := u.X.(*syntax.Word); ok {
				return lookupIn(w), negated != (u.Op == syntax.TsEmpStr)
			}
		}
		return "", false
	}
	call, ok := s.Cmd.(*syntax.CallExpr)
	if !ok || len(call.Args) == 0 {
		return "", false
	}
	words := make([]string, 0, len(call.Args))
	for _, w := range call.Args {
		words = append(words, literal(w))
	}
	if words[0] == "[" && len(call.Args) > 2 {
		return lookupIn(call.Args[2]), negated != (words[1] == "-z")
	}
	return lookedUp(words), negated
}

// lookupIn returns the program that is looked for by a command within a word.
func lookupIn(w *syntax.Word) (program string) {
	syntax.Walk(w, func(n syntax.Node) bool {
		if c, ok := n.(*syntax.CmdSubst); ok && program == "" {
			program, _ = looksUp(c.Stmts)
		}
		return true
	})
	return program
}

func lookedUp(words []string) string {
	options, ok := lookups[words[0]]
	if !ok {
		return ""
	}
	asks := options == "" || words[0] == "type"
	for _, w := range words[1:] {
		switch {
		case strings.HasPrefix(w, "-"):
			asks = asks || strings.Contains(" "+options+" ", " "+w+" ")
		case asks && toolName.MatchString(w) && w != "X":
			return w
		default:
			return ""
		}
	}
	return ""
}

// branches reads a statement whose parts are taken or not, and reports whether it was one.
func (p shellReader) branches(n syntax.Node, walk func(shellReader, ...syntax.Node)) bool {
	switch n := n.(type) {
	case *syntax.IfClause:
		p.ifClause(n, walk)
	case *syntax.CaseClause:
		if !asksSystem.MatchString(sourceOf(n.Word)) {
			return false
		}
		for _, item := range n.Items {
			var patterns strings.Builder
			for _, w := range item.Patterns {
				patterns.WriteString(" " + sourceOf(w))
			}
			if !isOther(patterns.String()) {
				walk(p, statements(item.Stmts)...)
			}
		}
	case *syntax.BinaryCmd:
		if n.Op != syntax.OrStmt && n.Op != syntax.AndStmt {
			return false
		}
		program, negated := looksUp([]*syntax.Stmt{n.X})
		switch {
		case program != "":
			p.branch((n.Op == syntax.AndStmt) != negated, program, []*syntax.Stmt{n.Y}, walk)
		case n.Op == syntax.OrStmt: // it is for what the first cannot
			walk(p, n.X)
			if program = firstProgram(n.X); program != "" {
				p.branch(false, program, []*syntax.Stmt{n.Y}, walk)
			}
		default:
			return false
		}
	default:
		return false
	}
	return true
}

func (p shellReader) ifClause(n *syntax.IfClause, walk func(shellReader, ...syntax.Node)) {
	program, negated := looksUp(n.Cond)
	cond := sourceOf(statements(n.Cond)...)
	taken := true
	switch {
	case program != "":
		p.branch(!negated, program, n.Then, walk)
	case asksSystem.MatchString(cond) && isOther(cond) && !strings.Contains(cond, "!"):
		taken = false
	default:
		walk(p, statements(n.Cond)...)
	}
	if program == "" && taken {
		walk(p, statements(n.Then)...)
	}
	if n.Else == nil {
		return
	}
	rest := p
	if program != "" {
		rest = shellReader{p.where(negated, program)}
	}
	if len(n.Else.Cond) > 0 { // elif
		rest.ifClause(n.Else, walk)
		return
	}
	if program != "" {
		p.branch(negated, program, n.Else.Then, walk)
		return
	}
	walk(p, statements(n.Else.Then)...)
}

// branch reads what runs when a program is there, or when it is not. A branch for its absence that gives up says that
// it is needed; so does one that installs it.
func (p shellReader) branch(there bool, program string, stmts []*syntax.Stmt, walk func(shellReader, ...syntax.Node)) {
	inside := shellReader{p.where(there, program)}
	if !there && givesUp.MatchString(sourceOf(statements(stmts)...)) {
		inside.command([]string{program})
		return
	}
	walk(inside, statements(stmts)...)
}

// firstProgram is the program of a plain command.
func firstProgram(s *syntax.Stmt) string {
	if call, ok := s.Cmd.(*syntax.CallExpr); ok && len(call.Args) > 0 {
		if name := literal(call.Args[0]); toolName.MatchString(name) && !builtins[name] && !wrappers[name] {
			return name
		}
	}
	return ""
}

func statements(list []*syntax.Stmt) []syntax.Node {
	nodes := make([]syntax.Node, 0, len(list))
	for _, s := range list {
		nodes = append(nodes, s)
	}
	return nodes
}

// sourceOf prints nodes again, a statement on each line.
func sourceOf(nodes ...syntax.Node) string {
	var b strings.Builder
	for _, n := range nodes {
		_ = syntax.NewPrinter().Print(&b, n) // what was parsed can be printed
		b.WriteByte('\n')
	}
	return b.String()
}
