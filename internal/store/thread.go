package store

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// threadRecords are the threads of owners.
type threadRecords struct{ *conn }

const (
	// DefaultThreads is the length of a page of Threads when none is asked for.
	DefaultThreads = 100
	// MaxThreads is the longest page of Threads.
	MaxThreads = 1000
	// threadsAtOnce is how many records one round trip reads, threadsScanned how many one call of
	// Threads looks at.
	threadsAtOnce  = 500
	threadsScanned = 10_000
)

func threadPlace(t sandbox.Thread) place {
	return place{key: threadsKey(t.Owner), field: t.ID, index: threadIndexKey(t.Owner)}
}

// ChangeThread changes what is remembered of a thread, and returns it. change is given it as it is; with found false
// there is nothing but the thread's name. It may be called again when another change was faster; its error ends the
// call. The change is durable.
func (s threadRecords) ChangeThread(ctx context.Context, t sandbox.Thread, change func(info *sandbox.ThreadInfo, found bool) error) (info sandbox.ThreadInfo, err error) {
	if err := checkThread(t); err != nil {
		return sandbox.ThreadInfo{}, err
	}
	err = s.changeRecord(ctx, threadPlace(t), func(before string) (any, error) {
		info = sandbox.ThreadInfo{}
		if before != "" {
			if info, err = threadInfo(before, ""); err != nil {
				return nil, err
			}
		}
		info.Thread = t
		return &info, change(&info, before != "")
	})
	return info, err
}

// Thread returns what is remembered of a thread, or NotFound.
func (s threadRecords) Thread(ctx context.Context, t sandbox.Thread) (sandbox.ThreadInfo, error) {
	if err := checkThread(t); err != nil {
		return sandbox.ThreadInfo{}, err
	}
	ctx, cancel := deadline(ctx)
	defer cancel()
	var record, touched *redis.StringCmd
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		record = p.HGet(ctx, threadsKey(t.Owner), t.ID)
		touched = p.HGet(ctx, touchedKey(t.Owner), t.ID)
		return nil
	})
	switch {
	case isNil(record.Err()):
		return sandbox.ThreadInfo{}, sandbox.Errorf(sandbox.NotFound, "there is no thread %q", t.ID)
	case err != nil && !isNil(err):
		return sandbox.ThreadInfo{}, failure(err)
	}
	return threadInfo(record.Val(), touched.Val())
}

// DeleteThread forgets a thread. A missing one is no error. It is durable. The thread's
// sandbox record and lease stay.
func (s threadRecords) DeleteThread(ctx context.Context, t sandbox.Thread) error {
	if err := checkThread(t); err != nil {
		return err
	}
	if err := s.remove(ctx, threadPlace(t)); err != nil {
		return err
	}
	ctx, cancel := deadline(ctx)
	defer cancel()
	return failure(s.rdb.HDel(ctx, touchedKey(t.Owner), t.ID).Err())
}

var touchScript = redis.NewScript(`
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
return redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])`)

// TouchThread notes that the thread was active at a time. It is cheap, and forgotten by a restart in
// embedded mode. A thread that is not there stays away.
func (s threadRecords) TouchThread(ctx context.Context, t sandbox.Thread, at time.Time) error {
	if err := checkThread(t); err != nil {
		return err
	}
	ctx, cancel := deadline(ctx)
	defer cancel()
	return failure(touchScript.Run(ctx, s.rdb, []string{threadsKey(t.Owner), touchedKey(t.Owner)}, t.ID, at.UnixMilli()).Err())
}

// threadsScript answers three lists of the same length: ids, records, times of activity. What is
// missing is an empty string.
var threadsScript = redis.NewScript(`
local ids = redis.call('ZRANGEBYLEX', KEYS[1], ARGV[1], '+', 'LIMIT', 0, ARGV[2])
if #ids == 0 then return {{}, {}, {}} end
local records = redis.call('HMGET', KEYS[2], unpack(ids))
local touched = redis.call('HMGET', KEYS[3], unpack(ids))
for i = 1, #ids do
  if not records[i] then records[i] = '' end
  if not touched[i] then touched[i] = '' end
end
return {ids, records, touched}`)

