package cli

import (
	"os"
	"path/filepath"

	"github.com/skerry-sandbox/skerry/internal/config"
	"github.com/skerry-sandbox/skerry/internal/secrets"
	"github.com/skerry-sandbox/skerry/internal/tools/hub"
)

// localSealer are the keys of a command that starts MCP servers itself: the server's for root, who has its
// logins, and others' own.
func localSealer() (*secrets.Keys, error) {
	cfg, err := config.Load(os.Getenv("SKERRY_CONFIG"), os.LookupEnv)
	if err != nil {
		return nil, err
	}
	path := cfg.SecretsKeyFile()
	if os.Geteuid() != 0 {
		dir, err := os.UserConfigDir()
		if err != nil {
			return secrets.TemporaryKeys()
		}
		path = filepath.Join(dir, "skerry", "secrets.key")
	}
	return secrets.OpenKeys(path, localHomes())
}

// knownSealer are the keys of a server, when there are any: nothing is made.
func knownSealer(cfg config.Config) hub.Sealer {
	if _, err := os.Stat(cfg.SecretsKeyFile()); err != nil {
		return nil
	}
	keys, err := secrets.OpenKeys(cfg.SecretsKeyFile(), cfg.Data)
	if err != nil {
		return nil
	}
	return keys
}
