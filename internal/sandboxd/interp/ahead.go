package interp

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// What a JavaScript runtime that waits has at the end of its start-up file, and Python in its environment.
var (
	//go:embed wait_python.py
	waitPython string
	//go:embed wait_bun.mjs
	waitBun string
	//go:embed wait_node.mjs
	waitNode string
	//go:embed wait_deno.mjs
	waitDeno string
)

// loadTypeStripper makes node load what strips types, its largest part by far, before the wait.
const loadTypeStripper = `import { stripTypeScriptTypes } from "node:module";
stripTypeScriptTypes("let x: number");
`

// StandbyEnv names the variable that makes the start-up file wait. Its value is the descriptor of a stream
// socket. The start-up file reads all of it: the whole environment of the run as "NAME=value" strings, each
// with a zero byte behind. It answers a byte, and goes on as if the process had been started then. Without
// the variable it does not wait: so the same command runs a program whose process was lost while it waited.
// Python's start-up file restarts when the places of installed packages, or modules that it has imported,
// have changed since. Its answer is 's' then.
const StandbyEnv = "SKERRY_STANDBY"

// PreloadEnv names the variable that lists, with commas between, the modules that a Standby imports before it
// waits. A module that cannot be imported is left to the program; what an import prints is dropped.
const PreloadEnv = "SKERRY_PRELOAD"

// waitEnv names the variable that holds what Python does while it waits: a file of it would be there for the program.
const waitEnv = "SKERRY_WAIT"

// ForksEnv names the variable that makes Python a process.Zygote, if it can be one: it is forked for each run.
const ForksEnv = "SKERRY_FORKS"

// Ahead is Prepare without the text, which Write adds later: for a command that is started with
// AheadEnv before there is one. preload is for Python. Nil when the language cannot wait.
func (r *Runner) Ahead(language, cwd string, how Choice, preload []string) (*Program, error) {
	in, err := r.find(language, how)
	if err != nil || !in.waits {
		return nil, err
	}
	if language != "python" {
		in.start += in.wait // behind it: line numbers of the start-up file are in some traces
	}
	p, err := r.stage(in, cwd)
	if err != nil {
		return nil, err
	}
	p.AheadEnv = []string{StandbyEnv + "=3"}
	if language == "python" {
		p.AheadEnv = append(p.AheadEnv, PreloadEnv+"="+strings.Join(preload, ","), waitEnv+"="+waitPython)
		if r.opts.Forks {
			p.AheadEnv = append(p.AheadEnv, ForksEnv+"=1")
		}
		p.SaysReady = len(preload) > 0 || r.opts.Forks
	} else {
		// bun does not start without the file, though it reads it after the wait.
		if err := writeNew(p.main, ""); err != nil {
			p.Cleanup()
			return nil, fmt.Errorf("private folder: %w", err)
		}
		p.placeholder = true
	}
	return p, nil
}

// startFiles are what JavaScript runtimes read when they start, or whose absence they remember, of the
// folders that code writes in.
var startFiles = []string{
	"package.json", "tsconfig.json", "jsconfig.json", "node_modules", "bunfig.toml",
	".env", ".env.local", ".env.development", ".env.development.local", ".env.production", ".env.production.local", ".env.test", ".env.test.local",
}

// Seen tells apart what an interpreter of the language sees when it starts, of what code of the sandbox may
// have written since: of two equal answers a process that started at the first is as good as one from
// the second. Python looks for itself, when its wait is over.
func (r *Runner) Seen(language, cwd, home string) string {
	if language != "typescript" && language != "javascript" {
		return ""
	}
	var b strings.Builder
	note := func(path string) {
		var st unix.Stat_t
		if unix.Stat(path, &st) == nil {
			fmt.Fprintf(&b, "%s %d %d %d %d\n", path, st.Dev, st.Ino, st.Ctim.Nano(), st.Size)
		}
	}
	note(filepath.Join(home, ".npmrc"))
	for _, dir := range []string{r.opts.TempDir, cwd} {
		for ; ; dir = filepath.Dir(dir) {
			for _, name := range startFiles {
				note(filepath.Join(dir, name))
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return b.String()
}

// replace puts the text where a placeholder is, or whatever code of the same uid has put there.
func replace(path, text string) error {
	if err := writeNew(path+".new", text); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
