package procfs

import (
	"os"
	"path/filepath"
	"testing"
)

func TestMemoryUse(t *testing.T) {
	for _, c := range []struct {
		files       map[string]string
		used, limit int64
	}{
		{map[string]string{"memory.max": "1000\n", "memory.stat": "anon 30\nfile 500\nshmem 12\nanon_thp 7\n"}, 42, 1000},
		{map[string]string{"memory.max": "max\n", "memory.stat": "anon 30\n"}, 0, 0},
		{map[string]string{"memory/memory.limit_in_bytes": "1000\n", "memory/memory.stat": "rss 1\ntotal_cache 500\ntotal_rss 30\ntotal_shmem 12\n"}, 42, 1000},
		{map[string]string{"memory/memory.limit_in_bytes": "9223372036854771712\n", "memory/memory.stat": "total_rss 30\n"}, 0, 0},
		{map[string]string{"memory.max": "1000\n"}, 0, 0},
		{nil, 0, 0},
	} {
		dir := t.TempDir()
		for name, text := range c.files {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if used, limit, ok := MemoryUse(dir); used != c.used || limit != c.limit || ok != (c.limit > 0) {
			t.Errorf("%v: %d of %d, %v", c.files, used, limit, ok)
		}
	}
}
