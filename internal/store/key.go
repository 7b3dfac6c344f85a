package store

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// keyRecords are the keys of callers.
type keyRecords struct{ *conn }

// KeyRecord is a bearer key without its secret.
type KeyRecord struct {
	ID           string       `json:"id"`
	Name         string       `json:"name"`
	Tenant       string       `json:"tenant"`
	User         string       `json:"user"`
	Admin        bool         `json:"admin"`          // Role is RoleAdmin
	Role         sandbox.Role `json:"role,omitempty"` // "": a key from before there were roles
	ActFor       bool         `json:"act_for"`
	Capabilities []string     `json:"capabilities,omitempty"`
	Threads      []string     `json:"threads,omitempty"` // nil = all
	CreatedAt    time.Time    `json:"created_at"`
	ExpiresAt    *time.Time   `json:"expires_at,omitempty"` // the caller looks at it: an expired key is still found
	LastUsedAt   *time.Time   `json:"-"`                    // kept beside it; only Keys returns it
	Hash         string       `json:"hash"`                 // sha256 hex of the secret
	Parent       string       `json:"parent,omitempty"`     // Hash of the key that this one was derived from, without which it is none; "": of none
}

func hashPlace(hash string) place { return place{key: keyHashesKey, field: hash} }

func tenantKeyPlace(tenant, id string) place {
	return place{key: tenantKeysKey(tenant), field: id}
}

// PutKey writes a key. It is durable. The two places of a key lie in different slots of a cluster,
// so they are written one after the other: a crash in between leaves a key that is listed, does not
// work, and can be deleted.
func (s keyRecords) PutKey(ctx context.Context, k KeyRecord) error {
	if err := checkOwner(sandbox.Owner{Tenant: k.Tenant, User: k.User}); err != nil {
		return err
	}
	if k.ID == "" || k.Hash == "" {
		return sandbox.Errorf(sandbox.Internal, "a key needs an id and a hash")
	}
	if err := s.save(ctx, tenantKeyPlace(k.Tenant, k.ID), k); err != nil {
		return err
	}
	defer s.tellKey(ctx, k.ID)
	return s.save(ctx, hashPlace(k.Hash), k)
}

// tellKey says to all servers that a key is another one now. Who misses it looks again by itself.
func (s keyRecords) tellKey(ctx context.Context, id string) {
	ctx, cancel := deadline(context.WithoutCancel(ctx))
	defer cancel()
	_ = s.rdb.Publish(ctx, keysChannel, id).Err()
}

// WatchKeys calls changed with the id of each key that is made or deleted on any server, until ctx ends; with ""
// when some may have been missed.
func (s keyRecords) WatchKeys(ctx context.Context, changed func(id string)) {
	s.watch(ctx, keysChannel, changed)
}

// KeyUsed writes down when a key was used. Of a key that was deleted meanwhile nothing is kept.
func (s keyRecords) KeyUsed(ctx context.Context, tenant, id string, at time.Time) error {
	if err := sandbox.CheckOwnerName("tenant", tenant); err != nil {
		return err
	}
	return s.noteUse(ctx, tenantKeysKey(tenant), keyUsesKey(tenant), id, at)
}

// KeyByHash returns the key whose secret has this hash, or NotFound.
func (s keyRecords) KeyByHash(ctx context.Context, hash string) (KeyRecord, error) {
	return s.key(ctx, hashPlace(hash))
}

// Keys lists a tenant's keys, sorted by time of creation, then id.
func (s keyRecords) Keys(ctx context.Context, tenant string) ([]KeyRecord, error) {
	if err := sandbox.CheckOwnerName("tenant", tenant); err != nil {
		return nil, err
	}
	ctx, cancel := deadline(ctx)
	defer cancel()
	texts, err := s.rdb.HVals(ctx, tenantKeysKey(tenant)).Result()
	if err != nil {
		return nil, failure(err)
	}
	uses, err := s.uses(ctx, keyUsesKey(tenant))
	if err != nil {
		return nil, err
	}
	keys := make([]KeyRecord, len(texts))
	for i, text := range texts {
		if err := json.Unmarshal([]byte(text), &keys[i]); err != nil {
			return nil, sandbox.Wrap(sandbox.Internal, err, "the key's record cannot be read")
		}
		keys[i].LastUsedAt = uses[keys[i].ID]
	}
	slices.SortFunc(keys, func(a, b KeyRecord) int {
		if c := a.CreatedAt.Compare(b.CreatedAt); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return keys, nil
}

// DeleteKey takes a key away; NotFound when the tenant has none with this id. It is durable. What
// makes the key work goes first: after an error in between it can be deleted again.
func (s keyRecords) DeleteKey(ctx context.Context, tenant, id string) error {
	if err := sandbox.CheckOwnerName("tenant", tenant); err != nil {
		return err
	}
	k, err := s.key(ctx, tenantKeyPlace(tenant, id))
	if err != nil {
		return err
	}
	defer s.tellKey(ctx, id)
	if err := s.remove(ctx, hashPlace(k.Hash)); err != nil {
		return err
	}
	if err := s.remove(ctx, tenantKeyPlace(tenant, id)); err != nil {
		return err
	}
	return s.remove(ctx, place{key: keyUsesKey(tenant), field: id})
}

// HasKeys reports whether any tenant has a key.
func (s keyRecords) HasKeys(ctx context.Context) (bool, error) {
	ctx, cancel := deadline(ctx)
	defer cancel()
	n, err := s.rdb.HLen(ctx, keyHashesKey).Result()
	return n > 0, failure(err)
}

func (s keyRecords) key(ctx context.Context, p place) (KeyRecord, error) {
	ctx, cancel := deadline(ctx)
	defer cancel()
	text, err := s.rdb.HGet(ctx, p.key, p.field).Bytes()
	if isNil(err) {
		return KeyRecord{}, sandbox.Errorf(sandbox.NotFound, "there is no such key")
	}
	if err != nil {
		return KeyRecord{}, failure(err)
	}
	var k KeyRecord
	if err := json.Unmarshal(text, &k); err != nil {
		return KeyRecord{}, sandbox.Wrap(sandbox.Internal, err, "the key's record cannot be read")
	}
	return k, nil
}
