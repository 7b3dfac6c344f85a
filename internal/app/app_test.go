package app

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/config"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestNewFails: a server that cannot be built leaves its data folder to the next one.
func TestNewFails(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("a server runs as root")
	}
	cfg := config.Default()
	cfg.Data, cfg.Driver, cfg.Docker.Address = filepath.Join(t.TempDir(), "data"), "docker", filepath.Join(t.TempDir(), "none.sock")
	cfg.Audit.SigningKeyFile, cfg.Listen = filepath.Join(t.TempDir(), "key.pem"), "127.0.0.1:0"
	a, err := New(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if a != nil || err == nil || !strings.Contains(err.Error(), "driver docker") {
		t.Fatalf("%v, %v: want the error of the driver", a, err)
	}
	lock, err := LockData(cfg.Data, false)
	if err != nil {
		t.Fatalf("the data folder is still locked: %v", err)
	}
	if err := lock.Unlock(); err != nil {
		t.Error(err)
	}
}

// TestTakenAddress: a server whose address is taken makes nothing: no data folder, no disk image, no key.
func TestTakenAddress(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("a server runs as root")
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	cfg := config.Default()
	cfg.Data, cfg.Listen = filepath.Join(t.TempDir(), "data"), taken.Addr().String()
	if a, err := New(t.Context(), cfg, slog.New(slog.DiscardHandler)); a != nil || err == nil || !strings.Contains(err.Error(), "another program listens on "+cfg.Listen) {
		t.Errorf("%v, %v", a, err)
	}
	if _, err := os.Stat(cfg.Data); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the data folder: %v", err)
	}
}

// TestOpenStoreOfANewerFolder: a command that is no server refuses the state of a newer Skerry, too, and changes nothing.
func TestOpenStoreOfANewerFolder(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.Data = t.TempDir()
	open := func() error {
		s, err := OpenStore(t.Context(), cfg, nil, slog.New(slog.DiscardHandler))
		if err == nil {
			err = s.Close()
		}
		return err
	}
	if err := open(); err != nil {
		t.Fatal(err)
	}
	journal := filepath.Join(cfg.Data, "state.jsonl")
	for file, text := range map[string]string{filepath.Join(cfg.Data, "format"): "2\n", journal: "of a newer one\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := open(); !errors.Is(err, sandbox.NotSupported) || !strings.Contains(err.Error(), "Start that version") {
		t.Errorf("%v, want what to do", err)
	}
	if text, err := os.ReadFile(journal); err != nil || string(text) != "of a newer one\n" {
		t.Errorf("the journal: %q, %v", text, err)
	}
}

// TestClose: parts close in reverse order, all of them, and Close reports each error.
func TestClose(t *testing.T) {
	t.Parallel()
	var order []int
	p := &closers{}
	broken := errors.New("broken")
	for i := range 3 {
		p.onClose(func() error {
			order = append(order, i)
			if i == 1 {
				return broken
			}
			return nil
		})
	}
	if err := p.Close(); !errors.Is(err, broken) || !slices.Equal(order, []int{2, 1, 0}) {
		t.Errorf("%v, %v", err, order)
	}
}

// TestSharedDataFolder: a folder of all users keeps its mode.
func TestSharedDataFolder(t *testing.T) {
	t.Parallel()
	shared := filepath.Join(t.TempDir(), "shared")
	if err := errors.Join(os.Mkdir(shared, 0o700), os.Chmod(shared, 0o777|os.ModeSticky)); err != nil { //nolint:gosec // as /tmp
		t.Fatal(err)
	}
	cfg := config.Default()
	cfg.Data, cfg.Driver, cfg.Docker.Address = shared, "docker", filepath.Join(t.TempDir(), "none.sock")
	cfg.Listen = "127.0.0.1:0"
	_, err := New(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "name a folder of Skerry's own, as "+shared+"/skerry") {
		t.Errorf("%v", err)
	}
	info, err := os.Stat(shared)
	if left, _ := os.ReadDir(shared); err != nil || info.Mode().Perm() != 0o777 || len(left) != 0 {
		t.Errorf("mode %v, %d entries, %v", info.Mode(), len(left), err)
	}
}
