package interp

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/sandboxd/process"
)

// Languages are all that a template may offer.
var Languages = []string{"typescript", "javascript", "python", "bash", wasm}

// MaxText bounds a program text, in bytes.
const MaxText = 4 << 20

// ErrLanguage is the error of Prepare for a language that is not one of Languages.
var ErrLanguage = errors.New("unknown language")

// UnavailableError says that this sandbox cannot run a language, and why.
type UnavailableError struct{ Reason string }

func (e *UnavailableError) Error() string { return e.Reason }

// Options configure a Runner.
type Options struct {
	TempDir    string // where private folders are made
	CodeAPIDir string // holds servers, skills and helpers
	Path       string // where interpreters are looked for, as PATH
	// NodeVersion runs "<node> --version" and returns what it prints. It is asked once for each
	// version of the program, and only where there is neither bun nor deno.
	NodeVersion func(node string) (string, error)
	// Wasm is the command line that runs a WebAssembly module, without the module; nil: none can run.
	Wasm []string
	// Forks: a Python that is started ahead may be forked for each run.
	Forks bool
}

// Runner prepares runs. Its methods may be called concurrently.
type Runner struct {
	opts Options
	node nodeVersions
}

// New makes a Runner.
func New(opts Options) *Runner { return &Runner{opts: opts} }

// Program is a command that runs a text.
type Program struct {
	Argv []string
	Env  []string // "NAME=value"; the caller's values go before it, but for PathEnv
	// PathEnv names a variable that is a list of folders: its value in Env goes in front of the
	// caller's, joined by a colon. "" when there is none.
	PathEnv string
	// AheadEnv is for the process only while it waits: see Runner.Ahead.
	AheadEnv []string
	// SaysReady: that process sends a byte when it has imported what it was to import.
	SaysReady bool
	Cleanup   func()

	renew       func() error
	main        string // path of the text's file
	placeholder bool   // there is an empty one
}

// Choice is how a template wants TypeScript and JavaScript to run.
type Choice struct {
	JavaScript string       // "bun", "deno" or "node"; "" = the first that is there
	Deno       *Permissions // nil: all
}

// Permissions are what Deno lets a program do, each a list for its --allow option.
type Permissions struct{ Read, Write, Net, Env, Run []string }

// Available lists the languages that can run now.
func (r *Runner) Available() []string {
	var list []string
	for _, l := range Languages {
		if _, err := r.find(l, Choice{}); err == nil {
			list = append(list, l)
		}
	}
	return list
}

// Prepare makes the private folder and the command. cwd is the working folder of the command.
// Errors: ErrLanguage, *UnavailableError, or an error of the file system.
func (r *Runner) Prepare(language, text, cwd string, how Choice) (*Program, error) {
	in, err := r.find(language, how)
	if err != nil {
		return nil, err
	}
	if language == wasm {
		return r.prepareModule(in, text, cwd)
	}
	p, err := r.stage(in, cwd)
	if err != nil {
		return nil, err
	}
	if err := p.Write(text); err != nil {
		p.Cleanup()
		return nil, err
	}
	return p, nil
}

// Write puts the text in its place. It may be called once.
func (p *Program) Write(text string) error {
	if len(text) > MaxText {
		return fmt.Errorf("the code has %d bytes, the limit is %d", len(text), MaxText)
	}
	write := writeNew
	if p.placeholder {
		write = replace
	}
	if err := write(p.main, text); err != nil {
		return fmt.Errorf("private folder: %w", err)
	}
	return nil
}

// Renew makes the private folder anew for the next run of the same command, without a text.
func (p *Program) Renew() error {
	if err := p.renew(); err != nil {
		return fmt.Errorf("private folder: %w", err)
	}
	return nil
}

func (r *Runner) stage(in *interpreter, cwd string) (*Program, error) {
	dir, err := os.MkdirTemp(r.opts.TempDir, "code-")
	if err != nil {
		return nil, fmt.Errorf("private folder: %w", err)
	}
	p := &Program{Cleanup: func() { _ = os.RemoveAll(dir) }, main: filepath.Join(dir, in.main)}
	p.renew = func() error {
		p.Cleanup()
		if err := os.Mkdir(dir, 0o700); err != nil { // also when it could not be removed
			return err
		}
		return r.fill(dir, in, cwd)
	}
	if err := r.fill(dir, in, cwd); err != nil {
		p.Cleanup()
		return nil, fmt.Errorf("private folder: %w", err)
	}
	p.Argv = in.argv(dir, p.main)
	p.Env = append(p.Env, in.env...)
	if in.pathEnv != "" {
		p.PathEnv = in.pathEnv
		p.Env = append(p.Env, in.pathEnv+"="+dir+":"+r.opts.CodeAPIDir)
	}
	return p, nil
}

func (r *Runner) fill(dir string, in *interpreter, cwd string) error {
	if in.startFile != "" {
		start := strings.ReplaceAll(in.start, codeAPIMark, r.opts.CodeAPIDir)
		if err := writeNew(filepath.Join(dir, in.startFile), start); err != nil {
			return err
		}
	}
	links := map[string]string{}
	for _, name := range []string{"servers", "skills", "helpers"} {
		links[name] = filepath.Join(r.opts.CodeAPIDir, name)
	}
	if in.modules {
		// Packages that the agent installed in its folder are found from the private one.
		modules := filepath.Join(cwd, "node_modules")
		if _, err := os.Stat(modules); err == nil {
			links["node_modules"] = modules
		}
	}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// writeNew makes a file. Code of the same uid could have put something in its place already, such as
// a FIFO that would block us.
func writeNew(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

func (r *Runner) look(name string) string { return process.LookPath(name, r.opts.Path) }
