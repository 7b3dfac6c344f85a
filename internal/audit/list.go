package audit

import (
	"context"
	"encoding/json"
	"regexp"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
)

const (
	// DefaultListed is the length of a page of List when none is asked for.
	DefaultListed = 100
	// MaxListed is the longest page of List.
	MaxListed = 1000
	// maxScanned bounds how many records one call of List looks at.
	maxScanned = 50_000
	// listChunk and maxChunk bound one answer of Redis. Chunks grow while nothing is found.
	listChunk = 500
	maxChunk  = 4000
	// flushTimeout is how long List waits for the newest records.
	flushTimeout = 500 * time.Millisecond
	listTimeout  = 2 * time.Second
)

var streamID = regexp.MustCompile(`^[0-9]{1,20}-[0-9]{1,20}$`)

// timeMillis reads a time of JSON as Unix milliseconds.
type timeMillis int64

func (m *timeMillis) UnmarshalJSON(text []byte) error {
	var t time.Time
	if err := t.UnmarshalJSON(text); err != nil {
		return err
	}
	*m = timeMillis(t.UnixMilli())
	return nil
}

// Flush waits until all that was appended before is durable and in Redis, or ctx ends (Unavailable).
func (l *Log) Flush(ctx context.Context) error {
	if l.ship == nil {
		return sandbox.Errorf(sandbox.Unavailable, "the audit log is not copied to Redis")
	}
	return l.ship.flush(ctx)
}

// Lag is how many records wait to be copied to Redis.
func (l *Log) Lag() uint64 {
	if l.ship == nil {
		return 0
	}
	l.ship.mu.Lock()
	defer l.ship.mu.Unlock()
	// shipped is read first: it never passes appended.
	at := l.ship.shipped
	return l.appended.Load() - at
}

// List gives records of a tenant, of all servers, newest first: those that match every field of f
// that is not empty, from Since on and before Until. A Tenant of "" stands for records that name
// none. next is "" at the end; one call looks at no more than 50,000 records, so a page may be
// shorter than Limit, even empty, and have a next. Records older than the stream keeps are on disk
// only. Invalid: a bad limit or cursor; Unavailable: Redis does not answer.
func (l *Log) List(ctx context.Context, f Filter) (items []Record, next string, err error) {
	if l.o.Redis == nil {
		return nil, "", sandbox.Errorf(sandbox.Unavailable, "the audit log is not copied to Redis")
	}
	if f.Limit == 0 {
		f.Limit = DefaultListed
	}
	if f.Limit < 0 || f.Limit > MaxListed {
		return nil, "", sandbox.Errorf(sandbox.Invalid, "limit %d: use 1 to %d", f.Limit, MaxListed)
	}
	if f.Cursor != "" && !streamID.MatchString(f.Cursor) {
		return nil, "", sandbox.Errorf(sandbox.Invalid, "cursor: use next_cursor of an earlier answer")
	}
	if f.Tenant != "" {
		if err := sandbox.CheckOwnerName("tenant", f.Tenant); err != nil {
			return nil, "", err
		}
	}
	flushed, cancel := context.WithTimeout(ctx, flushTimeout)
	_ = l.Flush(flushed) // what is not there yet is seen the next time
	cancel()
	return l.page(ctx, f)
}

func (l *Log) page(ctx context.Context, f Filter) (items []Record, next string, err error) {
	items = []Record{}
	chunk := int64(listChunk)
	if f == (Filter{Tenant: f.Tenant, Cursor: f.Cursor, Limit: f.Limit}) {
		chunk = int64(f.Limit) + 1
	}
	for cursor, scanned := f.Cursor, 0; ; chunk = min(2*chunk, maxChunk) {
		entries, err := l.entries(ctx, f, cursor, chunk)
		if err != nil {
			return nil, "", err
		}
		for i, e := range entries {
			if scanned++; scanned > maxScanned {
				return items, cursor, nil
			}
			cursor = e.ID
			r, ok := recordOf(e)
			if !ok || !f.matches(r) {
				continue
			}
			if items = append(items, r); len(items) == f.Limit {
				if i == len(entries)-1 && int64(len(entries)) < chunk {
					return items, "", nil
				}
				return items, cursor, nil
			}
		}
		if int64(len(entries)) < chunk {
			return items, "", nil
		}
	}
}

// entries reads a chunk of the stream, newest first, from behind cursor. The id of an entry is never
// earlier than the time of its record, so Since bounds the ids too; Until does not.
func (l *Log) entries(ctx context.Context, f Filter, cursor string, n int64) ([]redis.XMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	from, to := "+", "-"
	if cursor != "" {
		from = "(" + cursor
	}
	if ms := f.Since.UnixMilli(); !f.Since.IsZero() && ms > 0 {
		to = strconv.FormatInt(ms, 10)
	}
	entries, err := l.o.Redis.XRevRangeN(ctx, store.AuditStreamKey(f.Tenant), from, to, n).Result()
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Unavailable, err, "the audit records cannot be read: Redis does not answer")
	}
	return entries, nil
}

func recordOf(e redis.XMessage) (Record, bool) {
	text, ok := e.Values["r"].(string)
	var r Record
	return r, ok && json.Unmarshal([]byte(text), &r) == nil
}

func (f Filter) matches(r Record) bool {
	is := func(want, got string) bool { return want == "" || want == got }
	return is(f.User, r.User) && is(f.Thread, r.Thread) && is(f.Exec, r.Exec) && is(f.Action, r.Action) && is(f.Outcome, r.Outcome) &&
		(f.Tool == "" || r.Action == ActionToolCall && r.Subject == f.Tool) &&
		(f.Since.IsZero() || !r.Time.Before(f.Since)) && (f.Until.IsZero() || r.Time.Before(f.Until))
}
