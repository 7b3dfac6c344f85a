package runnable

import (
	"regexp"
	"strings"
)

var (
	fence     = regexp.MustCompile("^\\s{0,12}(`{3,}|~{3,})\\s*\\{?([A-Za-z0-9_+.#-]*)([^`]*)$")
	codeSpan  = regexp.MustCompile("`([^`\n]{1,300})`")
	bashRight = regexp.MustCompile(`\bBash\(([A-Za-z0-9_.+-]+)`)
	word      = regexp.MustCompile(`[A-Za-z0-9][A-Za-z0-9_.+-]*`)
	// writesFile finds that a document in a binary format is to be made; reading one is another matter.
	writesFile = regexp.MustCompile(`(?i)\b(?:sav|export|generat|creat|produc|writ|build|output|render|deliver|packag)\w*\b.{0,80}\b(docx|xlsx|pptx|pdf)\b`)
	// suggests finds a line about what could be.
	suggests = regexp.MustCompile(`(?i)\bexamples?\b|\be\.g\.|\b(?:would|could)\b|\bsuch as\b|\bfor instance\b`)
	examples = regexp.MustCompile(`(?:^|/)examples?/`)

	drawsInPython = regexp.MustCompile(`(?i)\bpython\s+(?:visuali[sz]ation|chart|plot|graph|notebook)s?\b`)
	goesOnNet     = regexp.MustCompile(`(?i)\b(?:internet|network) (?:access|connection)|access to the (?:internet|network)\b`)
)

// blockLanguages are what programs in code blocks of a language are run by. Those of data and of other
// systems (sql, yaml, dax …) are run by nothing in the sandbox.
var blockLanguages = map[string]string{
	"r": "Rscript", "ruby": "ruby", "rb": "ruby", "perl": "perl", "php": "php", "powershell": "pwsh", "pwsh": "pwsh", "ps1": "pwsh",
	"go": "go", "rust": "cargo", "java": "java", "swift": "swift", "julia": "julia", "applescript": "osascript", "nextflow": "nextflow", "lua": "lua",
}

// markdownReader finds what documents tell an agent to run.
type markdownReader struct{ place }

// skillText reads SKILL.md.
func (p markdownReader) skillText(text string) {
	p.main = true
	if rest, ok := strings.CutPrefix(text, "---\n"); ok {
		if head, body, ok := strings.Cut(rest, "\n---"); ok {
			p.frontmatter(head)
			p.text = true
			for i, line := range strings.Split(head, "\n") {
				markdownReader{p.at(i + 2)}.prose(line)
			}
			text = strings.Repeat("\n", 1+strings.Count(head, "\n")+1) + body
		}
	}
	p.markdown(text)
}

// frontmatter reads the keys that name what a skill needs. They are read by lines, because the head may be
// any YAML, and what it says otherwise is not of interest.
func (p markdownReader) frontmatter(head string) {
	for key, value := range keysOf(head) {
		switch key {
		case "allowed-tools":
			for _, m := range bashRight.FindAllStringSubmatch(value, 100) {
				p.at(1).named(m[1])
			}
		case "dependencies", "requirements":
			for part := range strings.FieldsFuncSeq(value, func(r rune) bool { return r == ',' || r == '\n' || r == '[' || r == ']' }) {
				part = strings.Trim(part, " -\"'")
				if knownTools[strings.ToLower(part)] {
					p.at(1).named(part)
				} else if part != "" && !p.at(1).requirementLine(part) {
					p.at(1).doubt("a dependency that cannot be read: %.60q", part)
				}
			}
		case "compatibility":
			markdownReader{p.at(1)}.compatibility(value)
		}
	}
}

// keysOf are the top-level keys of a YAML mapping, with the text of their values.
func keysOf(head string) map[string]string {
	keys := map[string]string{}
	key := ""
	for line := range strings.Lines(head) {
		if k, v, ok := strings.Cut(line, ":"); ok && line[0] != ' ' && line[0] != '-' && line[0] != '#' {
			key = strings.TrimSpace(k)
			keys[key] = v
		} else if key != "" {
			keys[key] += line
		}
	}
	return keys
}

// compatibility is a sentence in which a skill says what it was made for.
func (p markdownReader) compatibility(text string) {
	if goesOnNet.MatchString(text) {
		p.need(Network, "")
	}
	known := false
	for _, w := range word.FindAllString(text, 200) {
		w = strings.ToLower(strings.TrimRight(w, "."))
		switch {
		case strings.HasPrefix(w, "python"):
			p.need(Command, "python3")
			known = true
		case knownTools[w] || w == "git" || w == "node" || w == "docker":
			p.named(w)
			known = true
		case knownPython[w]:
			p.need(Python, w)
			known = true
		}
	}
	if !known && strings.Contains(strings.ToLower(text), "require") && !goesOnNet.MatchString(text) {
		p.doubt("says that it requires something that is not known here: %.80q", strings.TrimSpace(text))
	}
}

