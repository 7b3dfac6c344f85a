package rest

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/skerry-sandbox/skerry/internal/api/auth"
	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// adminRoutes are the routes of keys.
type adminRoutes struct {
	keys keys // nil: there are none
}

// keyBody is the body of POST /api/keys.
type keyBody struct {
	Name         string       `json:"name" minLength:"1" maxLength:"128"`
	Tenant       string       `json:"tenant,omitempty" doc:"The caller's tenant when absent"`
	User         string       `json:"user" minLength:"1"`
	Role         sandbox.Role `json:"role,omitempty" enum:"agent,developer,admin,auditor,pack" doc:"When absent: admin for the first key of all, and where admin is true; else agent"`
	Admin        bool         `json:"admin,omitempty" doc:"The same as role admin"`
	ActFor       bool         `json:"act_for,omitempty" doc:"May send On-Behalf-Of, with the role developer at most"`
	Capabilities []string     `json:"capabilities,omitempty" maxItems:"256" doc:"Names that tools may require"`
	Threads      []string     `json:"threads,omitempty" maxItems:"100" doc:"The only threads it is good for: names, or the beginning of names with a * behind it; all when absent"`
	ExpiresAt    *time.Time   `json:"expires_at,omitempty"`
}

// madeKey is a new key with its secret, which is shown this once.
type madeKey struct {
	auth.Key
	Secret string `json:"secret"`
}

type madeKeyOut struct {
	CacheControl string `header:"Cache-Control"`
	Body         madeKey
}

func (s adminRoutes) add(api *route.API) {
	op := route.On(http.MethodPost, "/api/keys", "createKey", route.TagAdmin, route.Admins, "Make a key; the secret is shown this once")
	op.DefaultStatus = http.StatusCreated
	route.Register(api, op, s.createKey)
	route.Register(api, route.On(http.MethodGet, "/api/keys", "listKeys", route.TagAdmin, route.Admins, "All keys, without secrets"), s.listKeys)
	route.Register(api, route.On(http.MethodDelete, "/api/keys/{id}", "revokeKey", route.TagAdmin, route.Admins, "Make a key invalid"),
		func(ctx context.Context, in *struct {
			ID string `path:"id" maxLength:"128"`
		},
		) (*struct{}, error) {
			if s.keys == nil {
				return nil, errNoKeys
			}
			return nil, s.keys.RevokeKey(ctx, exchange.CallerOf(ctx), in.ID)
		})
}

var errNoKeys = sandbox.Errorf(sandbox.NotSupported, "this server has no keys")

func (s adminRoutes) createKey(ctx context.Context, in *struct{ Body keyBody }) (*madeKeyOut, error) {
	c := exchange.CallerOf(ctx)
	if s.keys == nil {
		return nil, errNoKeys
	}
	b := in.Body
	k := auth.Key{
		Name: b.Name, Tenant: cmp.Or(b.Tenant, c.Tenant), User: b.User, Role: b.Role, Admin: b.Admin, ActFor: b.ActFor,
		Capabilities: b.Capabilities, Threads: b.Threads, ExpiresAt: b.ExpiresAt,
	}
	if err := sandbox.CheckOwnerName("tenant", k.Tenant); err != nil {
		return nil, err
	}
	if err := sandbox.CheckOwnerName("user", k.User); err != nil {
		return nil, err
	}
	made, secret, err := s.keys.CreateKey(ctx, c, k)
	if err != nil {
		return nil, err
	}
	return &madeKeyOut{CacheControl: exchange.NoStore, Body: madeKey{Key: made, Secret: secret}}, nil
}

func (s adminRoutes) listKeys(ctx context.Context, in *route.ListIn) (*route.Body[route.Page[auth.Key]], error) {
	if s.keys == nil {
		return route.PageOf([]auth.Key{}, ""), nil
	}
	items, err := s.keys.ListKeys(ctx, exchange.CallerOf(ctx))
	if err != nil {
		return nil, err
	}
	return route.PageIn(*in, items, func(k auth.Key) string { return k.ID })
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