// Threads lists an owner's threads sorted by id, of those only the ones that carry all of labels.
// limit is 0 for DefaultThreads, at most MaxThreads. cursor is "" or the next of the call before;
// next is "" at the end. One call looks at no more than 10,000 threads: a page may be shorter than
// limit, even empty, and have a next.
func (s threadRecords) Threads(ctx context.Context, o sandbox.Owner, labels map[string]string, limit int, cursor string) (items []sandbox.ThreadInfo, next string, err error) {
	if err := checkOwner(o); err != nil {
		return nil, "", err
	}
	if limit == 0 {
		limit = DefaultThreads
	}
	if limit < 0 || limit > MaxThreads {
		return nil, "", sandbox.Errorf(sandbox.Invalid, "limit %d: use 1 to %d", limit, MaxThreads)
	}
	if cursor != "" && sandbox.CheckThreadID(cursor) != nil {
		return nil, "", sandbox.Errorf(sandbox.Invalid, "cursor: use next_cursor of an earlier answer")
	}
	items = []sandbox.ThreadInfo{}
	for scanned := 0; scanned < threadsScanned; {
		count := threadsAtOnce
		if len(labels) == 0 { // what is read is what is shown
			count = min(count, limit-len(items))
		}
		page, last, more, err := s.threadsPage(ctx, o, cursor, count)
		if err != nil {
			return nil, "", err
		}
		for _, info := range page {
			if !hasLabels(info.Labels, labels) {
				continue
			}
			if items = append(items, info); len(items) == limit {
				if info.ID == last && !more {
					return items, "", nil
				}
				return items, info.ID, nil
			}
		}
		if !more {
			return items, "", nil
		}
		cursor = last
		scanned += count
	}
	return items, cursor, nil
}

// threadsPage reads count threads after cursor. last is the id that the page ends with.
func (s threadRecords) threadsPage(ctx context.Context, o sandbox.Owner, cursor string, count int) (page []sandbox.ThreadInfo, last string, more bool, err error) {
	ctx, cancel := deadline(ctx)
	defer cancel()
	from := "-"
	if cursor != "" {
		from = "(" + cursor
	}
	lists, err := threadsScript.Run(ctx, s.rdb, []string{threadIndexKey(o), threadsKey(o), touchedKey(o)}, from, count+1).Slice()
	if err != nil {
		return nil, "", false, failure(err)
	}
	var cols [3][]string
	for i := range cols {
		if cols[i], err = stringList(lists, i); err != nil {
			return nil, "", false, err
		}
	}
	n := min(len(cols[0]), count)
	for i := range n {
		if cols[1][i] == "" {
			continue // deleted between two commands of a client that knows no script
		}
		info, err := threadInfo(cols[1][i], cols[2][i])
		if err != nil {
			return nil, "", false, err
		}
		page = append(page, info)
	}
	if n > 0 {
		last = cols[0][n-1]
	}
	return page, last, len(cols[0]) > n, nil
}

func stringList(lists []any, i int) ([]string, error) {
	if i >= len(lists) {
		return nil, sandbox.Errorf(sandbox.Internal, "the state store sent an answer of the wrong shape")
	}
	list, ok := lists[i].([]any)
	out := make([]string, 0, len(list))
	for _, v := range list {
		text, isText := v.(string)
		ok = ok && isText
		out = append(out, text)
	}
	if !ok {
		return nil, sandbox.Errorf(sandbox.Internal, "the state store sent an answer of the wrong shape")
	}
	return out, nil
}

func threadInfo(record, touched string) (sandbox.ThreadInfo, error) {
	var info sandbox.ThreadInfo
	if err := json.Unmarshal([]byte(record), &info); err != nil {
		return sandbox.ThreadInfo{}, sandbox.Wrap(sandbox.Internal, err, "the thread's record cannot be read")
	}
	if ms, err := strconv.ParseInt(touched, 10, 64); err == nil {
		if at := time.UnixMilli(ms).UTC(); at.After(info.LastActiveAt) {
			info.LastActiveAt = at
		}
	}
	return info, nil
}

func hasLabels(have, want map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return true
}
