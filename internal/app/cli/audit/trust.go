package audit

import (
	"crypto/ed25519"
	"errors"
	"io/fs"
	"os"

	"github.com/skerry-sandbox/skerry/internal/app/environment"
	"github.com/skerry-sandbox/skerry/internal/audit/signing"
	"github.com/skerry-sandbox/skerry/internal/config"
)

// localKey finds the public key of the log of a data folder: the key that is named, or that of this host's configuration.
func localKey(named string) (public ed25519.PublicKey, keep string, err error) {
	if named != "" {
		public, err = signing.ReadPublic(named)
		return public, "", err
	}
	cfg, err := config.Load(environment.Or("SKERRY_CONFIG", ""), os.LookupEnv)
	if err != nil {
		return nil, "", err
	}
	c := cfg.Audit
	if c.PublicKeyFile != "" {
		public, err = signing.ReadPublic(c.PublicKeyFile)
		return public, "", err
	}
	public, err = signing.ReadPublic(signing.PublicPath(c.SigningKeyFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", nil
	}
	return public, signing.KeptBeside(c.SigningKeyFile), err
}
