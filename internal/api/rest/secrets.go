package rest

import (
	"context"
	"net/http"

	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/secrets"
)

// secretRoutes are the routes of secrets.
type secretRoutes struct {
	secrets secretStore // nil: the server keeps none
}

// SecretIn names a secret.
type SecretIn struct {
	Name string `path:"name" minLength:"1" maxLength:"128"`
}

// ScopedSecretIn names one in a scope.
type ScopedSecretIn struct {
	SecretIn
	Scope string `query:"scope" maxLength:"300" doc:"user (the caller's own; default), tenant, server/NAME or skill/NAME; all but the first need administration rights"`
}

// secretBody is the body of PUT /api/secrets/{name}. What is wrong with the value is said by the use case,
// which never repeats it; a schema's complaint might.
type secretBody struct {
	Value string `json:"value" doc:"Text of 8 to 16384 bytes. It is never shown again"`
	Exec  bool   `json:"exec,omitempty" doc:"It may be in the environment of an exec (env_secrets)"`
}

type secretOut struct {
	Status int
	Body   secrets.Info
}

func (s secretRoutes) add(api *route.API) {
	route.Register(api, route.On(http.MethodGet, "/api/secrets", "listSecrets", route.TagAdmin, route.Agents, "Secrets that the caller may use or change, without values"), s.listSecrets)
	route.Register(api, route.On(http.MethodGet, "/api/secrets/{name}", "getSecret", route.TagAdmin, route.Agents, "The secrets of a name, one for each scope, without values"), s.getSecret)
	op := route.Also[secrets.Info](api, route.On(http.MethodPut, "/api/secrets/{name}", "putSecret", route.TagAdmin, route.Agents, "Store a secret, or replace it"), "201", "It is new")
	route.Register(api, op, s.putSecret)
	route.Register(api, route.On(http.MethodDelete, "/api/secrets/{name}", "deleteSecret", route.TagAdmin, route.Agents, "Delete a stored secret"), s.deleteSecret)
	route.Register(api, route.On(http.MethodPost, "/api/secrets/rotate", "rotateSecrets", route.TagAdmin, route.Operators, "Make a new key and encrypt everything that is kept for it"), s.rotateSecrets)
}

var errNoSecrets = sandbox.Errorf(sandbox.NotSupported, "this server keeps no secrets")

func (s secretRoutes) listSecrets(ctx context.Context, in *route.ListIn) (*route.Body[route.Page[secrets.Info]], error) {
	if s.secrets == nil {
		return nil, errNoSecrets
	}
	list, err := s.secrets.List(ctx, exchange.CallerOf(ctx))
	if err != nil {
		return nil, err
	}
	return route.PageIn(*in, list, secretKey)
}

func secretKey(i secrets.Info) string { return i.Name + " " + i.Scope + " " + i.Source }

func (s secretRoutes) getSecret(ctx context.Context, in *struct {
	SecretIn
	route.ListIn
},
) (*route.Body[route.Page[secrets.Info]], error) {
	if s.secrets == nil {
		return nil, errNoSecrets
	}
	list, err := s.secrets.Get(ctx, exchange.CallerOf(ctx), in.Name)
	if err != nil {
		return nil, err
	}
	return route.PageIn(in.ListIn, list, secretKey)
}

func (s secretRoutes) putSecret(ctx context.Context, in *struct {
	ScopedSecretIn
	Body secretBody
},
) (*secretOut, error) {
	if s.secrets == nil {
		return nil, errNoSecrets
	}
	info, made, err := s.secrets.Put(ctx, exchange.CallerOf(ctx), secrets.Scope(in.Scope), in.Name, in.Body.Value, in.Body.Exec)
	if err != nil {
		return nil, err
	}
	out := &secretOut{Status: http.StatusOK, Body: info}
	if made {
		out.Status = http.StatusCreated
	}
	return out, nil
}

func (s secretRoutes) deleteSecret(ctx context.Context, in *ScopedSecretIn) (*struct{}, error) {
	if s.secrets == nil {
		return nil, errNoSecrets
	}
	return nil, s.secrets.Delete(ctx, exchange.CallerOf(ctx), secrets.Scope(in.Scope), in.Name)
}

func (s secretRoutes) rotateSecrets(ctx context.Context, _ *struct{}) (*route.Body[secrets.Rotation], error) {
	if s.secrets == nil {
		return nil, errNoSecrets
	}
	done, err := s.secrets.Rotate(ctx, exchange.CallerOf(ctx))
	if err != nil {
		return nil, err
	}
	return route.BodyOf(done), nil
}
