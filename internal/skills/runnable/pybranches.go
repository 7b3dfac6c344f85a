package runnable

import (
	"regexp"
	"strings"
)

var (
	pythonIf       = regexp.MustCompile(`^(?:el)?if\b(.*?):`)
	pythonElse     = regexp.MustCompile(`^(?:else\s*:|elif\b)`)
	pythonSystem   = regexp.MustCompile(`\bsys\.platform\b|\bplatform\.system\(\)|\bos\.name\b`)
	pythonOther    = regexp.MustCompile(`["'](?:darwin|Darwin|win32|win|Windows|windows|cygwin|nt|java|freebsd\w*)["']`)
	pythonThis     = regexp.MustCompile(`["'](?:linux\d?|Linux|posix)["']`)
	pythonNegation = regexp.MustCompile(`\bnot\b|!=|\bis\s+None\b|==\s*None\b`)
	eitherWhich    = regexp.MustCompile(`\bshutil\.which\(\s*["']([\w.+-]+)["']\s*\)\s*or\s+shutil\.which\(\s*["']([\w.+-]+)["']`)
)

// branch is a part of a program that runs under a condition.
type branch struct {
	condition
	indent  int    // of its if
	skipped bool   // it is for another system
	program string // that the if asks for; "": for none
	there   bool   // the branch is the one for its presence
}

// maxBranches bounds how many branches are open at once.
const maxBranches = 100

// branchesOf returns the branch that each line is in; nil for one that always runs. asks are the lines that only ask
// whether a program is there, for which they need nothing.
func branchesOf(lines []string) (of []*branch, asks map[int]bool) {
	of, asks = make([]*branch, len(lines)), map[int]bool{}
	var open []*branch
	for i, line := range lines {
		t := strings.TrimSpace(line)
		if t == "" {
			continue
		}
		indent := indentOf(line)
		var ended *branch
		for len(open) > 0 && indent <= open[len(open)-1].indent {
			ended, open = open[len(open)-1], open[:len(open)-1]
		}
		var outer *branch
		if len(open) > 0 {
			outer = open[len(open)-1]
		}
		of[i] = outer
		if ended != nil && ended.indent == indent && pythonElse.MatchString(t) {
			outer = ended.other(outer)
			of[i] = outer
		} else if !strings.HasPrefix(t, "if ") && !strings.HasPrefix(t, "if(") {
			continue
		}
		if len(open) >= maxBranches {
			continue
		}
		next := branchOf(outer, indent, t)
		asks[i] = next.program != ""
		open = append(open, next)
	}
	return of, asks
}

// branchOf is what an if, an elif or an else opens within a branch.
func branchOf(outer *branch, indent int, text string) *branch {
	b := branch{}
	if outer != nil {
		b = *outer
	}
	b.indent, b.program = indent, ""
	m := pythonIf.FindStringSubmatch(text)
	if m == nil {
		return &b
	}
	cond := m[1]
	negated := pythonNegation.MatchString(cond)
	which := asksWhich.FindAllStringSubmatch(cond, 2)
	switch {
	case pythonSystem.MatchString(cond):
		b.skipped = b.skipped || pythonOther.MatchString(cond) && !pythonThis.MatchString(cond) && !negated || pythonThis.MatchString(cond) && negated
	case len(which) == 1 && !strings.Contains(cond, " and ") && !strings.Contains(cond, " or "):
		b.program, b.there = which[0][1], !negated
		b.condition = b.and(b.there, b.program)
	}
	return &b
}

// other is the branch that runs when this one does not.
func (b *branch) other(outer *branch) *branch {
	o := branch{}
	if outer != nil {
		o = *outer
	}
	o.indent = b.indent
	if b.program != "" {
		o.program, o.there = b.program, !b.there
		o.condition = o.and(o.there, o.program)
	}
	return &o
}

// in is the place within a branch.
func (p place) in(b *branch) place {
	if b == nil {
		return p
	}
	for w := range strings.FieldsSeq(b.when) {
		p = p.where(true, w)
	}
	for w := range strings.FieldsSeq(b.unless) {
		p = p.where(false, w)
	}
	return p
}
