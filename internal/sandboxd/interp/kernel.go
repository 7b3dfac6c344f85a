package interp

import (
	_ "embed"
	"path/filepath"
	"strings"
)

var (
	//go:embed kernel.py
	kernelPython string
	//go:embed kernel.mjs
	kernelNode string
)

// Kernel makes the command of a context: an interpreter that lives on between runs and speaks with
// package process as its Session describes. Each of its runs is {"run": id, "code": text, "env":
// {name: value}, "dir": folder for results that are too large for the answer}: env is for that run only.
// cwd is where it begins. Errors: ErrLanguage, *UnavailableError, or an error of the file system.
func (r *Runner) Kernel(language, cwd string, how Choice) (*Program, error) {
	in, text, err := r.findKernel(language, how)
	if err != nil {
		return nil, err
	}
	p, err := r.stage(in, cwd)
	if err != nil {
		return nil, err
	}
	if err := p.Write(strings.ReplaceAll(text, codeAPIMark, r.opts.CodeAPIDir)); err != nil {
		p.Cleanup()
		return nil, err
	}
	return p, nil
}

func (r *Runner) findKernel(language string, how Choice) (in *interpreter, text string, err error) {
	switch language {
	case "python":
		if in, err = r.findPython(); err != nil {
			return nil, "", err
		}
		in.main = "kernel.py"
		return in, kernelPython, nil
	case "typescript", "javascript":
		in, err = r.findNodeKernel(language, how)
		return in, kernelNode, err
	case "bash":
		return nil, "", &UnavailableError{"there are contexts for python, typescript and javascript; a shell that lives on is an exec with a pty"}
	}
	return nil, "", ErrLanguage
}

// findNodeKernel: contexts of TypeScript and JavaScript run on node, whatever plain runs use. It is the one
// runtime whose endless loop can be interrupted without the end of the process. It also has a parser and the
// stripping of types built in.
func (r *Runner) findNodeKernel(language string, how Choice) (*interpreter, error) {
	if how.JavaScript != "" && how.JavaScript != "node" {
		return nil, &UnavailableError{"contexts of " + language + " run on node, and the template wants " + how.JavaScript + " for JavaScript"}
	}
	node := r.look("node")
	if node == "" {
		return nil, &UnavailableError{"contexts of " + language + " run on node, and there is none in this sandbox"}
	}
	version, err := r.node.version(node, r.opts.NodeVersion)
	if err != nil {
		return nil, &UnavailableError{"node in this sandbox does not tell its version"}
	}
	if version.major < 22 || version.major == 22 && version.minor < 13 {
		return nil, &UnavailableError{"contexts of " + language + " need node 22.13 in the sandbox; it has node " + version.String()}
	}
	return &interpreter{
		main: "kernel.mjs", startFile: "start.mjs", start: startNode, modules: true, env: []string{"NO_COLOR=1"},
		argv: func(dir, main string) []string {
			return []string{
				node, "--expose-internals", "--experimental-vm-modules", "--experimental-strip-types",
				"--disable-warning=ExperimentalWarning", "--disable-warning=MODULE_TYPELESS_PACKAGE_JSON",
				"--import", "file://" + filepath.Join(dir, "start.mjs"), main, language,
			}
		},
	}, nil
}
