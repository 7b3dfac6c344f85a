package runnable

import (
	"net/url"
	"path"
	"regexp"
	"strings"
)

// localNames are the modules and files of the skill itself.
type localNames map[string]bool

func localsOf(files []string) localNames {
	l := localNames{}
	for _, f := range files {
		for f != "." {
			l[f] = true
			f = path.Dir(f)
		}
	}
	return l
}

// python reports whether a module is beside a script, in a folder above it, or in one next to those.
func (l localNames) python(script, module string) bool {
	for dir := path.Dir(script); ; dir = path.Dir(dir) {
		if l[path.Join(dir, module+".py")] || l[path.Join(dir, module)] || l[path.Join(dir, "scripts", module+".py")] || l[path.Join(dir, "src", module)] {
			return true
		}
		if dir == "." {
			return false
		}
	}
}

// bundled reports whether a package lies in a node_modules of the skill. Those are not read, only named.
func (l localNames) bundled(dir, name string) bool { return l[path.Join(dir, "node_modules", name)] }

var (
	importLine  = regexp.MustCompile(`^(\s*)(?:import\s+([A-Za-z_][\w., ]*)|from\s+([A-Za-z_][\w.]*)\s+import\b)`)
	dynamicLine = regexp.MustCompile(`\b(?:importlib\.import_module|__import__)\s*\(\s*(?:f?["']([\w.]*)["']\s*\))?`)
	runsList    = regexp.MustCompile(`\b(?:subprocess\.(?:run|call|check_call|check_output|Popen|getoutput)|(?:cmd|command|args|argv)\s*=)\s*\(?\s*\[\s*f?["']([^"'{}\s]+)["']`)
	runsText    = regexp.MustCompile(`\b(?:os\.(?:system|popen)|subprocess\.(?:run|call|check_call|check_output|Popen|getoutput|getstatusoutput))\s*\(\s*f?["']([^"'\n]+)["']`)
	runsOther   = regexp.MustCompile(`\b(?:os\.(?:system|popen|exec\w+|spawn\w+)|subprocess\.(?:run|call|check_call|check_output|Popen|getoutput|getstatusoutput))\s*\(\s*([A-Za-z_][\w.]*)?`)
	asksWhich   = regexp.MustCompile(`\bshutil\.which\(\s*["']([\w.+-]+)["']`)
	shortUse    = regexp.MustCompile(`\b(np|pd|plt|sns|px|sc|df|adata|sm)(?:\.|\[)`)
	anyURL      = regexp.MustCompile(`\bhttps?://[A-Za-z0-9.\-_\[\]:]+`)
)

// httpModules are the ways of Python to the network.
var httpModules = map[string]bool{"requests": true, "httpx": true, "aiohttp": true, "urllib.request": true, "http.client": true, "urllib3": true, "websockets": true, "anthropic": true, "openai": true, "boto3": true}

// pythonReader finds what Python programs import and start.
type pythonReader struct{ place }

// python reads a Python program: its imports, the programs that it starts, and whether it goes out.
func (p pythonReader) python(text string) {
	p.pep723(text)
	lines := strings.Split(plainPython(text), "\n")
	online := false
	within, asks := branchesOf(lines)
	openers := openersOf(lines)
	fallback := fallbacksOf(lines, openers)
	lists := listsOf(lines)
	for i, code := range lines {
		if within[i] != nil && within[i].skipped || fallback[i] {
			continue
		}
		at := pythonReader{p.in(within[i]).at(max(p.line, 1) + i)}
		if b := within[i]; b != nil && b.unless != "" {
			at.without(b.unless, code)
		}
		if m := importLine.FindStringSubmatch(code); m != nil && !optional(lines, openers, i) {
			for _, name := range importedNames(m) {
				at.pythonImport(name)
				online = online || goesOut(name)
			}
			online = online || m[3] == "urllib" && strings.Contains(code, "request") || m[3] == "http" && strings.Contains(code, "client")
		}
		for _, m := range dynamicLine.FindAllStringSubmatch(code, -1) {
			if m[1] == "" {
				at.doubt("imports a module whose name is made at run time")
			} else {
				at.pythonImport(m[1])
			}
		}
		if !mayFail(lines, openers, i) {
			at.pythonRuns(statement(lines, i), lists, asks[i])
		}
		if p.text {
			for _, m := range shortUse.FindAllStringSubmatch(code, 20) {
				at.need(Module, shortNames[m[1]])
			}
		}
	}
	if online {
		p.network(text, "", "goes to the network, to hosts that the text does not name")
	}
}

// without reads a line that runs when programs are missing: one that gives up cannot do without them.
func (p pythonReader) without(programs, code string) {
	kind := Mention
	switch {
	case givesUp.MatchString(code):
		kind = Command
	case !strings.HasPrefix(strings.TrimSpace(code), "return"):
		return
	}
	for program := range strings.FieldsSeq(programs) {
		p.need(kind, program)
	}
}

func goesOut(module string) bool {
	top, _, _ := strings.Cut(module, ".")
	return httpModules[module] || httpModules[top]
}

