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

// near is how far, in lines, a line may be from what opens its block, and a `try` from its `except`.
const near = 100

// openersOf returns for each line that which opens the block it is in, -1 for none.
func openersOf(lines []string) []int {
	openers := make([]int, len(lines))
	var open []int // each more indented than the one before
	for i, line := range lines {
		openers[i] = -1
		if strings.TrimSpace(line) == "" {
			continue
		}
		for len(open) > 0 && indentOf(lines[open[len(open)-1]]) >= indentOf(line) {
			open = open[:len(open)-1]
		}
		if len(open) > 0 && i-open[len(open)-1] <= near {
			openers[i] = open[len(open)-1]
		}
		open = append(open, i)
	}
	return openers
}

// mayFail reports whether a program that a line starts may be missing: the line stands in a `try` whose `except` only
// says no, or passes.
func mayFail(lines []string, openers []int, at int) bool {
	try := openers[at]
	return try >= 0 && strings.TrimSpace(lines[try]) == "try:" && caught(lines, try, indentOf(lines[try]), catchesStart.MatchString, goesOnSilent.MatchString)
}

// caught reports whether a `try` that is indented so is followed, after a line, by an `except` that catches what is asked
// for, and all of whose lines are so.
func caught(lines []string, after, indent int, catches, so func(line string) bool) bool {
	for i := after + 1; i < min(len(lines), after+near); i++ {
		t := strings.TrimSpace(lines[i])
		if t == "" || indentOf(lines[i]) > indent {
			continue
		}
		return catches(t) && every(lines[i+1:], indent, so)
	}
	return false
}

// every reports whether all lines of a block are so: those that are indented more than the line that opens it.
func every(body []string, indent int, so func(line string) bool) bool {
	for _, line := range body[:min(len(body), near)] {
		t := strings.TrimSpace(line)
		if t == "" {
			continue
		}
		if indentOf(line) <= indent {
			return true
		}
		if !so(t) {
			return false
		}
	}
	return true
}

// fallbacksOf are the lines that run only when the program has asked its surroundings something, as in `if
// needs_shim():`, and those of functions that are called there alone.
func fallbacksOf(lines []string, openers []int) map[int]bool {
	within := map[int]bool{}
	for i := range lines {
		if o := openers[i]; o >= 0 && (within[o] || askedQuestion.MatchString(strings.TrimSpace(lines[o]))) {
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
