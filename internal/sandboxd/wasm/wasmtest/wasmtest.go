// Package wasmtest makes WebAssembly modules for tests: one of Go that does what its arguments say (see its folder guest), and
// small ones out of single instructions, among them hostile ones.
package wasmtest

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// Guest builds the Go program of testdata/guest into dir and returns the path of the module.
func Guest(dir string) (string, error) {
	_, self, _, ok := runtime.Caller(0)
	if !ok || !filepath.IsAbs(self) { // built with -trimpath: the tests of a package run in its folder
		wd, err := os.Getwd()
		if err != nil {
			return "", err
		}
		self = filepath.Join(rootOf(wd), "internal/sandboxd/wasm/wasmtest/wasmtest.go")
	}
	source := filepath.Join(filepath.Dir(filepath.Dir(self)), "testdata/guest/main.go")
	module := filepath.Join(dir, "guest.wasm")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", module, source)
	cmd.Env = append(cmd.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the guest: %w\n%s", err, out)
	}
	return module, nil
}

// rootOf is the folder of the Go module above a folder.
func rootOf(dir string) string {
	for dir != "/" {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		dir = filepath.Dir(dir)
	}
	return dir
}

// Unsigned is a number as the format has it: LEB128.
func Unsigned(n uint32) []byte { return binary.AppendUvarint(nil, uint64(n)) }

// vector is a list as the format has it.
func vector(items ...[]byte) []byte {
	out := Unsigned(uint32(len(items))) //nolint:gosec // tests have few
	for _, item := range items {
		out = append(out, item...)
	}
	return out
}

func section(id byte, content []byte) []byte {
	out := append([]byte{id}, Unsigned(uint32(len(content)))...) //nolint:gosec // tests have small ones
	return append(out, content...)
}

func name(s string) []byte { return append(Unsigned(uint32(len(s))), s...) } //nolint:gosec // short

// The kinds of functions of a Module.
const (
	none  = 0 // ()
	one   = 1 // (i32)
	three = 2 // (i32 i32 i32) -> i32
	four  = 3 // (i32 i32 i32 i32) -> i32
)

// The functions that every Module imports, by their index, and its own first.
const (
	ProcExit   = 0
	FdWrite    = 1
	SockAccept = 2
	Start      = 3
)

// Module describes a module.
type Module struct {
	Memory    []byte   // limits; one page when nil
	Tables    [][]byte // type and limits of each
	Import    string   // another function to import, "module.name"
	Export    string   // of the first function; "_start" when ""
	Functions int      // so many more, which do nothing
	Data      string   // at address 32
	Body      []byte   // instructions of the first function, without the last
}

// Bytes is the module.
func (m Module) Bytes() []byte {
	const wasi = "wasi_snapshot_preview1"
	function := func(module, field string, kind byte) []byte {
		return append(append(name(module), name(field)...), 0, kind)
	}
	imports := [][]byte{function(wasi, "proc_exit", one), function(wasi, "fd_write", four), function(wasi, "sock_accept", three)}
	if m.Import != "" {
		imports = append(imports, function(wasi, m.Import, none))
	}
	first := byte(len(imports)) //nolint:gosec // three or four
	if m.Memory == nil {
		m.Memory = []byte{0, 1}
	}
	if m.Export == "" {
		m.Export = "_start"
	}
	kinds, codes := [][]byte{{none}}, [][]byte{body(m.Body)}
	for range m.Functions {
		kinds, codes = append(kinds, []byte{none}), append(codes, body(nil))
	}
	out := []byte("\x00asm\x01\x00\x00\x00")
	out = append(out, section(1, vector([]byte{0x60, 0, 0}, []byte{0x60, 1, 0x7f, 0}, []byte{0x60, 3, 0x7f, 0x7f, 0x7f, 1, 0x7f}, []byte{0x60, 4, 0x7f, 0x7f, 0x7f, 0x7f, 1, 0x7f}))...)
	out = append(out, section(2, vector(imports...))...)
	out = append(out, section(3, vector(kinds...))...)
	if len(m.Tables) > 0 {
		out = append(out, section(4, vector(m.Tables...))...)
	}
	out = append(out, section(5, vector(m.Memory))...)
	out = append(out, section(7, vector(append(name(m.Export), 0, first), append(name("memory"), 2, 0)))...)
	out = append(out, section(10, vector(codes...))...)
	if m.Data != "" {
		out = append(out, section(11, vector(append([]byte{0, 0x41, 32, 0x0b}, name(m.Data)...)))...)
	}
	return out
}

func body(instructions []byte) []byte {
	code := append(append([]byte{0}, instructions...), 0x0b) // no locals
	return append(Unsigned(uint32(len(code))), code...)      //nolint:gosec // small
}

// Hello prints "hello from wasm\n". All its bytes are ASCII.
func Hello() []byte {
	const text = "hello from wasm\n"
	return Module{Data: text, Body: []byte{
		0x41, 0, 0x41, 32, 0x36, 2, 0, // memory[0] = 32
		0x41, 4, 0x41, byte(len(text)), 0x36, 2, 0, // memory[4] = len(text)
		0x41, 1, 0x41, 0, 0x41, 1, 0x41, 16, 0x10, FdWrite, 0x1a, // fd_write(1, 0, 1, 16)
	}}.Bytes()
}

// Loop never ends.
func Loop() []byte { return Module{Body: []byte{0x03, 0x40, 0x0c, 0, 0x0b}}.Bytes() }

// Grow exits with 100, if memory cannot grow by the pages of its second step, and the number of pages after both.
func Grow(first, second byte) []byte {
	return Module{Body: []byte{
		0x41, first, 0x40, 0, 0x1a, // memory.grow(first)
		0x41, second, 0x40, 0, 0x41, 0x7f, 0x46, // memory.grow(second) == -1
		0x41, 0xe4, 0, 0x6c, // * 100
		0x3f, 0, 0x6a, // + memory.size
		0x10, ProcExit,
	}}.Bytes()
}

// Recurse calls itself without end.
func Recurse() []byte { return Module{Body: []byte{0x10, Start}}.Bytes() }

// Trap does what no program may.
func Trap() []byte { return Module{Body: []byte{0x00}}.Bytes() }

// Accept exits with the error of taking a connection from the first folder that it was given.
func Accept() []byte {
	return Module{Body: []byte{0x41, 3, 0x41, 0, 0x41, 0, 0x10, SockAccept, 0x10, ProcExit}}.Bytes()
}
