package format

import (
	"path"
	"regexp"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// JavaScript stands, as the first word of a command line, for the runtime of JavaScript and TypeScript that a template
// names, or the first that its image has.
const JavaScript = "javascript"

// byEnding is what runs a script without a #! line.
var byEnding = map[string][]string{
	".py": {"python3"}, ".sh": {"sh"}, ".bash": {"bash"},
	".js": {JavaScript}, ".mjs": {JavaScript}, ".ts": {JavaScript},
	".wasm": {sandbox.DaemonPath, sandbox.WasmCommand}, // begins with a zero byte, and so never with #!
}

// Interpreter says what runs a script: the command of its #! line, parsed as a command line and with
// `env` (and `env -S`, `env NAME=value`) taken away, or else what its file ending stands for.
// NotSupported when neither says it.
func Interpreter(head, name string) ([]string, error) {
	if rest, ok := strings.CutPrefix(head, "#!"); ok {
		line, _, _ := strings.Cut(rest, "\n")
		if argv := commandLine(line); len(argv) > 0 {
			return argv, nil
		}
	}
	if argv, ok := byEnding[strings.ToLower(path.Ext(name))]; ok {
		return argv, nil
	}
	return nil, sandbox.Errorf(sandbox.NotSupported,
		"script %.200q: nothing says what runs it; begin it with a #! line, or end its name in .py .sh .bash .js .mjs .ts or .wasm", name)
}

var assignment = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)

func commandLine(line string) []string {
	argv := strings.Fields(strings.TrimSuffix(line, "\r"))
	if len(argv) == 0 || path.Base(argv[0]) != "env" {
		return argv
	}
	first := 1 // the first word that env itself does not take
	for first < len(argv) && (argv[first] == "-S" || argv[first] == "--split-string") {
		first++
	}
	command := first
	for command < len(argv) && assignment.MatchString(argv[command]) {
		command++
	}
	switch {
	case command == len(argv):
		return nil
	case command > first:
		return append([]string{"env"}, argv[first:]...)
	}
	return argv[command:]
}
