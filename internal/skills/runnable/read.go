package runnable

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/skerry-sandbox/skerry/internal/platform/subprocess"
	"github.com/skerry-sandbox/skerry/internal/skills/format"
)

// Limits of what is read. A file beyond them is a doubt, not an error.
const (
	maxFiles = 512
	maxDepth = 8
	// maxText bounds a document or a Python file.
	maxText = 512 << 10
	// maxParsed bounds what real parsers get, which go as deep as the text is nested.
	maxParsed = 64 << 10
)

// notRead are folders that hold nothing that the skill runs.
var notRead = map[string]bool{"node_modules": true, ".git": true, "__pycache__": true, "evals": true, "tests": true, ".venv": true}

// Bounds of what is read in the server's own process. The parsers of shell and JavaScript call themselves for every
// bracket, and take their time for what is nested: a skill beyond these is read in a process of its own. A process
// takes 30 ms, which a list of a hundred plain skills would wait for.
const (
	maxNesting = 100
	maxHere    = 2 * time.Second
)

// errApart says that a skill is to be read in a process of its own.
var errApart = errors.New("nested deeply, or slow to read")

// nesting counts the brackets that are open at once.
func nesting(text string) int {
	depth, deepest := 0, 0
	for i := range len(text) {
		switch text[i] {
		case '(', '[', '{':
			depth++
			deepest = max(deepest, depth)
		case ')', ']', '}':
			depth = max(depth-1, 0)
		}
	}
	return deepest
}

// parses reports whether a parser may have the text here.
func (p place) parses(text string) bool {
	if p.here && nesting(text) > maxNesting {
		p.deep = true
	}
	return !p.deep
}

// apart reads a folder in a process of its own.
var apart = subprocess.NewFolder("needs", func(files fs.FS, _ struct{}) (Needs, error) { return Read(files) })

// readHostile is Read of a skill that may be hostile. One that is too much to read is a doubt.
func readHostile(ctx context.Context, root *os.Root) (Needs, error) {
	n, err := read(root.FS(), true)
	if errors.Is(err, errApart) {
		n, err = apart.Call(ctx, root, struct{}{})
	}
	if errors.Is(err, subprocess.ErrTooMuch) {
		return Needs{Doubts: []Doubt{{File: ".", Why: "takes too long, or too much memory, to be read"}}}, nil
	}
	return n, err
}

// Read finds what the skill in files needs. An error is one of reading, or fs.ErrNotExist without a SKILL.md.
func Read(files fs.FS) (Needs, error) { return read(files, false) }

func read(files fs.FS, here bool) (Needs, error) {
	f, began := &finder{needs: map[Need]Need{}, doubts: map[Doubt]bool{}, here: here}, time.Now()
	if _, err := fs.Stat(files, "SKILL.md"); err != nil {
		return Needs{}, fmt.Errorf("SKILL.md: %w", err)
	}
	var names []string
	executable := map[string]bool{}
	err := fs.WalkDir(files, ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && p != "." && (notRead[d.Name()] || strings.Count(p, "/") >= maxDepth):
			return fs.SkipDir
		case !d.Type().IsRegular():
			return nil
		case len(names) >= maxFiles:
			place{finder: f, file: p}.doubt("more than %d files", maxFiles)
			return fs.SkipAll
		}
		if info, err := d.Info(); err == nil {
			executable[p] = info.Mode()&0o111 != 0
		}
		names = append(names, p)
		return nil
	})
	if err != nil {
		return Needs{}, err
	}
	f.local = localsOf(names)
	for _, name := range names {
		if err := f.readFile(files, name, executable[name]); err != nil {
			return Needs{}, err
		}
		if f.deep || here && time.Since(began) > maxHere {
			return Needs{}, errApart
		}
	}
	return f.found(), nil
}

func (f *finder) readFile(files fs.FS, name string, executable bool) error {
	p := place{finder: f, file: name}
	head, rest, err := open(files, name)
	if err != nil {
		return err
	}
	defer rest.Close() //nolint:errcheck // only read
	kind := kindOf(name, head, executable)
	if kind == nil {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(io.MultiReader(bytes.NewReader(head), rest), maxText+1))
	if err != nil {
		return err
	}
	if len(data) > maxText {
		p.doubt("is larger than what is read of a file")
		return nil
	}
	kind(p, strings.ReplaceAll(string(data), "\r\n", "\n"))
	return nil
}

