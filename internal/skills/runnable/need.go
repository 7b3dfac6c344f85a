package runnable

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Kind is what kind of thing a skill needs.
type Kind string

// Kinds of a Need.
const (
	Command Kind = "command" // a program on PATH
	Script  Kind = "script"  // a program of which one is enough, by all their names: "bun, deno or node"
	Module  Kind = "module"  // a Python module, by the name that is imported
	Python  Kind = "python"  // a Python distribution, by its name on PyPI
	Node    Kind = "node"    // an npm package that a program imports
	NodeCLI Kind = "npx"     // an npm package whose program is run
	System  Kind = "package" // a package of the system's or conda's, or the program of that name
	File    Kind = "file"    // a file of the skill's own folder
	Network Kind = "network" // a host outside, or "" for any
	Version Kind = "runtime" // a version of python3 itself
	Mention Kind = "mention" // a program or package that plain text names: what happens without it is unknown
	Format  Kind = "format"  // a kind of file that is to be written, "docx": what happens without anything that writes it is unknown
)

// Need is one thing that a skill needs, and where it says so first.
type Need struct {
	Kind  Kind
	Name  string
	Range string // of versions, as the ecosystem writes it; "" for any
	// When and Unless are programs, with spaces between: it is needed only where all of the first are there, and
	// none of the second.
	When, Unless string `json:",omitempty"`
	File         string // relative to the skill's folder
	Line         int    // from 1; 0 = the file as a whole
}

// String is the need as `missing` shows it: "python pandas>=2", "command pandoc".
func (n Need) String() string {
	switch n.Kind {
	case Module:
		return "python " + distributionOf(n.Name)
	case NodeCLI, Node:
		return "node " + n.Name + prefixed("@", n.Range)
	case Version:
		return "python3" + n.Range
	case Network:
		if n.Name == "" {
			return "network"
		}
	case Mention:
		return n.Name
	case Script:
		return "command " + n.Name
	case Format:
		return "something that writes ." + n.Name
	case Command, Python, System, File:
	}
	return string(n.Kind) + " " + n.Name + n.Range
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

// Doubt is something that may need more than can be told.
type Doubt struct {
	File string
	Line int
	Why  string
}

func (d Doubt) String() string {
	if d.Line > 0 {
		return fmt.Sprintf("%s:%d: %s", d.File, d.Line, d.Why)
	}
	return d.File + ": " + d.Why
}

// Needs is what a skill needs, each thing once, sorted.
type Needs struct {
	List   []Need
	Doubts []Doubt
}

// maxFound bounds needs and doubts, each: more of them say nothing more.
const maxFound = 500

// finder collects what is found in one folder.
type finder struct {
	needs  map[Need]Need // by what it is, without its place
	doubts map[Doubt]bool
	local  localNames

	here bool // in the server's own process: what is nested deeply is read apart
	deep bool // there is something that is
}

// place is where the finder reads now.
type place struct {
	*finder
	condition // of what is found here
	file      string
	line      int  // of the text that is read, from 1
	text      bool // instructions for an agent, who can put right what a shell could not; not a script
	main      bool // SKILL.md
}

func (p place) need(k Kind, name string) { p.needRange(k, name, "") }

func (p place) needRange(k Kind, name, versions string) {
	name = strings.TrimSpace(name)
	if name == "" && k != Network && k != Version || len(name) > 200 || len(p.needs) >= maxFound {
		return
	}
	key := Need{Kind: k, Name: name, Range: versions, When: p.when, Unless: p.unless}
	if p.when+p.unless != "" {
		if _, always := p.needs[Need{Kind: k, Name: name, Range: versions}]; always {
			return
		}
	}
	if _, ok := p.needs[key]; !ok {
		at := key
		at.File, at.Line = p.file, p.line
		p.needs[key] = at
	}
}

func (p place) doubt(format string, args ...any) {
	if len(p.doubts) < maxFound {
		p.doubts[Doubt{File: p.file, Line: p.line, Why: fmt.Sprintf(format, args...)}] = true
	}
}

func (p place) at(line int) place {
	p.line = line
	return p
}

func (f *finder) found() Needs {
	var n Needs
	for _, need := range f.needs {
		unused := f.unused(need)
		if unused {
			need.Kind, need.Range = Mention, ""
		}
		if need.Kind == Mention && !unused && f.needed(need.Name) {
			continue
		}
		n.List = append(n.List, need)
	}
	for d := range f.doubts {
		n.Doubts = append(n.Doubts, d)
	}
	slices.SortFunc(n.List, func(a, b Need) int { return strings.Compare(a.String(), b.String()) })
	slices.SortFunc(n.Doubts, func(a, b Doubt) int {
		if a.File != b.File {
			return strings.Compare(a.File, b.File)
		}
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return strings.Compare(a.Why, b.Why)
	})
	return n
}

// unused reports whether requirements.txt names a package that no program of the skill imports, though there are some
// in Python. Such lists are often longer than what runs.
func (f *finder) unused(n Need) bool {
	if n.Kind != Python || !isRequirements(path.Base(n.File)) || !f.hasPython() {
		return false
	}
	for _, other := range f.needs {
		if other.Kind == Module && distributionOf(other.Name) == normalized(n.Name) {
			return false
		}
	}
	return true
}

func (f *finder) hasPython() bool {
	for name := range f.local {
		if strings.HasSuffix(name, ".py") {
			return true
		}
	}
	return false
}

// needed reports whether what a text mentions is a need anyway.
func (f *finder) needed(name string) bool {
	for _, n := range f.needs {
		switch n.Kind {
		case Module:
			if distributionOf(n.Name) == name {
				return true
			}
		case Command, Python, Node, NodeCLI, System:
			if strings.EqualFold(n.Name, name) || n.Name == programOf[name] {
				return true
			}
		case File, Network, Version, Mention, Format, Script:
		}
	}
	return false
}
