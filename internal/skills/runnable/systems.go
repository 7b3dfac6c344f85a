package runnable

import (
	"regexp"
	"strings"
)

var (
	heading    = regexp.MustCompile(`^(#{1,6})\s+(.*)`)
	shellFence = regexp.MustCompile("(?m)^\\s{0,12}(?:`{3,}|~{3,})\\s*(?:bash|sh|shell|zsh|console|python)\\b")
	// forSystem is a line that says which system what follows is for: "On macOS:", "- **Windows** (PowerShell)".
	forSystem = regexp.MustCompile(`(?i)^[\s>*_#\-+\d.)]*(?:on|for|under|if on)?\s*[*_]*(?:mac ?os(?: ?x)?|os ?x|osx|darwin|windows|homebrew)\b`)
)

// otherBlocks are languages of code blocks that another system runs.
var otherBlocks = setOf("powershell pwsh ps1 applescript bat cmd batch dos")

// systems follows which parts of a document are for another system than the sandbox's.
type systems struct {
	hasShell bool // the document has code for this system as well
	level    int  // of the heading that names another system; 0: none
	label    bool // the last line that is not empty names one
}

// skips reports whether a line outside of code is for another system.
func (s *systems) skips(line string) bool {
	if strings.TrimSpace(line) == "" {
		return s.level > 0
	}
	other := forSystem.MatchString(line) && isOther(line)
	if m := heading.FindStringSubmatch(line); m != nil {
		level := len(m[1])
		switch {
		case s.level > 0 && level > s.level: // a part of the other system's
		case other:
			s.level = level
		default:
			s.level = 0
		}
		s.label = false
		return s.level > 0
	}
	s.label = other
	return other || s.level > 0
}

// skipsBlock reports whether a block of code is for another system.
func (s *systems) skipsBlock(language string) bool {
	label := s.label
	s.label = false
	return s.level > 0 || label || s.hasShell && otherBlocks[language]
}

// withoutOthers takes from a block of commands those below a comment that names another system, up to the next comment
// or empty line. Lines stay where they are.
func withoutOthers(lines []string) []string {
	kept := make([]string, len(lines))
	skip := false
	for i, line := range lines {
		t := strings.TrimSpace(line)
		if t == "" || strings.HasPrefix(t, "#") {
			skip = strings.HasPrefix(t, "#") && forSystem.MatchString(t) && isOther(t)
		}
		if !skip {
			kept[i] = line
		}
	}
	return kept
}
