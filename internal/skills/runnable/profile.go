package runnable

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	pep440 "github.com/aquasecurity/go-pep440-version"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Profile is what the sandboxes of a template have.
type Profile struct {
	Python        string            // version of python3; "" = there is none
	Commands      map[string]bool   // programs on PATH
	Modules       map[string]bool   // top-level Python modules that can be imported, the standard library's too
	Distributions map[string]string // Python distributions by normalised name, with their version
	Node          map[string]string // npm packages that a script in a skill can import, with their version
	NodeGlobal    map[string]string // npm packages that are installed globally, which only their own programs see
	System        map[string]bool   // packages of the system
}

// Limits of what a probe may say. An image is an administrator's, but its output is data.
const (
	maxProbeOutput  = 8 << 20
	maxProbeEntries = 200_000
)

// parseProfile reads what probeScript prints: lines of a kind, a name and a version, with tabs between, and
// a last one "end". An error: it did not come to its end, or is no such text.
func parseProfile(out []byte) (Profile, error) {
	p := Profile{
		Commands: map[string]bool{}, Modules: map[string]bool{}, Distributions: map[string]string{},
		Node: map[string]string{}, NodeGlobal: map[string]string{}, System: map[string]bool{},
	}
	if len(out) > maxProbeOutput {
		return p, errors.New("probe: too much output")
	}
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 64<<10)
	for n := 0; lines.Scan(); n++ {
		if n > maxProbeEntries {
			return p, errors.New("probe: too many entries")
		}
		kind, rest, _ := strings.Cut(lines.Text(), "\t")
		name, version, _ := strings.Cut(rest, "\t")
		switch kind {
		case "end":
			return p, nil
		case "v":
			p.Python = name
		case "c":
			p.Commands[name] = true
		case "m":
			p.Modules[name] = true
		case "d":
			p.Distributions[normalized(name)] = version
		case "n":
			p.Node[name] = version
		case "g":
			p.NodeGlobal[name] = version
		case "s":
			p.System[name] = true
		default:
			return p, fmt.Errorf("probe: a line that is none: %.80q", lines.Text())
		}
	}
	return p, errors.New("probe: it did not come to its end")
}

// state is whether a need is met.
type state int

const (
	there state = iota
	notThere
	perhaps
)

// maxShown bounds the lists of a verdict.
const maxShown = 50

// Check compares what a skill needs with what a template has.
func (p Profile) Check(n Needs) sandbox.Runnable {
	missing, unsure := []string{}, []string(nil)
	for _, need := range n.List {
		if !p.taken(need) {
			continue
		}
		switch p.has(need) {
		case notThere:
			missing = append(missing, need.String())
		case perhaps:
			unsure = append(unsure, Doubt{File: need.File, Line: need.Line, Why: doubtOf(need)}.String())
		case there:
		}
	}
	for _, d := range n.Doubts {
		unsure = append(unsure, d.String())
	}
	slices.Sort(missing)
	missing = slices.Compact(missing)
	r := sandbox.Runnable{Template: sandbox.RunnableYes, Missing: missing[:min(len(missing), maxShown)]}
	switch {
	case len(missing) > 0:
		r.Template = sandbox.RunnableNo
	case len(unsure) > 0:
		r.Template, r.Unsure = sandbox.RunnableUnknown, unsure[:min(len(unsure), maxShown)]
	}
	return r
}

// taken reports whether the branch of a script that has the need is the one that runs here.
func (p Profile) taken(n Need) bool {
	for program := range strings.FieldsSeq(n.When) {
		if !p.Commands[program] {
			return false
		}
	}
	for program := range strings.FieldsSeq(n.Unless) {
		if p.Commands[program] {
			return false
		}
	}
	return true
}

func doubtOf(n Need) string {
	switch n.Kind {
	case Mention:
		return "mentions " + n.Name + ", which is not there"
	case Format:
		return "wants " + n.String() + ", and nothing of the usual is there"
	case Command, Script, Module, Python, Node, NodeCLI, System, File, Network, Version:
	}
	return "needs " + n.String() + ", which may be there"
}

func (p Profile) has(n Need) state {
	switch n.Kind {
	case Command:
		return is(p.Commands[n.Name])
	case Script:
		return is(slices.ContainsFunc(javascripts, func(name string) bool { return p.Commands[name] }))
	case Module:
		return is(p.Modules[n.Name])
	case Python:
		return p.hasDistribution(n)
	case Version:
		if p.Python == "" {
			return notThere
		}
		return inRange(p.Python, n.Range)
	case Node:
		if v, ok := p.Node[n.Name]; ok {
			return inNodeRange(v, n.Range)
		}
		if _, ok := p.NodeGlobal[n.Name]; ok {
			return perhaps // its program runs; an import of it fails unless NODE_PATH says where it is
		}
		return notThere
	case NodeCLI:
		_, global := p.NodeGlobal[n.Name]
		return is(global || p.Commands[lastPart(n.Name)])
	case System:
		_, dist := p.Distributions[normalized(n.Name)]
		return is(p.System[n.Name] || p.Commands[n.Name] || p.Commands[programOf[n.Name]] || dist)
	case Mention:
		return p.mention(n.Name)
	case Format:
		for _, name := range writers[n.Name] {
			if p.mention(name) == there {
				return there
			}
		}
		return perhaps
	case File, Network: // files of the skill that are there are no needs, and no sandbox has a network
	}
	return notThere
}

// mention looks for a program or package of any kind.
func (p Profile) mention(name string) state {
	_, node := p.Node[name]
	if node || p.Commands[name] || p.Commands[programOf[name]] || p.hasDistribution(Need{Name: name}) == there {
		return there
	}
	return perhaps
}

func (p Profile) hasDistribution(n Need) state {
	name := normalized(n.Name)
	version, ok := p.Distributions[name]
	if ok {
		return inRange(version, n.Range)
	}
	for module, dist := range distributions {
		if normalized(dist) == name && p.Modules[module] && n.Range == "" {
			return there
		}
	}
	// Distributions such as opencv-python-headless contain the module of another one, and some modules
	// come without any.
	return is(n.Range == "" && p.Modules[strings.ReplaceAll(name, "-", "_")])
}

func is(ok bool) state {
	if ok {
		return there
	}
	return notThere
}

func lastPart(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

// inRange compares by the rules of PEP 440.
func inRange(version, versions string) state {
	if versions == "" {
		return there
	}
	v, err := pep440.Parse(version)
	if err != nil {
		return perhaps
	}
	s, err := pep440.NewSpecifiers(versions)
	if err != nil {
		return perhaps
	}
	return is(s.Check(v))
}

// inNodeRange compares by the rules of npm.
func inNodeRange(version, versions string) state {
	if versions == "" || versions == "*" {
		return there
	}
	v, err := semver.NewVersion(version)
	if err != nil {
		return perhaps
	}
	c, err := semver.NewConstraint(versions)
	if err != nil {
		return perhaps
	}
	return is(c.Check(v))
}
