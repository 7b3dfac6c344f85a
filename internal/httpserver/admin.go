package httpserver

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/auth"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

type auditIn struct {
	Thread  string    `query:"thread" maxLength:"128"`
	User    string    `query:"user" maxLength:"128" doc:"Administrators only, unless it is the caller"`
	Exec    string    `query:"exec" maxLength:"128"`
	Action  string    `query:"action" maxLength:"64"`
	Tool    string    `query:"tool" maxLength:"512"`
	Outcome string    `query:"outcome" maxLength:"64"`
	Since   time.Time `query:"since" doc:"RFC 3339"`
	Until   time.Time `query:"until" doc:"RFC 3339"`
	Cursor  string    `query:"cursor" maxLength:"512"`
	Limit   int       `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

// keyBody is the body of POST /api/keys.
type keyBody struct {
	Name      string     `json:"name" minLength:"1" maxLength:"128"`
	Tenant    string     `json:"tenant,omitempty" doc:"The caller's tenant when absent"`
	User      string     `json:"user" minLength:"1"`
	Admin     bool       `json:"admin,omitempty"`
	ActFor    bool       `json:"act_for,omitempty" doc:"May send On-Behalf-Of"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
}

// madeKey is a new key with its secret, which is shown this once.
type madeKey struct {
	auth.Key
	Secret string `json:"secret"`
}

// noStore says that an answer is not to be kept anywhere: not in a cache, and not by idempotent.
const noStore = "no-store"

type madeKeyOut struct {
	CacheControl string `header:"Cache-Control"`
	Body         madeKey
}

func (s *server) adminRoutes() {
	register(s, s.api, on(http.MethodGet, "/api/audit", "listAudit", tagAdmin,
		"Audit records, newest first: the caller's own, or for administrators the tenant's"), s.listAudit)
	op := on(http.MethodPost, "/api/keys", "createKey", tagAdmin, "Make a key; the secret is shown this once")
	op.DefaultStatus = http.StatusCreated
	register(s, s.api, op, s.createKey)
	register(s, s.api, on(http.MethodGet, "/api/keys", "listKeys", tagAdmin, "All keys, without secrets"), s.listKeys)
	register(s, s.api, on(http.MethodDelete, "/api/keys/{id}", "revokeKey", tagAdmin, "Make a key invalid"),
		adminOnly(func(ctx context.Context, in *struct {
			ID string `path:"id" maxLength:"128"`
		},
		) (*struct{}, error) {
			if s.o.Keys == nil {
				return nil, errNoKeys
			}
			return nil, s.o.Keys.RevokeKey(ctx, callerOf(ctx), in.ID)
		}))
}

var errNoKeys = sandbox.Errorf(sandbox.NotSupported, "this server has no keys")

// listAudit shows a caller nobody else's records, whatever is asked for.
func (s *server) listAudit(ctx context.Context, in *auditIn) (*body[page[audit.Record]], error) {
	c := callerOf(ctx)
	f := audit.Filter{
		Tenant: c.Tenant, User: in.User, Thread: in.Thread, Exec: in.Exec, Action: in.Action, Tool: in.Tool, Outcome: in.Outcome,
		Since: in.Since, Until: in.Until, Cursor: in.Cursor, Limit: in.Limit,
	}
	if !c.Admin {
		if in.User != "" && in.User != c.User {
			return nil, sandbox.Errorf(sandbox.Forbidden, "records of other users need a key with administration rights")
		}
		f.User = c.User
	}
	items, next, err := s.o.Audit.List(ctx, f)
	if err != nil {
		return nil, err
	}
	return pageOf(items, next), nil
}

func (s *server) createKey(ctx context.Context, in *struct{ Body keyBody }) (*madeKeyOut, error) {
	c := callerOf(ctx)
	if err := admin(c); err != nil {
		return nil, err
	}
	if s.o.Keys == nil {
		return nil, errNoKeys
	}
	b := in.Body
	k := auth.Key{Name: b.Name, Tenant: cmp.Or(b.Tenant, c.Tenant), User: b.User, Admin: b.Admin, ActFor: b.ActFor, ExpiresAt: b.ExpiresAt}
	if err := sandbox.CheckOwnerName("tenant", k.Tenant); err != nil {
		return nil, err
	}
	if err := sandbox.CheckOwnerName("user", k.User); err != nil {
		return nil, err
	}
	made, secret, err := s.o.Keys.CreateKey(ctx, c, k)
	if err != nil {
		return nil, err
	}
	return &madeKeyOut{CacheControl: noStore, Body: madeKey{Key: made, Secret: secret}}, nil
}

func (s *server) listKeys(ctx context.Context, _ *struct{}) (*body[page[auth.Key]], error) {
	if err := admin(callerOf(ctx)); err != nil {
		return nil, err
	}
	if s.o.Keys == nil {
		return pageOf([]auth.Key{}, ""), nil
	}
	items, err := s.o.Keys.ListKeys(ctx, callerOf(ctx))
	if err != nil {
		return nil, err
	}
	return pageOf(items, ""), nil
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
