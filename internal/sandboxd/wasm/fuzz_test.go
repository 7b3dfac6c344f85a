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

// TestTypesAreCounted: four bytes that name 200 million parameters have no memory set aside for them.
func TestTypesAreCounted(t *testing.T) {
	for module, ok := range map[string]bool{
		"\x00asm\x01\x00\x00\x00\x01\x17\x04`\x00\x00`\xca\xca\xca`0\x7fc\x900000000000": false,
		"\x00asm\x01\x00\x00\x00\x01\x06\x01`\x00\xff\xff\x01":                           false,
		"\x00asm\x01\x00\x00\x00\x01\x0a\x02`\x01\x7f\x01\x63\x70`\x00\x00":              true,
	} {
		if err := checkCounts([]byte(module)); (err == nil) != ok {
			t.Errorf("%q: %v", module, err)
		}
	}
}
