package interp

import (
	_ "embed"
	"strings"
)

//go:embed kernel.py
var kernelPython string

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
	case "bash":
		return nil, "", &UnavailableError{"there are contexts for python, typescript and javascript; a shell that lives on is an exec with a pty"}
	}
	return nil, "", ErrLanguage
}
