package runnable

import (
	"regexp"
	"strings"
)

// This file finds which lines of a Python program start others for sure: a start may be written over many lines, its
// command line in a variable, and it may be a way that is tried, or taken where another one is closed.

var (
	listOf        = regexp.MustCompile(`^\s*(\w+)\s*(?::[^=]+)?=\s*\(?\s*\[\s*f?["']([^"'{}\s]+)["']`)
	definition    = regexp.MustCompile(`^\s*(?:async\s+)?def\s+(\w+)\s*\(`)
	askedQuestion = regexp.MustCompile(`^(?:el)?if\s+(?:not\s+)?\w+\(\)\s*:`)
	catchesStart  = regexp.MustCompile(`^except\b.*\b(?:FileNotFoundError|OSError|Exception)\b|^except\s*:`)
	goesOnSilent  = regexp.MustCompile(`^(?:pass|continue|return\s+False)$`)
)

const (
	// longStatement is how many lines of a statement are read.
	longStatement = 20
	// maxDefinitions is how many functions of a program are looked at.
	maxDefinitions = 200
)

// statement is a line, with those that belong to it when it opens more brackets than it closes.
func statement(lines []string, at int) string {
	open := brackets(lines[at])
	if open <= 0 {
		return lines[at]
	}
	end := at + 1
	for ; end < len(lines) && end < at+longStatement && open > 0; end++ {
		open += brackets(lines[end])
	}
	return strings.Join(lines[at:end], " ")
}

func brackets(line string) int {
	n := 0
	for i := range len(line) {
		switch line[i] {
		case '(', '[', '{':
			n++
		case ')', ']', '}':
			n--
		}
	}
	return n
}

// listsOf are the variables that hold a command line: some by their name, and those that a start takes.
func listsOf(lines []string) map[string]bool {
	lists := map[string]bool{"cmd": true, "command": true, "args": true, "argv": true}
	made := map[string]bool{}
	for i, line := range lines {
		if !strings.Contains(line, "=") {
			continue
		}
		if m := listOf.FindStringSubmatch(statement(lines, i)); m != nil {
			made[m[1]] = true
		}
	}
	for i, line := range lines {
		if !strings.Contains(line, "subprocess.") {
			continue
		}
		for _, m := range runsOther.FindAllStringSubmatch(statement(lines, i), -1) {
			if made[m[1]] {
				lists[m[1]] = true
			}
		}
	}
	return lists
}

// openerOf is the line that opens the block which a line is in, -1 for none.
func openerOf(lines []string, at int) int {
	indent := indentOf(lines[at])
	for i := at - 1; i >= max(0, at-near) && indent > 0; i-- {
		if strings.TrimSpace(lines[i]) != "" && indentOf(lines[i]) < indent {
			return i
		}
	}
	return -1
}

// mayFail reports whether a program that a line starts may be missing: the line stands in a `try` whose `except` only
// says no, or passes.
func mayFail(lines []string, at int) bool {
	try := openerOf(lines, at)
	if try < 0 || strings.TrimSpace(lines[try]) != "try:" {
		return false
	}
	for i := try + 1; i < min(len(lines), try+near); i++ {
		t := strings.TrimSpace(lines[i])
		if t == "" || indentOf(lines[i]) > indentOf(lines[try]) {
			continue
		}
		return catchesStart.MatchString(t) && every(lines[i+1:], indentOf(lines[i]), goesOnSilent.MatchString)
	}
	return false
}

// fallbacksOf are the lines that run only when the program has asked its surroundings something, as in `if
// needs_shim():`, and those of functions that are called there alone.
func fallbacksOf(lines []string) map[int]bool {
	within := map[int]bool{}
	for i, line := range lines {
		if strings.TrimSpace(line) == "" {
			continue
		}
		if o := openerOf(lines, i); o >= 0 && (within[o] || askedQuestion.MatchString(strings.TrimSpace(lines[o]))) {
			within[i] = true
		}
	}
	if len(within) == 0 {
		return within
	}
	definitions := 0
	for i, line := range lines {
		m := definition.FindStringSubmatch(line)
		if m == nil || within[i] {
			continue
		}
		if definitions++; definitions > maxDefinitions {
			break
		}
		if !calledOnlyIn(within, lines, m[1], i) {
			continue
		}
		for j := i + 1; j < len(lines) && (strings.TrimSpace(lines[j]) == "" || indentOf(lines[j]) > indentOf(line)); j++ {
			within[j] = true
		}
	}
	return within
}

// calls reports whether a line has a call of a function, or of a method of that name.
func calls(line, name string) bool {
	for rest := line; ; {
		before, after, found := strings.Cut(rest, name+"(")
		if !found {
			return false
		}
		if before == "" || !isWord(before[len(before)-1]) {
			return true
		}
		rest = after
	}
}

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

// calledOnlyIn reports whether a function is called, and in these lines alone.
func calledOnlyIn(within map[int]bool, lines []string, name string, definedAt int) bool {
	called := false
	for i, line := range lines {
		if i == definedAt || !calls(line, name) {
			continue
		}
		if !within[i] {
			return false
		}
		called = true
	}
	return called
}
