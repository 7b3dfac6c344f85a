package rest

import (
	"context"
	"net/http"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/secrets"
)

// secretRoutes are the routes of secrets.
type secretRoutes struct{ *server }

// SecretIn names a secret.
type SecretIn struct {
	Name string `path:"name" minLength:"1" maxLength:"128"`
}

// ScopedSecretIn names one in a scope.
type ScopedSecretIn struct {
	SecretIn
	Scope string `query:"scope" maxLength:"300" doc:"user (the caller's own; default), tenant, server/NAME or skill/NAME; all but the first need administration rights"`
}

// secretBody is the body of PUT /api/secrets/{name}. What is wrong with the value is said by the use case, which
// never repeats it; a schema's complaint might.
type secretBody struct {
	Value string `json:"value" doc:"Text of 8 to 16384 bytes. It is never shown again"`
	Exec  bool   `json:"exec,omitempty" doc:"It may be in the environment of an exec (env_secrets)"`
}

type secretOut struct {
	Status int
	Body   secrets.Info
}

func (s secretRoutes) add() {
	register(s.server, s.api, on(http.MethodGet, "/api/secrets", "listSecrets", tagAdmin, agents, "Secrets that the caller may use or change, without values"), s.listSecrets)
	register(s.server, s.api, on(http.MethodGet, "/api/secrets/{name}", "getSecret", tagAdmin, agents, "The secrets of a name, one for each scope, without values"), s.getSecret)
	op := also[secrets.Info](s.server, on(http.MethodPut, "/api/secrets/{name}", "putSecret", tagAdmin, agents, "Store a secret, or replace it"), "201", "It is new")
	register(s.server, s.api, op, s.putSecret)
	register(s.server, s.api, on(http.MethodDelete, "/api/secrets/{name}", "deleteSecret", tagAdmin, agents, "Delete a stored secret"), s.deleteSecret)
	register(s.server, s.api, on(http.MethodPost, "/api/secrets/rotate", "rotateSecrets", tagAdmin, operators, "Make a new key and encrypt everything that is kept for it"), s.rotateSecrets)
}

var errNoSecrets = sandbox.Errorf(sandbox.NotSupported, "this server keeps no secrets")

func (s secretRoutes) listSecrets(ctx context.Context, in *ListIn) (*body[page[secrets.Info]], error) {
	if s.o.Secrets == nil {
		return nil, errNoSecrets
	}
	list, err := s.o.Secrets.List(ctx, callerOf(ctx))
	if err != nil {
		return nil, err
	}
	return pageIn(*in, list, secretKey)
}

func secretKey(i secrets.Info) string { return i.Name + " " + i.Scope + " " + i.Source }

func (s secretRoutes) getSecret(ctx context.Context, in *struct {
	SecretIn
	ListIn
},
) (*body[page[secrets.Info]], error) {
	if s.o.Secrets == nil {
		return nil, errNoSecrets
	}
	list, err := s.o.Secrets.Get(ctx, callerOf(ctx), in.Name)
	if err != nil {
		return nil, err
	}
	return pageIn(in.ListIn, list, secretKey)
}

func (s secretRoutes) putSecret(ctx context.Context, in *struct {
	ScopedSecretIn
	Body secretBody
},
) (*secretOut, error) {
	if s.o.Secrets == nil {
		return nil, errNoSecrets
	}
	info, made, err := s.o.Secrets.Put(ctx, callerOf(ctx), secrets.Scope(in.Scope), in.Name, in.Body.Value, in.Body.Exec)
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
	if s.o.Secrets == nil {
		return nil, errNoSecrets
	}
	return nil, s.o.Secrets.Delete(ctx, callerOf(ctx), secrets.Scope(in.Scope), in.Name)
}

func (s secretRoutes) rotateSecrets(ctx context.Context, _ *struct{}) (*body[secrets.Rotation], error) {
	if s.o.Secrets == nil {
		return nil, errNoSecrets
	}
	done, err := s.o.Secrets.Rotate(ctx, callerOf(ctx))
	if err != nil {
		return nil, err
	}
	return bodyOf(done), nil
}
