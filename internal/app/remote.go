package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/config"
	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/remote"
)

// openRemote has sandboxes be those of a service.
func openRemote(ctx context.Context, cfg config.Config, log *slog.Logger) (driver.Driver, error) {
	key, err := remoteKey(cfg.Remote)
	if err != nil {
		return nil, err
	}
	bridge := cfg.Remote.Bridge
	if bridge == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		bridge = filepath.Join(filepath.Dir(self), "skerry-bridge")
	}
	signer, err := authority(ctx, cfg)
	if err != nil {
		return nil, err
	}
	d, err := remote.New(remote.Options{
		URL: cfg.Remote.URL, SandboxURL: cfg.Remote.SandboxURL, Domain: cfg.Remote.Domain(), Key: key,
		Authority: signer, Bridge: bridge, Root: filepath.Join(cfg.Data, "remote"), Log: log,
	})
	if err != nil {
		return nil, err // says which driver
	}
	if _, err := d.Capabilities(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("driver remote at %s: %w", cfg.Remote.URL, err), d.Close())
	}
	return d, nil
}

// maxKey bounds a file with a key.
const maxKey = 4 << 10

func remoteKey(c config.Remote) (string, error) {
	if c.APIKeyFile == "" {
		return c.APIKey, nil
	}
	f, err := os.Open(c.APIKeyFile)
	if err != nil {
		return "", fmt.Errorf("remote.api_key_file: %w", err)
	}
	defer f.Close() //nolint:errcheck // read-only
	text, err := io.ReadAll(io.LimitReader(f, maxKey+1))
	if err != nil {
		return "", fmt.Errorf("remote.api_key_file: %w", err)
	}
	key := strings.TrimSpace(string(text))
	if key == "" || len(text) > maxKey || strings.ContainsAny(key, " \t\r\n") {
		return "", fmt.Errorf("remote.api_key_file: %s holds no key: want one word of at most %d bytes", c.APIKeyFile, maxKey)
	}
	return key, nil
}
