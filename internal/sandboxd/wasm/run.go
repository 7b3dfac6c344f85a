package wasm

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	pageBytes = 64 << 10
	maxPages  = sandbox.MaxWasmMemory / pageBytes
	entry     = "_start"
)

// settings are what a module has.
type settings struct {
	args   []string // the first is its name
	env    [][2]string
	memory uint64 // bytes
	files  *files
}

// config bounds modules of a runtime.
func config(memory uint64) wazero.RuntimeConfig {
	return wazero.NewRuntimeConfig().
		WithMemoryLimitPages(uint32(min(max(memory/pageBytes, 1), maxPages))). //nolint:gosec // at most maxPages
		// Memory grows in place: a copy would need twice as much. What is not touched takes none.
		WithMemoryCapacityFromMax(true).
		// Without it the debug information of hostile modules is not read. Traces have the names of functions all the same.
		WithDebugInfoEnabled(false)
}

// run compiles a module, calls its _start, and returns the exit code. An error says what the module did not say itself.
func run(ctx context.Context, module []byte, s settings) (int, error) {
	r, compiled, err := compile(ctx, module, s.memory)
	if err != nil {
		return codeCannotExecute, fmt.Errorf("not a module that can run: %w", err)
	}
	defer r.Close(ctx) //nolint:errcheck // the process ends
	if _, ok := compiled.ExportedFunctions()[entry]; !ok {
		return codeCannotExecute, errors.New("the module exports no _start: build a WASI program (preview 1), not a library")
	}
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, r); err != nil {
		return codeCannotExecute, err
	}
	instance, err := r.InstantiateModule(ctx, compiled, s.module())
	if err != nil {
		return codeCannotExecute, fmt.Errorf("not a module that can run: %w", err)
	}
	// A loop of the module does not stop for the collector. A collection that waited for it would stop all else, also what reports its end.
	runtime.GC()
	_, err = instance.ExportedFunction(entry).Call(ctx)
	var exit *sys.ExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &exit):
		return int(exit.ExitCode() & 0xff), nil
	}
	return codeTrap, err
}

// compile compiles a module, or takes what the cache has of it. A cache that is full or broken is not used.
func compile(ctx context.Context, module []byte, memory uint64) (wazero.Runtime, wazero.CompiledModule, error) {
	if err := checkCounts(module); err != nil {
		return nil, nil, err
	}
	ctx = experimental.WithCompilationWorkers(ctx, runtime.GOMAXPROCS(0))
	if cache := openCache(); cache != nil {
		r := wazero.NewRuntimeWithConfig(ctx, config(memory).WithCompilationCache(cache))
		compiled, err := r.CompileModule(ctx, module)
		if err == nil {
			return r, compiled, nil
		}
		_ = r.Close(ctx)
	}
	r := wazero.NewRuntimeWithConfig(ctx, config(memory))
	compiled, err := r.CompileModule(ctx, module)
	if err != nil {
		_ = r.Close(ctx)
		return nil, nil, err
	}
	return r, compiled, nil
}

func (s settings) module() wazero.ModuleConfig {
	config := wazero.NewModuleConfig().WithStartFunctions(). // none: run calls it
									WithArgs(s.args...).WithStdin(os.Stdin).WithStdout(os.Stdout).WithStderr(os.Stderr).
									WithSysWalltime().WithSysNanotime().WithSysNanosleep().WithOsyield(runtime.Gosched).WithRandSource(rand.Reader).
									WithFSConfig(s.files.config())
	for _, kv := range s.env {
		config = config.WithEnv(kv[0], kv[1])
	}
	return config
}
