package runnable

import (
	"encoding/json"
	"path"
	"regexp"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// requirement is the form of PEP 508 that is in use: name[extras] range ; marker.
var requirement = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*\(?\s*((?:(?:===|==|~=|!=|<=|>=|<|>)\s*[^\s,;()]+\s*,?\s*)*)\)?\s*(?:;(.*))?$`)

// elsewhere matches markers of systems that sandboxes never are.
var elsewhere = regexp.MustCompile(`(?:sys_platform|platform_system|os_name)\s*==\s*["'](?:win32|Windows|darwin|Darwin|nt|cygwin)["']|extra\s*==`)

// requirementLine reads one requirement; false when it is none that can be read.
func (p place) requirementLine(line string) bool {
	line = strings.TrimSpace(line)
	m := requirement.FindStringSubmatch(line)
	if m == nil {
		return false
	}
	if elsewhere.MatchString(m[3]) {
		return true
	}
	if strings.EqualFold(m[1], "python") {
		p.needRange(Version, "", compact(m[2]))
		return true
	}
	p.needRange(Python, m[1], compact(m[2]))
	return true
}

func compact(s string) string { return strings.Join(strings.Fields(strings.Trim(s, " ,")), "") }

// requirements reads a requirements.txt.
func (p place) requirements(text string) {
	n := 0
	for line := range strings.Lines(text) {
		n++
		line, _, _ = strings.Cut(strings.TrimRight(line, "\\\n"), " #")
		line = strings.TrimSpace(line)
		if i := strings.Index(line, " --"); i >= 0 {
			line = strings.TrimSpace(line[:i]) // --hash=…
		}
		switch {
		case line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "--"):
		case strings.HasPrefix(line, "-r") || strings.HasPrefix(line, "-c"): // a file beside it, read for itself
		case !p.at(n).requirementLine(line):
			p.at(n).doubt("a requirement that cannot be read: %.60q", line)
		}
	}
}

// project is what PEP 621 and PEP 723 have of interest.
type project struct {
	RequiresPython string   `toml:"requires-python"`
	Dependencies   []string `toml:"dependencies"`
}

func (p place) project(pr project) {
	if pr.RequiresPython != "" {
		p.needRange(Version, "", compact(pr.RequiresPython))
	}
	for _, d := range pr.Dependencies {
		if !p.requirementLine(d) {
			p.doubt("a requirement that cannot be read: %.60q", d)
		}
	}
}

func (p place) pyproject(text string) {
	var doc struct {
		Project project `toml:"project"`
		Tool    struct {
			Poetry struct {
				Dependencies map[string]any `toml:"dependencies"`
			} `toml:"poetry"`
		} `toml:"tool"`
	}
	if err := unmarshalTOML(text, &doc); err != nil {
		p.doubt("is not TOML")
		return
	}
	p.project(doc.Project)
	for name := range doc.Tool.Poetry.Dependencies {
		if name == "python" {
			p.need(Command, "python3")
			continue
		}
		p.need(Python, name)
	}
}

// unmarshalTOML refuses what is nested so deeply that a parser could run out of stack.
func unmarshalTOML(text string, v any) error {
	if len(text) > maxParsed {
		text = text[:maxParsed]
	}
	return toml.Unmarshal([]byte(text), v)
}

// pep723 reads the header `# /// script` of a Python file.
func (p place) pep723(text string) {
	var body strings.Builder
	in, n, first := false, 0, 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimRight(line, " \t\r\n")
		switch {
		case !in && line == "# /// script":
			in, first = true, n
		case !in:
		case line == "# ///":
			var pr project
			if unmarshalTOML(body.String(), &pr) != nil {
				p.at(first).doubt("its header # /// script is not TOML")
				return
			}
			p.at(first).project(pr)
			return
		case line == "#" || strings.HasPrefix(line, "# "):
			body.WriteString(strings.TrimPrefix(strings.TrimPrefix(line, "#"), " ") + "\n")
		default:
			in = false
		}
	}
}

func (p place) packageJSON(text string) {
	var doc struct {
		Dependencies map[string]string `json:"dependencies"`
		Engines      map[string]string `json:"engines"`
	}
	if len(text) > maxText || json.Unmarshal([]byte(text), &doc) != nil {
		p.doubt("is not the JSON of a package")
		return
	}
	for name, versions := range doc.Dependencies {
		if strings.ContainsAny(versions, ":/") { // file:, git, workspace:
			versions = ""
		}
		if !p.local.bundled(path.Dir(p.file), name) {
			p.needRange(Node, name, versions)
		}
	}
	for engine := range doc.Engines {
		if engine == "node" || engine == "bun" || engine == "deno" {
			p.need(Command, engine)
		}
	}
}
