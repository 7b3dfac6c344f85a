package serverconfig

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/config/extensions"
)

// TestEmptiedFile: a file that is written in place is empty for a moment, which is no reason to drop all servers; one
// that stays empty has none.
func TestEmptiedFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "extensions_config.json")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files, err := extensions.New(path)
	if err != nil {
		t.Fatal(err)
	}
	write(`{"mcpServers":{"a":{"command":"x"}}}`)
	f := NewFile(path, files, slog.New(slog.DiscardHandler))
	if cfg, changed := f.Check(time.Now()); !changed || len(cfg.List) != 1 {
		t.Fatalf("%+v", cfg)
	}
	write("")
	now := time.Now()
	for _, later := range []time.Duration{0, time.Second} { // a writer may wait for a core
		if cfg, changed := f.Check(now.Add(later)); changed || len(cfg.List) != 1 {
			t.Errorf("while it is written, after %s, there are %d servers", later, len(cfg.List))
		}
	}
	if cfg, changed := f.Check(now.Add(time.Minute)); !changed || len(cfg.List) != 0 {
		t.Errorf("when it stays empty there are %d servers", len(cfg.List))
	}
	write("\n")
	if cfg, _ := f.Check(time.Now()); len(cfg.List) != 0 || f.Problem() != nil {
		t.Errorf("%d servers, %v", len(cfg.List), f.Problem())
	}
}
