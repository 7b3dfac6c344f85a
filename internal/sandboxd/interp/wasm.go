package interp

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
)

// wasm is the language whose text is a WebAssembly module in base64, or the path of one.
const wasm = "wasm"

// findWasm: no program of the image is needed.
func (r *Runner) findWasm() (*interpreter, error) {
	if len(r.opts.Wasm) == 0 {
		return nil, &UnavailableError{"this sandbox runs no WebAssembly"}
	}
	return &interpreter{main: "main.wasm", argv: func(_, main string) []string { return r.module(main) }}, nil
}

func (r *Runner) module(path string) []string { return append(slices.Clone(r.opts.Wasm), path) }

// prepareModule is Prepare for a module. One that is a file already stays where it is.
func (r *Runner) prepareModule(in *interpreter, text, cwd string) (*Program, error) {
	if strings.HasPrefix(text, "/") {
		return &Program{Argv: r.module(text), Cleanup: func() {}}, nil
	}
	module, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("the module: %w", err)
	}
	p, err := r.stage(in, cwd)
	if err != nil {
		return nil, err
	}
	if err := p.Write(string(module)); err != nil {
		p.Cleanup()
		return nil, err
	}
	return p, nil
}
