package app

import (
	"context"
	"os"
	"slices"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/secrets"
)

// openSecrets opens the keys, by which other parts seal what they keep, and the secrets.
func (p *App) openSecrets(context.Context) error {
	s := p.cfg.Secrets
	var err error
	if p.sealer, err = secrets.OpenKeys(s.KeyFile, p.cfg.Data); err != nil {
		return err
	}
	p.secrets = secrets.Open(secrets.Options{Store: p.store, Keys: p.sealer, Env: s.Env, Lookup: os.LookupEnv, Dir: s.Dir, Exec: s.Exec, Log: p.log})
	p.onClose(p.secrets.Close)
	return nil
}

// openScratchSecrets is openSecrets for a data folder that is gone in a moment.
func (p *App) openScratchSecrets(context.Context) (err error) {
	if p.sealer, err = secrets.TemporaryKeys(); err != nil {
		return err
	}
	p.secrets = secrets.Open(secrets.Options{Store: p.store, Keys: p.sealer, Lookup: os.LookupEnv, Log: p.log})
	p.onClose(p.secrets.Close)
	return nil
}

// sealLogins has connections follow the secrets, and encrypts the logins that a former version has kept.
func (p *App) sealLogins(ctx context.Context) {
	p.secrets.OnChange(p.hub.SecretsChanged)
	renew := func(ctx context.Context) (int, error) {
		changed, unreadable, err := p.hub.RenewLogins(ctx, p.sealer.Stale)
		if unreadable > 0 {
			p.log.Warn("logins at MCP servers that no key opens are left where they are; these users log in again", "logins", unreadable)
		}
		return changed, err
	}
	p.secrets.AlsoRenew(renew)
	if changed, err := renew(ctx); err != nil {
		p.log.Error("logins at MCP servers are not all encrypted", "error", err)
	} else if changed > 0 {
		p.log.Info("logins at MCP servers are encrypted now", "logins", changed)
	}
}

// sealKept encrypts the environments of sandboxes that a former version has kept.
func (p *App) sealKept(ctx context.Context) {
	p.secrets.AlsoRenew(p.orch.Specs.Renew)
	if changed, err := p.orch.Specs.Renew(ctx); err != nil {
		p.log.Error("environments of sandboxes are not all encrypted", "error", err)
	} else if changed > 0 {
		p.log.Info("environments of sandboxes are encrypted now", "sandboxes", changed)
	}
}

// lookupEnv returns the variables that ${NAME} may stand for in the configuration of MCP servers.
func (p *App) lookupEnv(name string) (string, bool) {
	if p.cfg.Secrets.StrictEnv && name != "PATH" && name != "HOME" && !slices.Contains(p.cfg.Secrets.Env, name) {
		return "", false
	}
	return os.LookupEnv(name)
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