// named needs a program that a text names.
func (p place) named(name string) {
	name = strings.ToLower(name)
	if actual := programOf[name]; actual != "" {
		name = actual
	}
	if !builtins[name] {
		p.need(Command, name)
	}
}

// markdown reads what a document tells an agent to run.
func (p markdownReader) markdown(text string) {
	p.text = true
	var block []string
	open, language, began := "", "", 0
	n := 0
	others := systems{hasShell: shellFence.MatchString(text)}
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimRight(line, "\n")
		m := fence.FindStringSubmatch(line)
		switch {
		case open == "" && m != nil:
			open, language, began, block = m[1], strings.ToLower(m[2]), n+1, nil
		case open == "":
			if !others.skips(line) {
				markdownReader{p.at(n)}.prose(line)
			}
		case m != nil && m[2] == "" && strings.TrimSpace(m[3]) == "" && m[1][0] == open[0] && len(m[1]) >= len(open):
			if !others.skipsBlock(language) {
				markdownReader{p.at(began)}.block(language, block)
			}
			open = ""
		default:
			block = append(block, line)
		}
	}
	if open != "" {
		markdownReader{p.at(began)}.block(language, block)
	}
}

func (p markdownReader) block(language string, lines []string) {
	switch language {
	case "bash", "sh", "shell", "zsh", "console", "terminal", "shell-session", "shellsession", "ksh":
		shellReader(p).shell(commandLines(withoutOthers(lines), false))
	case "python", "py", "python3", "pycon", "ipython":
		pythonReader(p).python(strings.Join(lines, "\n"))
	case "javascript", "js", "mjs", "typescript", "ts", "jsx", "tsx", "node":
		p.javascript(strings.Join(lines, "\n"))
	case "", "text", "txt", "plaintext":
		if text := commandLines(withoutOthers(lines), true); text != "" {
			shellReader(p).shell(text)
		}
	default:
		if program := blockLanguages[language]; program != "" {
			p.need(Command, program)
		}
	}
}

// commandLines takes the prompts away, and with them the output: in a block that shows prompts, only lines
// with one are commands. In a block without a language, without prompts, only lines that begin with a known
// program are.
func commandLines(lines []string, unsure bool) string {
	prompts := false
	for _, l := range lines {
		prompts = prompts || strings.HasPrefix(strings.TrimSpace(l), "$ ")
	}
	kept := make([]string, len(lines))
	found, more := false, false
	for i, l := range lines {
		t := strings.TrimSpace(l)
		cut, prompt := strings.CutPrefix(t, "$ ")
		first, _, several := strings.Cut(t, " ")
		switch {
		case prompts && prompt, more && (prompts || unsure):
			kept[i], found = cut, true
		case !prompts && (!unsure || several && (knownTools[first] || installers[first] != nil || strings.HasPrefix(first, "python"))):
			kept[i], found = l, true
		}
		more = kept[i] != "" && strings.HasSuffix(t, `\`)
	}
	if !found {
		return ""
	}
	return strings.Join(kept, "\n")
}

// prose reads a line of text: code in it, and the names of programs and packages.
func (p markdownReader) prose(line string) {
	if examples.MatchString(p.file) {
		return // of what others wrote, or of what an agent is to write
	}
	for _, m := range codeSpan.FindAllStringSubmatch(line, 50) {
		p.inline(strings.TrimSpace(m[1]), suggests.MatchString(line))
	}
	for _, w := range word.FindAllString(codeSpan.ReplaceAllString(line, " "), 500) {
		w = strings.TrimRight(w, ".")
		if l := strings.ToLower(w); p.main && telling[l] {
			p.need(Mention, l)
		}
	}
	if !p.main {
		return
	}
	for _, m := range writesFile.FindAllStringSubmatch(line, 20) {
		p.need(Format, strings.ToLower(m[1]))
	}
	if m := drawsInPython.FindString(line); m != "" {
		p.doubt("asks for a %q without saying what makes it", m)
	}
}

// inline reads code within the text. A single word counts only when it is the name of a known program or
// package, a line only when it begins with one. In a line that suggests something, a file need not be there.
func (p markdownReader) inline(code string, suggested bool) {
	code = strings.TrimPrefix(code, "$ ")
	first, rest, several := strings.Cut(code, " ")
	switch {
	case several && (knownTools[first] || installers[first] != nil || strings.HasPrefix(first, "python") || first == "sudo"):
		if strings.TrimSpace(rest) != "" && !strings.Contains(code, "=>") {
			shellReader(p).shellWords(code)
		}
	case !several && knownTools[first]:
		p.named(first)
	case !several && knownPython[strings.ToLower(first)]:
		p.need(Python, strings.ToLower(first))
	case strings.HasPrefix(code, "import ") || strings.HasPrefix(code, "from ") && strings.Contains(code, " import "):
		if !strings.ContainsAny(code, `'"{`) {
			pythonReader(p).python(code)
		}
	default:
		if rel, ok := ownPath(code); ok && !suggested {
			shellReader(p).ownFile(rel)
		}
	}
}
