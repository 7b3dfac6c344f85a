package wasm

import (
	"strings"
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

// TestCounts: what a few bytes name, memory is not set aside for.
func TestCounts(t *testing.T) {
	t.Parallel()
	const (
		many = "\xff\xff\xff\x7f" // 268 million
		none = ""
	)
	for name, c := range map[string]struct {
		section byte
		content string
		want    string // "": wazero may have it
	}{
		"types":                  {1, many + "`\x00\x00", "entries are named"},
		"parameters":             {1, "\x02`\x00\x00`" + many + "\x7f\x00", "entries are named"},
		"results":                {1, "\x01`\x00" + many, "entries are named"},
		"references":             {1, "\x02`\x01\x7f\x01\x63\x70`\x00\x00", none},
		"a cut type":             {1, "\x01`\x01\x63\xff", "within an entry"},
		"module of an import":    {2, "\x01" + many + "a\x00\x00\x00", "bytes are named"},
		"name of an import":      {2, "\x01\x01a" + many + "\x00\x00", "bytes are named"},
		"name after a table":     {2, "\x02\x00\x00\x01\x70\x01\x00\x01\x00" + many + "\x00\x00", "bytes are named"},
		"name after a value":     {2, "\x02\x00\x00\x01\x40\x00\x70\x00\x01\x41\x01\x0b\x00" + many + "\x00\x00", "bytes are named"},
		"imports":                {2, "\x02\x01a\x01b\x03\x7f\x00\x01a\x01b\x02\x00\x01", none},
		"functions":              {3, many + "\x00\x00", "entries are named"},
		"name of an export":      {7, "\x01" + many + "a\x00", "bytes are named"},
		"functions in a table":   {9, "\x01\x00\x41\x00\x0b" + many + "\x00", "entries are named"},
		"expressions in a table": {9, "\x01\x05\x70" + many + "\xd2\x00\x0b", "entries are named"},
		"declared elements":      {9, "\x02\x03\x00\x01\x00\x07\x70\x01\xd0\x70\x0b", none},
		"elements of a table":    {9, "\x01\x06\x00\x41\x00\x0b\x63\x70\x01\xd2\x00\x0b", none},
		"unknown elements":       {9, "\x01\x08" + many, none},
		"local variables":        {10, "\x01\x08\x01" + many + "\x7f\x0b\x00", "local variables"},
		"their sum":              {10, "\x01\x0a\x02\x80\x80\x02\x7f\x80\x80\x02\x7f\x0b", "local variables"},
		"fewer":                  {10, "\x01\x08\x01\x80\x80\x02\x7f\x0b\x00\x00", none},
		"beyond the function":    {10, "\x01\x02\x01\x80" + many + "\x7f", "entries are named"},
		"a long function":        {10, "\x01" + many + "\x00\x0b", "bytes are named"},
		"data":                   {11, "\x01\x01" + many + "0", "bytes are named"},
		"data at a place":        {11, "\x01\x00\x43....\x44........\x23\x00\x6a\xfd\x0c................\x0b" + many, "bytes are named"},
		"data of a memory":       {11, "\x01\x02\x00\x41\x00\x0b" + many, "bytes are named"},
		"name of the module":     {0, "\x04name\x00\x05" + many + "a", "bytes are named"},
		"names of functions":     {0, "\x04name\x01\x07" + many + "\x00\x01a", "entries are named"},
		"name of a function":     {0, "\x04name\x01\x08\x01\x00" + many + "ab", "bytes are named"},
		"names of variables":     {0, "\x04name\x02\x09\x01\x00" + many + "\x00\x01a", "entries are named"},
		"names behind the end":   {0, "\x04name\x01\x04\x00" + many[:3], "left after the names"},
		"names":                  {0, "\x04name\x00\x02\x01m\x01\x04\x01\x00\x01f\x07\x03abc", none},
		"name of a section":      {0, many + "abc", "bytes are named"},
		"any other section":      {0, "\x03abc" + many, none},
	} {
		module := "\x00asm\x01\x00\x00\x00" + string(c.section) + string(wasmtest.Unsigned(uint32(len(c.content)))) + c.content //nolint:gosec // short
		err := checkCounts([]byte(module))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if err := checkCounts([]byte("\x00asm\x01\x00\x00\x00\x01\xff\x01`")); err == nil {
		t.Error("a section is longer than the module")
	}
}
