package app

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"os"
	"path/filepath"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/audit/record"
	"github.com/skerry-sandbox/skerry/internal/audit/signing"
)

// SigningKeyEnv may hold the private key. It is taken out of the environment at once: children never have it.
const SigningKeyEnv = "SKERRY_AUDIT_SIGNING_KEY"

// TakeSigningKey returns the key that the environment holds, which no longer does.
func TakeSigningKey() (signing.Key, error) {
	text, ok := os.LookupEnv(SigningKeyEnv)
	if !ok || text == "" {
		return nil, nil
	}
	if err := os.Unsetenv(SigningKeyEnv); err != nil {
		return nil, err
	}
	k, err := signing.ParsePrivate([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", SigningKeyEnv, err)
	}
	return k, nil
}

// auditSigner is who signs the log, and where its last heads are kept beside the log.
type auditSigner struct {
	key  signing.Key // nil: the log is not signed
	dir  string      // of the log
	keep string      // "": nowhere
}

// openSigner finds out who signs the audit log.
func (p *App) openSigner(ctx context.Context) error {
	given, err := TakeSigningKey()
	if err != nil {
		return err
	}
	c, s := p.cfg.Audit, auditSigner{dir: filepath.Join(p.cfg.Data, "audit")}
	switch {
	case c.Signer != "":
		public, err := signing.ReadPublic(c.PublicKeyFile)
		if err != nil {
			return fmt.Errorf("audit.public_key_file: %w", err)
		}
		s.key = signing.NewExternal(c.Signer, public)
	case given != nil:
		s.key = given
	case c.SigningKeyFile != "":
		f, made, err := signing.OpenFile(c.SigningKeyFile, p.cfg.Data)
		if err != nil {
			return err
		}
		if made {
			p.log.Warn("a key that signs the audit log was made; keep a copy of the public one elsewhere",
				"private", c.SigningKeyFile, "public", signing.PublicPath(c.SigningKeyFile), "key_id", record.KeyID(f.Public()))
		}
		s.key, s.keep = f, signing.KeptBeside(c.SigningKeyFile)
	default:
		p.log.Warn("the audit log is not signed (audit.signing_key_file is empty): what was written anew with all its hashes is not found in its files")
		return nil
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	lost, err := signing.Enrol(ctx, s.dir, s.key, nil)
	if err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	if lost {
		p.log.Warn("the audit log is signed with a new key for which the former one does not vouch; if this was not intended, find out why (skerry audit keys list)",
			"key_id", record.KeyID(s.key.Public()))
	}
	p.signer = s
	return signing.Tidy(s.keep)
}

// sign makes the options of the log those of a signed one.
func (s auditSigner) sign(o *audit.Options) {
	if s.key != nil {
		o.Signer = signing.NewHeads(s.key, s.dir, s.keep)
	}
	o.Trust = func() (audit.VerifyOptions, error) {
		var public ed25519.PublicKey
		if s.key != nil {
			public = s.key.Public()
		}
		return TrustedKeys(s.dir, public, s.keep)
	}
}

// TrustedKeys is what a log is verified against: the keys that go with a public one, and the heads that are kept.
func TrustedKeys(dir string, public ed25519.PublicKey, keep string) (o audit.VerifyOptions, err error) {
	if keep != "" {
		if o.Expect, err = signing.Kept(keep, dir); err != nil {
			return o, err
		}
	}
	list, err := signing.List(dir)
	if err != nil {
		return o, err
	}
	o.Keys = signing.Trusted(list, public)
	return o, nil
}
