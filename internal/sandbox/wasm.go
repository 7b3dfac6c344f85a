package sandbox

import (
	"bytes"
	"encoding/base64"
	"path"
	"slices"
	"strings"
)

// How a WebAssembly module is run in a sandbox: by DaemonPath, with WasmCommand, the module's path and its arguments. The
// variables say what it may use: bytes of memory, and seconds of processor time.
const (
	WasmCommand   = "wasm"
	WasmMemoryEnv = "SKERRY_WASM_MEMORY"
	WasmCPUEnv    = "SKERRY_WASM_CPU"
	MaxWasmBytes  = 64 << 20 // of the file of a module
	MaxWasmMemory = 4 << 30  // all that 32 bits address
)

// wasmLanguage is a Code whose text is a module in base64, or the path of one.
const wasmLanguage = "wasm"

// Wasm bounds modules of a template. Zero has a default.
type Wasm struct {
	MemoryBytes int64 `json:"memory_bytes,omitempty"` // of one module; half of the sandbox's when 0, at most MaxWasmMemory
	CPUSeconds  int   `json:"cpu_s,omitempty"`        // processor time of one run with its compilation; 0: as long as the exec
}

// WasmMemory is how much memory one module has in sandboxes of the template.
func (t *Template) WasmMemory() int64 {
	if t.Wasm != nil && t.Wasm.MemoryBytes > 0 {
		return t.Wasm.MemoryBytes
	}
	return min(t.Limits.MemoryBytes/2, MaxWasmMemory)
}

// The first bytes of a module, and of a component, which needs another WASI.
var (
	wasmModule    = []byte("\x00asm\x01\x00\x00\x00")
	wasmComponent = []byte("\x00asm\x0d\x00\x01\x00")
)

// checkWasm refuses a text that is neither a module in base64 nor the path of one. A module in base64 never begins with a
// slash.
func checkWasm(text string) error {
	if strings.HasPrefix(text, "/") {
		below := func(dir string) bool { return strings.HasPrefix(text, dir+"/") }
		if len(text) > MaxCwdBytes || strings.ContainsRune(text, 0) || path.Clean(text) != text || path.Ext(text) != ".wasm" ||
			!slices.ContainsFunc([]string{UserDataDir, SkillsDir, PluginsDir}, below) {
			return InvalidField("code", "%.200q is not the path of a .wasm file of the thread, such as %s/tool.wasm", text, WorkspaceDir)
		}
		return nil
	}
	module, err := base64.StdEncoding.DecodeString(text)
	switch {
	case err != nil:
		return InvalidField("code", "is neither a module in base64 (%v) nor the path of one, such as %s/tool.wasm", err, WorkspaceDir)
	case bytes.HasPrefix(module, wasmComponent):
		return InvalidField("code", "is a component; want a module for WASI preview 1 (wasip1)")
	case !bytes.HasPrefix(module, wasmModule):
		return InvalidField("code", "is no WebAssembly module: it does not begin with \\0asm and version 1")
	}
	return nil
}
