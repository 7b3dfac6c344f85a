package wasm

import (
	"testing"

	"github.com/tetratelabs/wazero"

	"github.com/skerry-sandbox/skerry/internal/sandboxd/wasm/wasmtest"
)

// FuzzCompile: a module is compiled or refused; it never ends the process by a panic.
func FuzzCompile(f *testing.F) {
	for _, m := range [][]byte{wasmtest.Hello(), wasmtest.Loop(), wasmtest.Grow(1, 1), wasmtest.Accept(), wasmtest.Module{Functions: 20}.Bytes(), wasmtest.Module{Tables: [][]byte{{0x70, 0, 9}}}.Bytes(), manyImports} {
		f.Add(m)
	}
	r := wazero.NewRuntimeWithConfig(f.Context(), config(1<<20))
	f.Cleanup(func() { _ = r.Close(f.Context()) })
	f.Fuzz(func(t *testing.T, module []byte) {
		if checkCounts(module) != nil {
			return
		}
		if compiled, err := r.CompileModule(t.Context(), module); err == nil {
			_ = compiled.Close(t.Context())
		}
	})
}
