package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skerry-sandbox/skerry/internal/api/auth"
	"github.com/skerry-sandbox/skerry/internal/api/rest"
	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/config"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
)

// LocalOwner is who calls a server that wants no key.
var LocalOwner = sandbox.Owner{Tenant: "default", User: "local"}

// access decides whether calls need a key. In mode auto they do as soon as one exists: the first one
// can be made on a fresh server, and closes it at once.
type access struct {
	cfg      config.Config
	log      *slog.Logger
	store    *store.Store
	keys     *auth.Keys
	audit    *audit.Log
	closed   atomic.Bool // a key is needed
	refusals *auth.Refusals
	stop     context.CancelFunc
	wg       sync.WaitGroup
}

const lookForKeys = 5 * time.Second

// firstKeyEnv may hold the first key of a server that has none. It is taken out of the environment: children never have it.
const firstKeyEnv = "SKERRY_FIRST_KEY"

// firstKey makes the key that the environment holds, when there is none yet.
func (a *access) firstKey(ctx context.Context) error {
	secret, given := os.LookupEnv(firstKeyEnv)
	if err := os.Unsetenv(firstKeyEnv); err != nil || !given || secret == "" {
		return err
	}
	o := sandbox.Owner{Tenant: a.cfg.OperatorTenant, User: LocalOwner.User}
	c := sandbox.Caller{Owner: o, Role: sandbox.RoleAdmin}
	if has, err := a.store.HasKeys(ctx); err != nil || has { // no record of what is not done
		return err
	}
	err := a.recorded(ctx, c, audit.ActionKeyCreate, "first key", func(rec *audit.Record) error {
		made, _, err := a.keys.CreateFirstKey(ctx, o, secret)
		rec.Subject = cmp.Or(made.ID, rec.Subject)
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", firstKeyEnv, err)
	}
	return nil
}

func (a *access) open(ctx context.Context) error {
	if err := a.firstKey(ctx); err != nil {
		return err
	}
	has, err := a.store.HasKeys(ctx)
	if err != nil {
		return err
	}
	own, stop := context.WithCancel(context.WithoutCancel(ctx))
	a.stop = stop
	a.refusals = auth.NewRefusals(a.recordRefused)
	switch {
	case a.cfg.Auth == "none":
	case len(a.cfg.OIDC) > 0: // callers with a token need no key
		a.closed.Store(true)
	case a.cfg.Auth == "auto" && a.cfg.Loopback() && !has:
		a.wg.Go(func() { a.watchKeys(own) })
	case !has:
		stop()
		return errors.New("no key exists, and without one no client could call this server: make one first with `skerry keys create --admin`, with the same --data or --redis, or give one in " + firstKeyEnv)
	default:
		a.closed.Store(true)
	}
	a.wg.Go(func() { a.refusals.Run(own) })
	a.wg.Go(func() { a.keys.Run(own, func() { a.look(own) }) })
	return nil
}

func (a *access) close() error {
	a.stop()
	a.wg.Wait()
	return nil
}

// look closes the server once the first key exists.
func (a *access) look(ctx context.Context) {
	if a.cfg.Auth == "none" || a.closed.Load() {
		return
	}
	if has, err := a.store.HasKeys(ctx); err == nil && has {
		a.closed.Store(true)
	}
}

// watchKeys looks now and then, for a change of the keys that was not heard of.
func (a *access) watchKeys(ctx context.Context) {
	tick := time.NewTicker(lookForKeys)
	defer tick.Stop()
	for !a.closed.Load() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			a.look(ctx)
		}
	}
}

// handlers returns the server's handler: the open one until a key exists, the closed one from then on.
func (a *access) handlers(o rest.Options) (http.Handler, error) {
	closed, err := rest.New(o)
	if err != nil {
		return nil, err
	}
	o.Anonymous = &LocalOwner
	open, err := rest.New(o)
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

// Authenticate says whose a credential is.
func (a *access) Authenticate(ctx context.Context, cred auth.Credential) (sandbox.Caller, error) {
	return a.keys.Authenticate(ctx, cred)
}

// CreateKey makes a key, and records it. Invalid: the first key is not an administrator's, so nobody could make another one.
func (a *access) CreateKey(ctx context.Context, c sandbox.Caller, k auth.Key) (auth.Key, string, error) {
	if a.cfg.Auth == "auto" && !a.closed.Load() && k.Role != "" && k.Role != sandbox.RoleAdmin {
		return auth.Key{}, "", sandbox.Errorf(sandbox.Invalid, "from the first key on the server wants a key from every caller: make an administrator's first (role admin), then the one with the role %s", k.Role)
	}
	var made auth.Key
	var secret string
	err := a.recorded(ctx, c, audit.ActionKeyCreate, k.Name, func(rec *audit.Record) (err error) {
		made, secret, err = a.keys.CreateKey(ctx, c, k)
		rec.Subject = cmp.Or(made.ID, rec.Subject)
		return err
	})
	if made.ID != "" && a.cfg.Auth != "none" {
		a.closed.Store(true)
	}
	return made, secret, err
}

// ListKeys lists the keys of the caller's tenant.
func (a *access) ListKeys(ctx context.Context, c sandbox.Caller) ([]auth.Key, error) {
	return a.keys.ListKeys(ctx, c)
}

// RevokeKey ends a key, and records it.
func (a *access) RevokeKey(ctx context.Context, c sandbox.Caller, id string) error {
	return a.recorded(ctx, c, audit.ActionKeyRevoke, id, func(*audit.Record) error { return a.keys.RevokeKey(ctx, c, id) })
}

// recorded does what an administrator asked for between two records.
func (a *access) recorded(ctx context.Context, c sandbox.Caller, action, subject string, do func(*audit.Record) error) error {
	return a.audit.Do(ctx, audit.Record{Tenant: c.Tenant, User: c.User, Action: action, Subject: subject}.By(c), do)
}

// recordRefused records a credential that was refused, or did not suffice for the request. A credential that was not proved
// belongs to no tenant: it is recorded for the operators.
func (a *access) recordRefused(ctx context.Context, c sandbox.Caller, reason string) {
	_, err := a.audit.Append(ctx, audit.Record{
		Tenant: cmp.Or(c.Tenant, a.cfg.OperatorTenant), User: c.User, Action: audit.ActionAuthRefused, Phase: audit.PhaseResult, Outcome: "denied", Detail: reason,
	}.By(c))
	if err != nil {
		a.log.Error("refused credential not recorded", "error", err)
	}
}
