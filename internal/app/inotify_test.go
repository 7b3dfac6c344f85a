package app

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRaiseInotify: a host with the usual number gets more, one with more keeps what it has, and a server that may not
// raise it says so.
func TestRaiseInotify(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(&said, nil))
	file := filepath.Join(t.TempDir(), "max_user_instances")
	for before, after := range map[string]string{"128\n": "1048576", "2000000\n": "2000000\n", "?": "?"} {
		if err := os.WriteFile(file, []byte(before), 0o600); err != nil {
			t.Fatal(err)
		}
		raiseInotify(file, log)
		if text, err := os.ReadFile(file); err != nil || string(text) != after {
			t.Errorf("%q became %q, %v", before, text, err)
		}
	}
	said.Reset()
	raiseInotify("/proc/self/mountinfo", log) // no number
	raiseInotify(file+"-none", log)
	if said.Len() > 0 {
		t.Errorf("said %s", said.String())
	}
	raiseInotify("/proc/sys/kernel/cap_last_cap", log) // a number that nothing can change
	if !strings.Contains(said.String(), "level=WARN") {
		t.Errorf("said %s", said.String())
	}
}
