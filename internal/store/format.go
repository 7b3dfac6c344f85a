package store

import (
	"context"

	"github.com/skerry-sandbox/skerry/internal/store/format"
)

const formatKey = "skerry:{:format}"

// CheckFormat reports whether this server can read what is in Redis, and writes the version where there is none. Embedded state
// is part of the data folder.
func (s *Store) CheckFormat(ctx context.Context) error {
	if s.embedded != nil {
		return nil
	}
	ctx, cancel := deadline(ctx)
	defer cancel()
	if err := s.rdb.SetNX(ctx, formatKey, format.Version, 0).Err(); err != nil {
		return failure(err)
	}
	text, err := s.rdb.Get(ctx, formatKey).Result()
	if err != nil {
		return failure(err)
	}
	return format.Check("the state in Redis", "the key "+formatKey, text)
}
