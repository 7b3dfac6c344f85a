package interp

import (
	_ "embed"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// The start-up files. codeAPIMark stands for the folder of the code API in them.
var (
	//go:embed start.mjs
	startJS string
	//go:embed start_node.mjs
	startNode string
	//go:embed start_plain.mjs
	startPlain string
	//go:embed sitecustomize.py
	startPython string
)

const codeAPIMark = "@CODE_API@"

// interpreter is how one program runs one language.
type interpreter struct {
	main      string // name of the text's file
	startFile string // "" = none
	start     string
	argv      func(dir, main string) []string
	env       []string
	pathEnv   string
	modules   bool
	waits     bool
	wait      string // what goes behind start to make it wait; "" = start does
}

func (r *Runner) find(language string, how Choice) (*interpreter, error) {
	switch language {
	case "typescript", "javascript":
		return r.findJS(language == "typescript", how)
	case "python":
		return r.findPython()
	case "bash":
		return r.findBash()
	case wasm:
		return r.findWasm()
	}
	return nil, fmt.Errorf("%w: %.40q", ErrLanguage, language)
}

func (r *Runner) findBash() (*interpreter, error) {
	program := r.look("bash")
	if program == "" {
		return nil, &UnavailableError{"there is no bash in this sandbox"}
	}
	return &interpreter{main: "main.sh", argv: func(_, main string) []string { return []string{program, main} }}, nil
}

// findPython: sitecustomize.py is found in the private folder, the first of PYTHONPATH, and Python
// imports it before the text. So the text is the main program, as if there were nothing of ours.
func (r *Runner) findPython() (*interpreter, error) {
	program := r.look("python3")
	if program == "" {
		return nil, &UnavailableError{"there is no python3 in this sandbox"}
	}
	return &interpreter{
		main: "main.py", startFile: "sitecustomize.py", start: startPython, pathEnv: "PYTHONPATH", waits: true,
		argv: func(_, main string) []string { return []string{program, main} },
		env:  []string{"PYTHONDONTWRITEBYTECODE=1"},
	}, nil
}

func (r *Runner) findJS(typed bool, how Choice) (*interpreter, error) {
	main := "main.mjs"
	if typed {
		main = "main.ts"
	}
	if bun := r.lookFor("bun", how); bun != "" {
		return &interpreter{
			main: main, startFile: "start.mjs", start: startJS, modules: true, waits: true, wait: waitBun,
			argv: func(dir, main string) []string {
				return []string{bun, "run", "--no-install", "--preload", filepath.Join(dir, "start.mjs"), main}
			},
			env: []string{"DO_NOT_TRACK=1", "NO_COLOR=1"},
		}, nil
	}
	if deno := r.lookFor("deno", how); deno != "" {
		return &interpreter{
			main: main, startFile: "start.mjs", start: startJS, modules: true,
			// With permissions of its own it could not be given the environment of the run.
			waits: how.Deno == nil, wait: waitDeno,
			argv: func(dir, main string) []string {
				argv := append([]string{deno, "run", "--quiet"}, how.Deno.allow(dir, r.opts.CodeAPIDir)...)
				return append(argv, "--no-prompt", "--no-remote", "--no-lock", "--no-config", "--node-modules-dir=manual",
					"--unstable-sloppy-imports", "--preload", filepath.Join(dir, "start.mjs"), main)
			},
			env: []string{"DENO_NO_UPDATE_CHECK=1", "DENO_NO_PROMPT=1", "NO_COLOR=1"},
		}, nil
	}
	if node := r.lookFor("node", how); node != "" {
		return r.nodeInterpreter(node, typed)
	}
	if how.JavaScript != "" {
		return nil, &UnavailableError{"there is no " + how.JavaScript + " in this sandbox, which its template wants for JavaScript"}
	}
	return nil, &UnavailableError{"there is none of bun, deno and node in this sandbox"}
}

// largeResults is where the server puts results of tools that are too large for an answer.
const largeResults = "/mnt/user-data/workspace/.skerry/results"

// lookFor finds a runtime, unless the template wants another one.
func (r *Runner) lookFor(name string, how Choice) string {
	if how.JavaScript != "" && how.JavaScript != name {
		return ""
	}
	return r.look(name)
}

// allow returns Deno's options. Without a list the sandbox is the wall, and Deno's own would only differ
// from that of other runtimes. What the code API needs is always allowed.
func (p *Permissions) allow(dir, codeAPI string) []string {
	if p == nil {
		return []string{"--allow-all"}
	}
	own := Permissions{
		Read: []string{dir, codeAPI, largeResults}, Net: []string{"localhost:9876", "127.0.0.1:9876"},
		Env: []string{"MCP_RPC_ENDPOINT", "MCP_BRIDGE_PORT", "SKERRY_EXEC_TOKEN"},
	}
	var options []string
	for _, kind := range []struct {
		name      string
		own, more []string
	}{{"read", own.Read, p.Read}, {"write", nil, p.Write}, {"net", own.Net, p.Net}, {"env", own.Env, p.Env}, {"run", nil, p.Run}} {
		if list := slices.Concat(kind.own, kind.more); len(list) > 0 {
			options = append(options, "--allow-"+kind.name+"="+strings.Join(list, ","))
		}
	}
	return options
}

func (r *Runner) nodeInterpreter(node string, typed bool) (*interpreter, error) {
	version, err := r.node.version(node, r.opts.NodeVersion)
	if err != nil {
		return nil, &UnavailableError{"node in this sandbox does not tell its version"}
	}
	flags := []string{node}
	in := &interpreter{main: "main.mjs", startFile: "start.mjs", modules: true, env: []string{"NO_COLOR=1"}, waits: true, wait: waitNode}
	switch {
	case version.stripsTypes():
		// Node resolves imports by the letter; the start-up file teaches it './servers/x'.
		in.start = startNode
		flags = append(flags, "--disable-warning=ExperimentalWarning", "--disable-warning=MODULE_TYPELESS_PACKAGE_JSON")
		if version.needsFlag() {
			flags = append(flags, "--experimental-strip-types")
		}
		if typed {
			in.main = "main.mts"
			if version.stripsByCall() {
				in.wait = loadTypeStripper + waitNode
			}
		}
	case typed:
		return nil, &UnavailableError{"TypeScript needs bun, deno or node 22.6 in the sandbox; it has node " + version.String()}
	default:
		// The server sends TypeScript as JavaScript with a source map then.
		in.start = startPlain
		flags = append(flags, "--enable-source-maps")
	}
	in.argv = func(dir, main string) []string {
		return append(flags[:len(flags):len(flags)], "--import", "file://"+filepath.Join(dir, "start.mjs"), main)
	}
	return in, nil
}