// importedNames are the dotted names of one import line.
func importedNames(m []string) []string {
	if m[3] != "" {
		return []string{m[3]}
	}
	var names []string
	for part := range strings.SplitSeq(m[2], ",") {
		if f := strings.Fields(part); len(f) > 0 {
			names = append(names, f[0])
		}
	}
	return names
}

func (p pythonReader) pythonImport(name string) {
	top, _, _ := strings.Cut(name, ".")
	if top == "" || top == "__future__" || !p.text && p.local.python(p.file, top) || p.text && p.local.python("scripts/x.py", top) {
		return
	}
	p.need(Module, top)
}

// pythonRuns finds programs that a line starts; lists are the variables that hold the command line of one. A line that only
// asks for a program has a branch for its absence.
func (p pythonReader) pythonRuns(code string, lists map[string]bool, asks bool) {
	known := false
	for _, m := range runsList.FindAllStringSubmatch(code, -1) {
		known = true
		p.program(m[1])
	}
	if m := listOf.FindStringSubmatch(code); m != nil && lists[m[1]] {
		known = true
		p.program(m[2])
	}
	for _, m := range runsText.FindAllStringSubmatch(code, -1) {
		known = true
		shellReader(p).shellWords(m[1])
	}
	switch m := eitherWhich.FindStringSubmatch(code); {
	case asks:
	case m != nil:
		p.where(false, m[2]).need(Command, m[1])
	default:
		for _, m := range asksWhich.FindAllStringSubmatch(code, -1) {
			p.need(Command, m[1])
		}
	}
	if known || p.text {
		return
	}
	for _, m := range runsOther.FindAllStringSubmatch(code, -1) {
		if !lists[m[1]] { // a list of that name is found where it is made
			p.doubt("starts a program whose name is made at run time")
		}
	}
}

// program needs a program that a script starts by name or path.
func (p pythonReader) program(name string) {
	base := path.Base(name)
	if base == "sys.executable" {
		base = "python3"
	}
	if strings.Contains(name, "/") && p.local[strings.TrimPrefix(name, "./")] {
		return
	}
	p.need(Command, base)
}

// optional reports whether an import may fail: it stands in a `try` whose `except` goes on without it, or
// below `if TYPE_CHECKING`.
func optional(lines []string, openers []int, at int) bool {
	o := openers[at]
	if o < 0 {
		return false
	}
	opener := strings.TrimSpace(lines[o])
	if strings.HasPrefix(opener, "if") && strings.Contains(opener, "TYPE_CHECKING") {
		return true
	}
	return opener == "try:" && caught(lines, at, indentOf(lines[o]), func(t string) bool {
		return strings.HasPrefix(t, "except") && (strings.Contains(t, "ImportError") || strings.Contains(t, "ModuleNotFoundError") || t == "except:" || strings.HasPrefix(t, "except Exception"))
	}, goesOn)
}

// goesOn reports whether a line of an except neither ends the program nor raises.
func goesOn(t string) bool {
	return !strings.Contains(t, "exit(") && !strings.HasPrefix(t, "raise") && !strings.HasPrefix(t, "subprocess") && !strings.HasPrefix(t, "os.system")
}

func indentOf(line string) int { return len(line) - len(strings.TrimLeft(line, " \t")) }

// plainPython is a program without its comments and long strings; lines stay where they are.
func plainPython(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '#':
			i = endAt(text, i, "\n", 0)
		case strings.HasPrefix(text[i:], `"""`), strings.HasPrefix(text[i:], "'''"):
			end := endAt(text, i+3, text[i:i+3], 3)
			b.WriteString(`""` + strings.Repeat("\n", strings.Count(text[i:end], "\n")))
			i = end
		case c == '"' || c == '\'':
			end := i + 1
			for end < len(text) && text[end] != c && text[end] != '\n' {
				if text[end] == '\\' && end+1 < len(text) && text[end+1] != '\n' {
					end++
				}
				end++
			}
			if end < len(text) && text[end] == c {
				end++
			}
			b.WriteString(text[i:end])
			i = end
		default:
			b.WriteByte(c)
			i++
		}
	}
	return b.String()
}

// endAt is the index behind the next end after from, or that of end itself when skip is 0.
func endAt(text string, from int, end string, skip int) int {
	if i := strings.Index(text[from:], end); i >= 0 {
		return from + i + skip
	}
	return len(text)
}

// network needs the hosts of a program that goes out; without any, that is a doubt when there is one to say.
func (p place) network(text, only, doubt string) {
	found := false
	for _, raw := range anyURL.FindAllString(text, 200) {
		u, err := url.Parse(raw)
		if err != nil || only != "" && !strings.Contains(raw, only) {
			continue
		}
		found = true
		if host := u.Hostname(); !isInside(host) {
			p.need(Network, host)
		}
	}
	if !found && doubt != "" {
		p.doubt("%s", doubt)
	}
}

// isInside reports whether a host is the sandbox itself, or stands for any in an example.
func isInside(host string) bool {
	return host == "localhost" || strings.HasPrefix(host, "127.") || host == "::1" || host == "0.0.0.0"
}
