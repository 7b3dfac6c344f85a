package store

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/skerry-sandbox/skerry/internal/store/journal"
)

// When a key or a secret was used last is kept beside its record, so that a use changes no record.

// noteUseScript writes down a use of a record that is still there. KEYS: records, uses.
var noteUseScript = redis.NewScript(`
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
return 1`)

var errNoRecord = errors.New("there is no such record")

// noteUse writes down when a field of records was used. Of one that was deleted meanwhile nothing is kept.
func (s *conn) noteUse(ctx context.Context, records, uses, field string, at time.Time) error {
	text, err := textOf(at.Unix())
	if err != nil {
		return err
	}
	err = s.change(ctx, func(ctx context.Context) (journal.Entry, error) {
		done, err := noteUseScript.Run(ctx, s.rdb, []string{records, uses}, field, text).Int()
		if err == nil && done == 0 {
			return journal.Entry{}, errNoRecord
		}
		return journal.Entry{Key: uses, Field: field, Value: text}, failure(err)
	})
	if errors.Is(err, errNoRecord) {
		return nil
	}
	return err
}

// uses returns when each field was used.
func (s *conn) uses(ctx context.Context, key string) (map[string]*time.Time, error) {
	texts, err := s.rdb.HGetAll(ctx, key).Result()
	if err != nil {
		return nil, failure(err)
	}
	all := make(map[string]*time.Time, len(texts))
	for field, text := range texts {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			at := time.Unix(n, 0).UTC()
			all[field] = &at
		}
	}
	return all, nil
}
