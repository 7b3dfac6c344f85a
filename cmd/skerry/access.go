package main

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/auth"
	"github.com/skerry-sandbox/skerry/internal/httpserver"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// local is who calls a server that wants no key.
var local = sandbox.Owner{Tenant: "default", User: "local"}

// access decides whether calls need a key. In mode auto they do as soon as one exists: the first one
// can be made on a fresh server, and closes it at once.
type access struct {
	*parts
	closed atomic.Bool // a key is needed
	stop   context.CancelFunc
	wg     sync.WaitGroup
}

const lookForKeys = 5 * time.Second

func (a *access) open(ctx context.Context) error {
	own, stop := context.WithCancel(context.WithoutCancel(ctx))
	a.stop = stop
	has, err := a.store.HasKeys(ctx)
	if err != nil {
		return err
	}
	switch {
	case a.cfg.Auth == "none":
		return nil
	case len(a.cfg.OIDC) > 0: // somebody can call without a key
	case a.cfg.Auth == "auto" && a.cfg.Loopback() && !has:
		a.wg.Go(func() { a.watchKeys(own) })
		return nil
	case !has:
		return errors.New("no key exists, and without one nobody could call this server: make one first with `skerry keys create --admin`, with the same --data or --redis")
	}
	a.closed.Store(true)
	return nil
}

func (a *access) close() error {
	a.stop()
	a.wg.Wait()
	return nil
}

// watchKeys closes the server when another process made the first key.
func (a *access) watchKeys(ctx context.Context) {
	tick := time.NewTicker(lookForKeys)
	defer tick.Stop()
	for !a.closed.Load() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if has, err := a.store.HasKeys(ctx); err == nil && has {
			a.closed.Store(true)
		}
	}
}

// handlers gives the server's handler: the open one until a key exists, the closed one from then on.
func (a *access) handlers(o httpserver.Options) (http.Handler, error) {
	closed, err := httpserver.New(o)
	if err != nil {
		return nil, err
	}
	o.Anonymous = &local
	open, err := httpserver.New(o)
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.closed.Load() {
			closed.ServeHTTP(w, r)
			return
		}
		open.ServeHTTP(w, r)
	}), nil
}

// Authenticate checks a key.
func (a *access) Authenticate(ctx context.Context, secret, onBehalfOf string) (sandbox.Caller, error) {
	return a.keys.Authenticate(ctx, secret, onBehalfOf)
}

// CreateKey makes a key, and records it.
func (a *access) CreateKey(ctx context.Context, c sandbox.Caller, k auth.Key) (auth.Key, string, error) {
	made, secret, err := a.keys.CreateKey(ctx, c, k)
	if err != nil {
		return made, secret, err
	}
	if a.cfg.Auth != "none" {
		a.closed.Store(true)
	}
	return made, secret, a.note(ctx, c, audit.ActionKeyCreate, made.ID, "ok")
}

// ListKeys lists the keys of the caller's tenant.
func (a *access) ListKeys(ctx context.Context, c sandbox.Caller) ([]auth.Key, error) {
	return a.keys.ListKeys(ctx, c)
}

// RevokeKey ends a key, and records it.
func (a *access) RevokeKey(ctx context.Context, c sandbox.Caller, id string) error {
	if err := a.keys.RevokeKey(ctx, c, id); err != nil {
		return err
	}
	return a.note(ctx, c, audit.ActionKeyRevoke, id, "ok")
}

func (a *access) note(ctx context.Context, c sandbox.Caller, action, subject, outcome string) error {
	_, err := a.audit.AppendSync(ctx, audit.Record{
		Tenant: c.Tenant, User: c.User, Action: action, Phase: audit.PhaseResult, Subject: subject, Outcome: outcome,
	}.By(c))
	return err
}

// refused records a credential that was refused. It belongs to no tenant, because nobody proved one.
func (a *access) refused(ctx context.Context, c sandbox.Caller, reason string) {
	_, err := a.audit.Append(ctx, audit.Record{
		Tenant: local.Tenant, Action: audit.ActionAuthRefused, Phase: audit.PhaseResult, Outcome: "denied", Detail: reason,
	}.By(c))
	if err != nil {
		a.log.Error("refused credential not recorded", "error", err)
	}
}
