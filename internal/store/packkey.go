package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// packKeyRecords are the SSH keys that may provide tool packs.
type packKeyRecords struct{ *conn }

// PackKeyRecord is a key that was added by the API.
type PackKeyRecord struct {
	ID           string     `json:"id"` // its fingerprint
	Key          string     `json:"key"`
	Name         string     `json:"name,omitempty"`
	Authority    bool       `json:"cert_authority,omitempty"`
	Tenant       string     `json:"tenant,omitempty"`
	Packs        []string   `json:"packs,omitempty"`
	Capabilities []string   `json:"capabilities,omitempty"`
	ExpiresAt    *time.Time `json:"expires_at,omitempty"`
	CreatedAt    time.Time  `json:"created_at"`
	CreatedBy    string     `json:"created_by"`
}

// PutPackKey writes a key. It is durable.
func (s packKeyRecords) PutPackKey(ctx context.Context, r PackKeyRecord) error {
	return s.save(ctx, place{key: packKeysKey, field: r.ID}, r)
}

// DeletePackKey takes a key away. It is durable. NotFound: there is none.
func (s packKeyRecords) DeletePackKey(ctx context.Context, id string) error {
	bounded, cancel := deadline(ctx)
	defer cancel()
	has, err := s.rdb.HExists(bounded, packKeysKey, id).Result()
	switch {
	case err != nil:
		return failure(err)
	case !has:
		return sandbox.Errorf(sandbox.NotFound, "there is no key %.80q", id)
	}
	return s.remove(ctx, place{key: packKeysKey, field: id})
}

// PackKeys returns all keys.
func (s packKeyRecords) PackKeys(ctx context.Context) ([]PackKeyRecord, error) {
	ctx, cancel := deadline(ctx)
	defer cancel()
	texts, err := s.rdb.HVals(ctx, packKeysKey).Result()
	if err != nil {
		return nil, failure(err)
	}
	list := make([]PackKeyRecord, len(texts))
	for i, text := range texts {
		if err := json.Unmarshal([]byte(text), &list[i]); err != nil {
			return nil, sandbox.Wrap(sandbox.Internal, err, "the record of a key of packs cannot be read")
		}
	}
	return list, nil
}
