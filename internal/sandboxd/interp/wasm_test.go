package interp

import (
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestWasm: a module in base64 becomes a file of the private folder, and one that is a file stays where it is.
func TestWasm(t *testing.T) {
	temp := t.TempDir()
	r := New(Options{TempDir: temp, CodeAPIDir: t.TempDir(), Wasm: []string{"/sandboxd", "wasm"}})
	p, err := r.Prepare("wasm", base64.StdEncoding.EncodeToString([]byte("\x00asm")), "/", Choice{})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Argv) != 3 || p.Argv[0] != "/sandboxd" || p.Argv[1] != "wasm" || filepath.Base(p.Argv[2]) != "main.wasm" {
		t.Errorf("%q", p.Argv)
	}
	if module, err := os.ReadFile(p.Argv[2]); string(module) != "\x00asm" || err != nil {
		t.Errorf("%q, %v", module, err)
	}
	p.Cleanup()
	if p, err = r.Prepare("wasm", "/mnt/a.wasm", "/", Choice{}); err != nil || !slices.Equal(p.Argv, []string{"/sandboxd", "wasm", "/mnt/a.wasm"}) {
		t.Errorf("%+v, %v", p, err)
	}
	p.Cleanup()
	if _, err := r.Prepare("wasm", "print(1)", "/", Choice{}); err == nil {
		t.Error("what is not base64 is taken")
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if p, err := r.Ahead("wasm", "/", Choice{}, nil); p != nil || err != nil {
		t.Errorf("one waits: %+v, %v", p, err)
	}
	if !slices.Contains(r.Available(), "wasm") {
		t.Errorf("%q", r.Available())
	}
	var unavailable *UnavailableError
	if _, err := New(Options{}).Prepare("wasm", "/mnt/a.wasm", "/", Choice{}); !errors.As(err, &unavailable) {
		t.Errorf("without a runner: %v", err)
	}
}
