package app

import (
	"context"
	"log/slog"
	"os"
	"slices"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/config"
	"github.com/skerry-sandbox/skerry/internal/instance/savedspec"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/secrets"
	"github.com/skerry-sandbox/skerry/internal/store"
	"github.com/skerry-sandbox/skerry/internal/tools/hub"
)

// vault is the keys that seal what other parts keep, and the secrets.
type vault struct {
	sealer  *secrets.Keys
	secrets *secrets.Service
}

// openVault opens the keys, by which other parts seal what they keep, and the secrets.
func (b *builder) openVault(st *store.Store) (*vault, error) {
	c := b.cfg.Secrets
	keys, err := secrets.OpenKeys(c.KeyFile, b.cfg.Data)
	if err != nil {
		return nil, err
	}
	s := secrets.Open(secrets.Options{Store: st, Keys: keys, Env: c.Env, Lookup: os.LookupEnv, Dir: c.Dir, Exec: c.Exec, Log: b.log})
	b.onClose(s.Close)
	return &vault{sealer: keys, secrets: s}, nil
}

// openScratchVault is openVault for a data folder that is gone in a moment.
func (b *builder) openScratchVault(st *store.Store) (*vault, error) {
	keys, err := secrets.TemporaryKeys()
	if err != nil {
		return nil, err
	}
	s := secrets.Open(secrets.Options{Store: st, Keys: keys, Lookup: os.LookupEnv, Log: b.log})
	b.onClose(s.Close)
	return &vault{sealer: keys, secrets: s}, nil
}

// sealLogins has connections follow the secrets, and encrypts the logins that a former version has kept.
func (v *vault) sealLogins(ctx context.Context, h *hub.Hub, log *slog.Logger) {
	v.secrets.OnChange(h.SecretsChanged)
	renew := func(ctx context.Context) (int, error) {
		changed, unreadable, err := h.RenewLogins(ctx, v.sealer.Stale)
		if unreadable > 0 {
			log.Warn("logins at MCP servers that no key opens are left where they are; these users log in again", "logins", unreadable)
		}
		return changed, err
	}
	v.secrets.AlsoRenew(renew)
	if changed, err := renew(ctx); err != nil {
		log.Error("logins at MCP servers are not all encrypted", "error", err)
	} else if changed > 0 {
		log.Info("logins at MCP servers are encrypted now", "logins", changed)
	}
}

// sealKept encrypts the environments of sandboxes that a former version has kept.
func (v *vault) sealKept(ctx context.Context, kept *savedspec.Specs, log *slog.Logger) {
	v.secrets.AlsoRenew(kept.Renew)
	if changed, err := kept.Renew(ctx); err != nil {
		log.Error("environments of sandboxes are not all encrypted", "error", err)
	} else if changed > 0 {
		log.Info("environments of sandboxes are encrypted now", "sandboxes", changed)
	}
}

// lookupEnv returns the variables that ${NAME} may stand for in the configuration of MCP servers.
func lookupEnv(c config.Secrets) func(name string) (string, bool) {
	return func(name string) (string, bool) {
		if c.StrictEnv && name != "PATH" && name != "HOME" && !slices.Contains(c.Env, name) {
			return "", false
		}
		return os.LookupEnv(name)
	}
}

// secretAdmin is the secrets with each change on the record.
type secretAdmin struct {
	*secrets.Service
	access *access
}

// Put stores a secret.
func (s secretAdmin) Put(ctx context.Context, c sandbox.Caller, scope secrets.Scope, name, value string, exec bool) (secrets.Info, bool, error) {
	var info secrets.Info
	var made bool
	err := s.recorded(ctx, c, audit.ActionSecretSet, subjectOf(scope, name), func() (err error) {
		info, made, err = s.Service.Put(ctx, c, scope, name, value, exec)
		return err
	})
	return info, made, err
}

// Delete takes a secret away.
func (s secretAdmin) Delete(ctx context.Context, c sandbox.Caller, scope secrets.Scope, name string) error {
	return s.recorded(ctx, c, audit.ActionSecretDelete, subjectOf(scope, name), func() error { return s.Service.Delete(ctx, c, scope, name) })
}

// Rotate encrypts everything for a new key.
func (s secretAdmin) Rotate(ctx context.Context, c sandbox.Caller) (secrets.Rotation, error) {
	var done secrets.Rotation
	err := s.recorded(ctx, c, audit.ActionSecretRotate, "", func() (err error) {
		done, err = s.Service.Rotate(ctx)
		return err
	})
	return done, err
}

func subjectOf(scope secrets.Scope, name string) string {
	if scope == "" {
		scope = secrets.ScopeUser
	}
	return string(scope) + " " + name
}

// recorded does it between two records.
func (s secretAdmin) recorded(ctx context.Context, c sandbox.Caller, action, subject string, do func() error) error {
	return s.access.recorded(ctx, c, action, subject, func(*audit.Record) error { return do() })
}
