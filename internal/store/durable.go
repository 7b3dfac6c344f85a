package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store/journal"
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

func textOf(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "the record cannot be written")
	}
	if len(text) > maxRecord {
		return nil, sandbox.Errorf(sandbox.Invalid, "the record is larger than %d KiB", maxRecord>>10)
	}
	return text, nil
}

// save writes a durable record, JSON of v, in place of what was. In embedded mode it is on disk when save returns.
// A writer that changes a part of a record uses changeRecord.
func (s *conn) save(ctx context.Context, p place, v any) error {
	text, err := textOf(v)
	if err != nil {
		return err
	}
	return s.change(ctx, func(ctx context.Context) (journal.Entry, error) {
		err := saveScript.Run(ctx, s.rdb, p.keys(), p.field, text).Err()
		return journal.Entry{Key: p.key, Field: p.field, Index: p.index, Value: text}, failure(err)
	})
}

// replaceScript writes a record that is as the caller saw it: ARGV[2], "" when there was none.
var replaceScript = redis.NewScript(`
if (redis.call('HGET', KEYS[1], ARGV[1]) or '') ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
if KEYS[2] then redis.call('ZADD', KEYS[2], 0, ARGV[1]) end
return 1`)

// errOvertaken says that another change of a record was faster.
var errOvertaken = errors.New("another change of the record was faster")

// contended bounds how long a change of a record may lose against others.
const contended = 15 * time.Second

// untilFirst calls try, which reads a record and replaces it, until no other change is faster. Of those who change
// one record at once, one succeeds in each round.
func (s *conn) untilFirst(ctx context.Context, try func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, contended)
	defer cancel()
	for {
		err := try(ctx)
		if !errors.Is(err, errOvertaken) {
			return err
		}
		if ctx.Err() != nil {
			return sandbox.Wrap(sandbox.Unavailable, err, "the record is changed by too many at once; try again")
		}
	}
}

// changeRecord changes a durable record. change is given its text, "" when there is none, and returns what it
// becomes; its error ends the call. It may be called again when another change was faster.
func (s *conn) changeRecord(ctx context.Context, p place, change func(before string) (any, error)) error {
	return s.untilFirst(ctx, func(ctx context.Context) error {
		before, err := s.recordText(ctx, p)
		if err != nil {
			return err
		}
		v, err := change(before)
		if err != nil {
			return err
		}
		return s.replace(ctx, p, before, v)
	})
}

// recordText returns the text of a record, "" when there is none.
func (s *conn) recordText(ctx context.Context, p place) (string, error) {
	ctx, cancel := deadline(ctx)
	defer cancel()
	text, err := s.rdb.HGet(ctx, p.key, p.field).Result()
	if isNil(err) {
		return "", nil
	}
	return text, failure(err)
}

// replace writes a durable record whose text is still before. errOvertaken: it is not. A record that stays as it is
// costs no write.
func (s *conn) replace(ctx context.Context, p place, before string, v any) error {
	text, err := textOf(v)
	if err != nil {
		return err
	}
	if s.isDurable(p, before, text) {
		return nil
	}
	return s.change(ctx, func(ctx context.Context) (journal.Entry, error) {
		done, err := replaceScript.Run(ctx, s.rdb, p.keys(), p.field, before, text).Int()
		if err == nil && done == 0 {
			return journal.Entry{}, errOvertaken
		}
		return journal.Entry{Key: p.key, Field: p.field, Index: p.index, Value: text}, failure(err)
	})
}

// isDurable reports whether a record that the caller saw has a text, also on disk: a change that came into memory
// while the disk was full is written by the next one.
func (s *conn) isDurable(p place, before string, text []byte) bool {
	return before == string(text) && (s.journal == nil || s.journal.Has(journal.Entry{Key: p.key, Field: p.field, Value: text}))
}

// remove takes a durable record away. A missing one is no error.
func (s *conn) remove(ctx context.Context, p place) error {
	return s.change(ctx, func(ctx context.Context) (journal.Entry, error) {
		err := removeScript.Run(ctx, s.rdb, p.keys(), p.field).Err()
		return journal.Entry{Key: p.key, Field: p.field, Index: p.index}, failure(err)
	})
}

// change applies a durable change and journals it, in the same order for all.
func (s *conn) change(ctx context.Context, apply func(context.Context) (journal.Entry, error)) error {
	ctx, cancel := deadline(ctx)
	defer cancel()
	if s.journal == nil {
		_, err := apply(ctx)
		return err
	}
	return s.journal.Change(ctx, apply)
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
	return s.change(ctx, func(ctx context.Context) (journal.Entry, error) {
		last, err := raiseUIDScript.Run(ctx, s.rdb, []string{uidKey}, uidField, highest).Int()
		if err != nil {
			return journal.Entry{}, failure(err)
		}
		text, err := json.Marshal(last)
		return journal.Entry{Key: uidKey, Field: uidField, Value: text}, err
	})
}

func (s *Store) nextUID(ctx context.Context, min int, make string) (int, error) {
	var uid int
	err := s.change(ctx, func(ctx context.Context) (journal.Entry, error) {
		var err error
		uid, err = nextUIDScript.Run(ctx, s.rdb, []string{uidKey}, uidField, min, make).Int()
		if err != nil {
			return journal.Entry{}, failure(err)
		}
		if uid == 0 {
			return journal.Entry{}, errNoCounter
		}
		text, err := json.Marshal(uid)
		return journal.Entry{Key: uidKey, Field: uidField, Value: text}, err
	})
	if err != nil {
		return 0, err
	}
	return uid, nil
}
