package wasm

import (
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tetratelabs/wazero"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// maxCache is how much compiled code is kept, in bytes: it is in memory, of the sandbox's own. What a module of Go's compiler
// becomes has 10 MB.
const maxCache = 32 << 20

// cacheDir is where compiled code waits for the next run of the same module. Modules do not see the folder. All else of the
// sandbox may change it, and could run the same code itself.
var cacheDir = filepath.Join(sandbox.HomeDir, ".cache/skerry-wasm")

// openCache returns nil when nothing can be kept.
func openCache() wazero.CompilationCache {
	if sizeOf(cacheDir) > maxCache {
		_ = os.RemoveAll(cacheDir)
	}
	cache, err := wazero.NewCompilationCacheWithDir(cacheDir)
	if err != nil {
		return nil
	}
	return cache
}

func sizeOf(dir string) (size int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if info, err := d.Info(); err == nil {
			size += info.Size()
		}
		return nil
	})
	return size
}
