package app

import (
	"context"

	"github.com/skerry-sandbox/skerry/internal/api/auth"
	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// derivedKeys makes and ends derived keys, and records it.
type derivedKeys struct{ *access }

func (k derivedKeys) Derive(ctx context.Context, cred auth.Credential, name, thread string) (auth.Derived, error) {
	if d, err := k.keys.Derived(ctx, cred, name); err == nil && d.Thread == thread && d.User == cred.OnBehalfOf {
		return d, nil // as most of the time: nothing is made
	}
	c, err := k.keys.Authenticate(ctx, cred)
	if err != nil {
		return auth.Derived{}, err
	}
	c.Source = cred.Source
	var d auth.Derived
	err = k.recorded(ctx, c, audit.ActionKeyCreate, name, func(*audit.Record) (err error) {
		d, err = k.keys.Derive(ctx, cred, name, thread)
		return err
	})
	return d, err
}

func (k derivedKeys) Derived(ctx context.Context, cred auth.Credential, name string) (auth.Derived, error) {
	return k.keys.Derived(ctx, cred, name)
}

func (k derivedKeys) AllDerived(ctx context.Context, cred auth.Credential, prefix string) ([]auth.Derived, error) {
	return k.keys.AllDerived(ctx, cred, prefix)
}

func (k derivedKeys) ForgetDerived(ctx context.Context, cred auth.Credential, name string) error {
	c, err := k.keys.Authenticate(ctx, cred)
	if err != nil {
		return err
	}
	c.Source = cred.Source
	return k.recorded(ctx, c, audit.ActionKeyRevoke, name, func(*audit.Record) error { return k.keys.ForgetDerived(ctx, cred, name) })
}

func (k derivedKeys) ThreadOf(ctx context.Context, cred auth.Credential) (string, sandbox.Caller, error) {
	return k.keys.ThreadOf(ctx, cred)
}
