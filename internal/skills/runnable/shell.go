package runnable

import (
	"path"
	"regexp"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// shellReader finds the commands of a shell script.
type shellReader struct{ place }

var (
	placeholder = regexp.MustCompile(`<[A-Za-z][^<>|&;\n]*>|<[A-Za-z][\w-]*(?:\|[\w-]+)+>|(^|\s)\[[A-Za-z][^\[\]\n$]*\]|\.\.\.|…`)
	toolName    = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.+-]*$`)
)

// builtins are what shells do themselves.
var builtins = setOf(`. : [ [[ alias bg bind break builtin caller case cd command compgen complete continue declare dirs disown do done echo enable
	esac eval exec exit export false fc fg fi for function getopts hash help history if jobs kill let local logout mapfile popd printf pushd pwd read
	readarray readonly return select set shift shopt source suspend test then time times trap true type typeset ulimit umask unalias unset until wait while`)

func setOf(words string) map[string]bool {
	set := map[string]bool{}
	for w := range strings.FieldsSeq(words) {
		set[w] = true
	}
	return set
}

// shell reads a shell script, or a code block of one. Of a block that is not one as a whole, each line is
// tried by itself.
func (p shellReader) shell(text string) {
	if p.line == 0 {
		p.line = 1
	}
	if len(text) > maxParsed {
		p.doubt("is larger than a shell script that is read")
		return
	}
	if !p.parses(text) {
		return
	}
	if p.text {
		text = placeholder.ReplaceAllString(text, "${1}X")
	}
	if file, err := parseShell(text); err == nil {
		p.commands(file)
		return
	} else if !p.text {
		p.doubt("cannot be read as a shell script")
		return
	}
	for i, line := range joined(text) {
		at := p.at(p.line + i)
		if file, err := parseShell(line); err == nil {
			shellReader{at}.commands(file)
		} else if f := strings.Fields(line); len(f) > 0 && toolName.MatchString(f[0]) {
			shellReader{at}.command(f[:1])
		}
	}
}

// parseShell reads bash, which is also how sh and zsh are mostly written.
func parseShell(text string) (file *syntax.File, err error) {
	return syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "")
}

// joined returns the lines of a text by number. A line that ends in a backslash is joined with the next.
func joined(text string) map[int]string {
	lines := map[int]string{}
	at, open := 0, false
	for i, line := range strings.Split(text, "\n") {
		if !open {
			at = i
		}
		cut, more := strings.CutSuffix(line, `\`)
		lines[at] += cut
		if open = more; open {
			lines[at] += " "
		}
	}
	return lines
}

// shellWords reads one command line.
func (p shellReader) shellWords(line string) {
	if len(line) > maxParsed || !p.parses(line) {
		return
	}
	if file, err := parseShell(placeholder.ReplaceAllString(strings.NewReplacer("{", "X", "}", "X").Replace(line), "${1}X")); err == nil {
		p.commands(file)
	}
}

// commands needs every program that a script calls.
func (p shellReader) commands(file *syntax.File) {
	functions := map[string]bool{}
	syntax.Walk(file, func(n syntax.Node) bool {
		if f, ok := n.(*syntax.FuncDecl); ok && f.Name != nil {
			functions[f.Name.Value] = true
		}
		return true
	})
	first := p.line
	var walk func(p shellReader, nodes ...syntax.Node)
	walk = func(p shellReader, nodes ...syntax.Node) {
		for _, node := range nodes {
			syntax.Walk(node, func(n syntax.Node) bool {
				if n == nil || p.branches(n, walk) {
					return false
				}
				switch n := n.(type) {
				case *syntax.CallExpr:
					at := p.at(first + int(n.Pos().Line()) - 1) //nolint:gosec // a line of a text of maxParsed
					shellReader{at}.call(n, functions)
				case *syntax.Stmt:
					shellReader{p.at(first + int(n.Pos().Line()) - 1)}.hereDocument(n) //nolint:gosec // as above
				}
				return true
			})
		}
	}
	walk(p, file)
}

func (p shellReader) call(n *syntax.CallExpr, functions map[string]bool) {
	var words []string
	for _, w := range n.Args {
		words = append(words, literal(w))
	}
	if len(words) == 0 || functions[words[0]] {
		return
	}
	if words[0] == "" {
		if !p.text {
			p.doubt("runs a program whose name is made at run time")
		}
		return
	}
	if words[0] == "eval" && !p.text {
		p.doubt("runs what eval is given")
	}
	p.command(words)
}

// hereDocument reads a program that is given to an interpreter by << .
func (p shellReader) hereDocument(s *syntax.Stmt) {
	call, ok := s.Cmd.(*syntax.CallExpr)
	if !ok || len(call.Args) == 0 {
		return
	}
	for _, r := range s.Redirs {
		if r.Hdoc == nil {
			continue
		}
		switch program := path.Base(literal(call.Args[0])); {
		case strings.HasPrefix(program, "python"):
			pythonReader(p).python(literal(r.Hdoc))
		case program == "node" || program == "bun":
			p.javascript(literal(r.Hdoc))
		}
	}
}

// literal is the text of a word; "" for a word that begins with an expansion.
func literal(w *syntax.Word) string {
	var b strings.Builder
	for _, part := range w.Parts {
		switch part := part.(type) {
		case *syntax.Lit:
			b.WriteString(strings.ReplaceAll(part.Value, `\`, ""))
		case *syntax.SglQuoted:
			b.WriteString(part.Value)
		case *syntax.DblQuoted:
			for _, inner := range part.Parts {
				if l, ok := inner.(*syntax.Lit); ok {
					b.WriteString(l.Value)
				} else {
					b.WriteString("$X")
				}
			}
		default:
			b.WriteString("$X")
		}
	}
	if s := b.String(); !strings.HasPrefix(s, "$X") || strings.Contains(s, "/") {
		return s
	}
	return ""
}

// wrappers run the command that follows their own words.
var wrappers = setOf("sudo env nohup time timeout nice exec command xargs watch stdbuf setsid unbuffer ionice doas")

// wrapperValues are the options of wrappers that have a value in the next word.
var wrapperValues = map[string]string{"sudo": "-u -g", "doas": "-u", "nice": "-n", "xargs": "-n -I -P -L -d", "timeout": "-k -s", "env": "-u -C", "watch": "-n", "ionice": "-c -n"}

// command needs what one command line runs.
func (p shellReader) command(words []string) {
	name := words[0]
	switch {
	case strings.Contains(name, "=") || strings.HasPrefix(name, "-") || strings.HasPrefix(name, "~~"):
		return
	case strings.Contains(name, "/"):
		p.byPath(name)
		p.scriptArguments(words[1:])
		return
	case !toolName.MatchString(name) || name == "X" || strings.TrimLeft(name, "0123456789.") == "":
		return
	}
	if wrappers[name] {
		p.wrapped(words)
		return
	}
	if builtins[name] {
		return
	}
	if install, ok := installers[name]; ok && install(p.place, words[1:]) {
		return
	}
	p.need(Command, name)
	p.scriptArguments(words[1:])
	switch {
	case strings.HasPrefix(name, "python"):
		p.pythonArguments(words[1:])
	case name == "curl" || name == "wget" || name == "git":
		p.network(strings.Join(words, " "), "", "")
	}
}

func (p shellReader) wrapped(words []string) {
	if words[0] != "sudo" && words[0] != "doas" && !builtins[words[0]] {
		p.need(Command, words[0])
	}
	for i := 1; i < len(words); i++ {
		w := words[i]
		if strings.Contains(" "+wrapperValues[words[0]]+" ", " "+w+" ") {
			i++
			continue
		}
		if w == "" || strings.HasPrefix(w, "-") || strings.Contains(w, "=") || strings.Trim(w, "0123456789.smhd") == "" {
			continue
		}
		p.command(words[i:])
		return
	}
}

// byPath is a program that is called by its path: one of the skill, of the system, or the user's own.
func (p shellReader) byPath(name string) {
	if rel, ok := ownPath(name); ok {
		p.ownFile(rel)
		return
	}
	base := path.Base(name)
	if strings.HasPrefix(name, "/") && strings.Count(name, "/") > 1 && toolName.MatchString(base) &&
		(strings.HasPrefix(name, "/usr/") || strings.HasPrefix(name, "/bin/") || strings.HasPrefix(name, "/opt/") || strings.HasPrefix(name, "/sbin/")) {
		p.need(Command, base)
	}
}

// ownPath returns the path in the skill's folder of a word that names one: scripts/x.py, ./scripts/x.py,
// ${CLAUDE_SKILL_DIR}/x.py, {baseDir}/x.py.
var own = regexp.MustCompile(`^(?:\./|(?:\$X|\{baseDir\}|\$\{?CLAUDE_SKILL_DIR\}?|\$\{?SKILL_DIR\}?|/mnt/skills/[^/]+/[^/]+)/)?(scripts/[A-Za-z0-9_./-]+\.(?:py|sh|bash|js|mjs|cjs|ts|rb|R|pl))$`)

func ownPath(word string) (string, bool) {
	m := own.FindStringSubmatch(strings.Trim(word, `"'`))
	if m == nil {
		return "", false
	}
	return path.Clean(m[1]), true
}

// ownFile needs a file of the skill. What only a reference names may be another skill's.
func (p shellReader) ownFile(rel string) {
	switch {
	case p.place.local[rel] || p.place.local[path.Join(path.Dir(p.file), rel)]:
	case p.main:
		p.need(File, rel)
	default:
		p.doubt("names %s, which the skill does not have", rel)
	}
}

func (p shellReader) scriptArguments(words []string) {
	for _, w := range words {
		if rel, ok := ownPath(w); ok {
			p.ownFile(rel)
		}
	}
}

func (p shellReader) pythonArguments(words []string) {
	for i, w := range words {
		if i+1 >= len(words) || w != "-m" && w != "-c" {
			continue
		}
		if w == "-c" {
			pythonReader(p).python(words[i+1])
			return
		}
		switch module := words[i+1]; module {
		case "pip", "pip3":
			pipInstall(p.place, words[i+2:])
		case "venv":
			p.need(Module, "ensurepip") // without it, venv makes none with pip
		default:
			if !strings.HasPrefix(module, "scripts") {
				pythonReader(p).pythonImport(module)
			}
		}
		return
	}
}
