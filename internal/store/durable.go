package store

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// maxRecord bounds one durable record. What a record holds is bounded where it comes in; this is
// the wall behind.
const maxRecord = 256 << 10

// place is where a durable record lies: a field of a hash. With an index, the field is also a member
// of that sorted set, so that the fields can be paged by name.
type place struct{ key, field, index string }

var saveScript = redis.NewScript(`
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
if KEYS[2] then redis.call('ZADD', KEYS[2], 0, ARGV[1]) end
return 1`)

var removeScript = redis.NewScript(`
if KEYS[2] then redis.call('ZREM', KEYS[2], ARGV[1]) end
return redis.call('HDEL', KEYS[1], ARGV[1])`)

func (p place) keys() []string {
	if p.index == "" {
		return []string{p.key}
	}
	return []string{p.key, p.index}
}

// save writes a durable record, JSON of v. In embedded mode it is on disk when save returns.
func (s *conn) save(ctx context.Context, p place, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the record cannot be written")
	}
	if len(text) > maxRecord {
		return sandbox.Errorf(sandbox.Invalid, "the record is larger than %d KiB", maxRecord>>10)
	}
	return s.change(ctx, func(ctx context.Context) (entry, error) {
		err := saveScript.Run(ctx, s.rdb, p.keys(), p.field, text).Err()
		return entry{Key: p.key, Field: p.field, Index: p.index, Value: text}, failure(err)
	})
}

// remove takes a durable record away. A missing one is no error.
func (s *conn) remove(ctx context.Context, p place) error {
	return s.change(ctx, func(ctx context.Context) (entry, error) {
		err := removeScript.Run(ctx, s.rdb, p.keys(), p.field).Err()
		return entry{Key: p.key, Field: p.field, Index: p.index}, failure(err)
	})
}

// change applies a durable change and journals it, in the same order for all.
func (s *conn) change(ctx context.Context, apply func(context.Context) (entry, error)) error {
	ctx, cancel := deadline(ctx)
	defer cancel()
	if s.journal == nil {
		_, err := apply(ctx)
		return err
	}
	return s.journal.change(ctx, apply)
}

// nextUIDScript answers 0 when there is no counter, unless ARGV[3] is "make".
var nextUIDScript = redis.NewScript(`
local last = redis.call('HGET', KEYS[1], ARGV[1])
if not last and ARGV[3] ~= 'make' then return 0 end
local n = tonumber(last or '0') + 1
if n < tonumber(ARGV[2]) then n = tonumber(ARGV[2]) end
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', n))
return n`)

// errNoCounter says that nothing was given, because it is unknown where to begin.
var errNoCounter = errors.New("there is no counter of uids")

// NextUID returns a host uid that was never returned before and is at least min. Uids only grow; an unused
// one is not returned again. When Redis lost the counter, it begins above what Options.HighestUID says is
// in use: two threads with one uid could read each other's files.
func (s *Store) NextUID(ctx context.Context, min int) (int, error) {
	if s.highestUID == nil {
		return s.nextUID(ctx, min, "make")
	}
	uid, err := s.nextUID(ctx, min, "")
	if !errors.Is(err, errNoCounter) {
		return uid, err
	}
	highest, err := s.highestUID()
	if err != nil {
		return 0, sandbox.Wrap(sandbox.Internal, err, "the uids in use cannot be read")
	}
	return s.nextUID(ctx, max(min, highest+1), "make")
}

// raiseUIDScript lets the counter only grow.
var raiseUIDScript = redis.NewScript(`
local last = tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or '0')
if last < tonumber(ARGV[2]) then
  last = tonumber(ARGV[2])
  redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', last))
end
return last`)

// CheckUIDs looks once at what Options.HighestUID says is in use, so that NextUID returns none of it: a Redis that lost its
// last seconds has a counter that is behind.
func (s *Store) CheckUIDs(ctx context.Context) error {
	if s.highestUID == nil {
		return nil
	}
	highest, err := s.highestUID()
	if err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the uids in use cannot be read")
	}
	if highest == 0 {
		return nil
	}
	return s.change(ctx, func(ctx context.Context) (entry, error) {
		last, err := raiseUIDScript.Run(ctx, s.rdb, []string{uidKey}, uidField, highest).Int()
		if err != nil {
			return entry{}, failure(err)
		}
		text, err := json.Marshal(last)
		return entry{Key: uidKey, Field: uidField, Value: text}, err
	})
}

func (s *Store) nextUID(ctx context.Context, min int, make string) (int, error) {
	var uid int
	err := s.change(ctx, func(ctx context.Context) (entry, error) {
		var err error
		uid, err = nextUIDScript.Run(ctx, s.rdb, []string{uidKey}, uidField, min, make).Int()
		if err != nil {
			return entry{}, failure(err)
		}
		if uid == 0 {
			return entry{}, errNoCounter
		}
		text, err := json.Marshal(uid)
		return entry{Key: uidKey, Field: uidField, Value: text}, err
	})
	if err != nil {
		return 0, err
	}
	return uid, nil
}
