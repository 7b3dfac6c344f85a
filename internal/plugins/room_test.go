package plugins

import (
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestRoom: the plugins of one list fill no disk, and one that is replaced does not count twice.
func TestRoom(t *testing.T) {
	t.Parallel()
	st := &state{Plugins: map[string]record{"large": {Bytes: maxInstalledBytes - 10}, "small": {Bytes: 10}}}
	if err := hasRoom(st, "more", 1, sandbox.PluginInstall{}); sandbox.KindOf(err) != sandbox.QuotaExceeded {
		t.Errorf("one byte more: %v", err)
	}
	if err := hasRoom(st, "small", 10, sandbox.PluginInstall{Replace: true}); err != nil {
		t.Errorf("a replacement of the same size: %v", err)
	}
	if err := hasRoom(st, "small", 11, sandbox.PluginInstall{Replace: true}); sandbox.KindOf(err) != sandbox.QuotaExceeded {
		t.Errorf("a larger replacement: %v", err)
	}
}
