package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// secretRecords are sealed values by name.
type secretRecords struct{ *conn }

// SecretRecord is a secret that is stored. Its value is encrypted by the server that stores it: the state never has it.
type SecretRecord struct {
	Tenant    string    `json:"tenant"`
	Scope     string    `json:"scope"`
	Name      string    `json:"name"`
	Exec      bool      `json:"exec,omitempty"`
	Sealed    []byte    `json:"sealed"`
	ChangedAt time.Time `json:"changed_at"`
	ChangedBy string    `json:"changed_by"`
	// LastUsedAt is kept beside it; only Secrets returns it.
	LastUsedAt *time.Time `json:"-"`
}

func secretPlace(tenant, scope, name string) place {
	return place{key: tenantSecretsKey(tenant), field: scope + "/" + name} // a name has no slash
}

// PutSecret writes a secret. It is durable. Its tenant is written first, so that a reader who goes through all
// secrets misses none.
func (s secretRecords) PutSecret(ctx context.Context, r SecretRecord) error {
	if err := sandbox.CheckOwnerName("tenant", r.Tenant); err != nil {
		return err
	}
	if err := s.save(ctx, place{key: secretTenantsKey, field: r.Tenant}, true); err != nil {
		return err
	}
	if err := s.save(ctx, secretPlace(r.Tenant, r.Scope, r.Name), r); err != nil {
		return err
	}
	return s.secretsChanged(ctx)
}

// DeleteSecret takes a secret away. It is durable. A missing one is no error.
func (s secretRecords) DeleteSecret(ctx context.Context, tenant, scope, name string) error {
	p := secretPlace(tenant, scope, name)
	if err := s.remove(ctx, p); err != nil {
		return err
	}
	if err := s.remove(ctx, place{key: secretUsesKey(tenant), field: p.field}); err != nil {
		return err
	}
	return s.secretsChanged(ctx)
}

// SecretUsed writes down when a secret was used. Of one that was deleted meanwhile nothing is kept.
func (s secretRecords) SecretUsed(ctx context.Context, tenant, scope, name string, at time.Time) error {
	if err := sandbox.CheckOwnerName("tenant", tenant); err != nil {
		return err
	}
	p := secretPlace(tenant, scope, name)
	return s.noteUse(ctx, p.key, secretUsesKey(tenant), p.field, at)
}

// secretsChanged tells the other servers.
func (s secretRecords) secretsChanged(ctx context.Context) error {
	ctx, cancel := deadline(ctx)
	defer cancel()
	return failure(s.rdb.Incr(ctx, secretVersionKey).Err())
}

// SecretVersion changes with each secret that is put or deleted by any server.
func (s secretRecords) SecretVersion(ctx context.Context) (string, error) {
	ctx, cancel := deadline(ctx)
	defer cancel()
	v, err := s.rdb.Get(ctx, secretVersionKey).Result()
	if isNil(err) {
		return "0", nil
	}
	return v, failure(err)
}

// Secrets returns all secrets of a tenant, by name, then scope.
func (s secretRecords) Secrets(ctx context.Context, tenant string) ([]SecretRecord, error) {
	if err := sandbox.CheckOwnerName("tenant", tenant); err != nil {
		return nil, err
	}
	ctx, cancel := deadline(ctx)
	defer cancel()
	texts, err := s.rdb.HVals(ctx, tenantSecretsKey(tenant)).Result()
	if err != nil {
		return nil, failure(err)
	}
	uses, err := s.uses(ctx, secretUsesKey(tenant))
	if err != nil {
		return nil, err
	}
	list := make([]SecretRecord, len(texts))
	for i, text := range texts {
		if list[i], err = readSecret(text); err != nil {
			return nil, err
		}
		list[i].LastUsedAt = uses[secretPlace(tenant, list[i].Scope, list[i].Name).field]
	}
	slices.SortFunc(list, func(a, b SecretRecord) int {
		if c := strings.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		return strings.Compare(a.Scope, b.Scope)
	})
	return list, nil
}

func readSecret(text string) (SecretRecord, error) {
	var r SecretRecord
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return r, sandbox.Wrap(sandbox.Internal, err, "the secret's record cannot be read")
	}
	return r, nil
}

// SecretsNamed returns those of a name in some scopes, in one round trip.
func (s secretRecords) SecretsNamed(ctx context.Context, tenant, name string, scopes []string) ([]SecretRecord, error) {
	if err := sandbox.CheckOwnerName("tenant", tenant); err != nil {
		return nil, err
	}
	ctx, cancel := deadline(ctx)
	defer cancel()
	fields := make([]string, len(scopes))
	for i, scope := range scopes {
		fields[i] = secretPlace(tenant, scope, name).field
	}
	texts, err := s.rdb.HMGet(ctx, tenantSecretsKey(tenant), fields...).Result()
	if err != nil {
		return nil, failure(err)
	}
	var list []SecretRecord
	for _, text := range texts {
		text, ok := text.(string)
		if !ok {
			continue
		}
		r, err := readSecret(text)
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, nil
}

// SecretTenants returns the tenants that have, or had, secrets.
func (s secretRecords) SecretTenants(ctx context.Context) ([]string, error) {
	ctx, cancel := deadline(ctx)
	defer cancel()
	list, err := s.rdb.HKeys(ctx, secretTenantsKey).Result()
	return list, failure(err)
}

var errChanged = errors.New("the secret was changed meanwhile")

// ResealSecret exchanges was for now, which differ in how the value is encrypted. false: it was changed
// meanwhile, and stays so. It is durable.
func (s secretRecords) ResealSecret(ctx context.Context, was, now SecretRecord) (bool, error) {
	err := s.changeRecord(ctx, secretPlace(was.Tenant, was.Scope, was.Name), func(before string) (any, error) {
		if before == "" {
			return nil, errChanged
		}
		r, err := readSecret(before)
		if err == nil && !bytes.Equal(r.Sealed, was.Sealed) {
			err = errChanged
		}
		r.Sealed = now.Sealed
		return r, err
	})
	if errors.Is(err, errChanged) {
		return false, nil
	}
	return err == nil, err
}