func open(files fs.FS, name string) (head []byte, rest io.ReadCloser, err error) {
	file, err := files.Open(name)
	if err != nil {
		return nil, nil, err
	}
	head = make([]byte, 256)
	n, err := io.ReadFull(file, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, nil, errors.Join(err, file.Close())
	}
	return head[:n], file, nil
}

// otherLanguages are those whose programs need more than their interpreter, which this package does not read.
var otherLanguages = map[string]string{
	".r": "Rscript", ".rb": "ruby", ".pl": "perl", ".php": "php", ".lua": "lua", ".ps1": "pwsh", ".jl": "julia", ".nf": "nextflow",
	".go": "go", ".java": "java", ".rs": "cargo", ".swift": "swift", ".bat": "cmd.exe", ".kts": "kotlin", ".groovy": "groovy", ".applescript": "osascript",
}

// kindOf says how a file is read; nil: it needs nothing.
func kindOf(name string, head []byte, executable bool) func(place, string) {
	base, ext := strings.ToLower(path.Base(name)), strings.ToLower(path.Ext(name))
	switch {
	case base == "skill.md" && name == "SKILL.md":
		return func(p place, text string) { markdownReader{p}.skillText(text) }
	case ext == ".md":
		if forPeople[strings.TrimSuffix(base, ext)] {
			return nil
		}
		return func(p place, text string) { markdownReader{p}.markdown(text) }
	case base == "package.json":
		return place.packageJSON
	case base == "pyproject.toml":
		return place.pyproject
	case isRequirements(base):
		return place.requirements
	case ext == ".py", ext == ".js", ext == ".mjs", ext == ".cjs", ext == ".ts", ext == ".sh", ext == ".bash":
		return place.script
	case otherLanguages[ext] != "":
		return place.script
	case bytes.HasPrefix(head, []byte("#!")):
		return place.script
	case ext == ".wasm": // what runs it comes with the sandbox
		return nil
	case executable || bytes.HasPrefix(head, []byte("\x7fELF")):
		return func(p place, text string) {
			if !utf8.ValidString(text) {
				p.doubt("is a compiled program")
			}
		}
	}
	return nil
}

func isRequirements(base string) bool {
	return strings.HasPrefix(base, "requirements") && strings.HasSuffix(base, ".txt")
}

// forPeople are documents that are not for agents.
var forPeople = map[string]bool{"readme": true, "license": true, "changelog": true, "contributing": true, "notice": true, "security": true, "code_of_conduct": true}

// script reads a program: what runs it, and what it needs.
func (p place) script(text string) {
	head := text[:min(len(text), 256)]
	ext := strings.ToLower(path.Ext(p.file))
	argv, err := format.Interpreter(head, p.file)
	shebang := strings.HasPrefix(head, "#!")
	switch {
	case err == nil && (shebang || !imported(p.file)):
		p.interpreter(argv)
	case otherLanguages[ext] != "":
		p.need(Command, otherLanguages[ext])
	}
	runs := ""
	if len(argv) > 0 {
		runs = path.Base(argv[0])
	}
	switch {
	case ext == ".py" || strings.HasPrefix(runs, "python") || runs == "uv":
		pythonReader{p}.python(text)
	case ext == ".sh" || ext == ".bash" || runs == "sh" || runs == "bash" || runs == "dash" || runs == "zsh" || runs == "ksh":
		shellReader{p}.shell(text)
	case ext == ".js" || ext == ".mjs" || ext == ".cjs" || ext == ".ts" || runs == "node" || runs == "bun" || runs == "deno":
		p.javascript(text)
	case strings.HasPrefix(runs, "awk") || runs == "sed" || runs == "jq":
	default:
		p.doubt("its language is not read, so what it needs besides its interpreter is not known")
	}
}

// imported reports whether a file is a module and no script.
func imported(name string) bool { return path.Base(name) == "__init__.py" }

// interpreter needs the first word of a #! line, or what stands for it behind env.
func (p place) interpreter(argv []string) {
	p = p.at(1)
	for i, word := range argv {
		base := path.Base(word)
		if word == format.JavaScript {
			p.need(Script, "bun, deno or node")
			return
		}
		if base == "env" || strings.HasPrefix(word, "-") || i > 0 && strings.Contains(word, "=") {
			continue
		}
		p.need(Command, base)
		if base == "uv" {
			return // what it would install is in the script's own header
		}
		return
	}
}
