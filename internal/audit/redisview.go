package audit

import (
	"context"
	"encoding/hex"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/skerry-sandbox/skerry/internal/audit/record"
	"github.com/skerry-sandbox/skerry/internal/audit/summary"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
)

// In Redis a tenant has a stream of its records. For each value of a searchable field there is a list of
// entries of 15 bytes, oldest first. An entry says which record, and has short hashes of its other fields. A
// query reads the shortest list that fits, skips entries by their hashes, and reads the records that are
// left. Lists, because Redis sets aside 4 KiB for each stream, however few entries it has, and most threads
// have few.

// entryBytes is the length of an entry: 7 bytes of the id (streamKey), then user and thread and tool with 2 bytes each,
// action and outcome with 1.
const entryBytes = 15

// streamEpoch is 2024-01-01 in Unix ms. An id of the stream is a number of 53 bits, which a script can compute with: ms since
// then, and 12 bits for those of one ms.
const (
	streamEpoch = 1704067200000
	perMilli    = 4096
	maxKey      = 1 << 53
)

// Chunks of an answer of Redis: they grow while nothing is found.
const (
	listChunk = 500
	maxChunk  = 16_000
	// lineChunk bounds an answer with whole records.
	lineChunk = 2000
)

// redisView is the view that servers share.
type redisView struct {
	rdb  redis.UniversalClient
	ship *shipper
}

var streamID = regexp.MustCompile(`^[0-9]{1,20}-[0-9]{1,20}$`)

func (v *redisView) cursor(text string) bool {
	ms, n, _ := strings.Cut(text, "-")
	_, err1 := strconv.ParseUint(ms, 10, 64)
	_, err2 := strconv.ParseUint(n, 10, 64)
	return streamID.MatchString(text) && err1 == nil && err2 == nil // Redis takes no larger number
}

func (v *redisView) flush(ctx context.Context) error { return v.ship.flush(ctx) }

// streamKey is an id of the stream as a number, and the other way round.
func streamKey(id string) uint64 {
	ms, n, _ := strings.Cut(id, "-")
	a, _ := strconv.ParseUint(ms, 10, 64)
	b, _ := strconv.ParseUint(n, 10, 64)
	if a < streamEpoch {
		return 0
	}
	return min(a-streamEpoch, maxKey/perMilli)*perMilli + min(b, perMilli-1) // a client may send any number
}

func idOf(key uint64) string {
	return strconv.FormatUint(key/perMilli+streamEpoch, 10) + "-" + strconv.FormatUint(key%perMilli, 10)
}

// printBytes are the hashes of an entry.
func printBytes(p prints) []byte {
	return []byte{byte(p.user), byte(p.user >> 8), byte(p.thread), byte(p.thread >> 8), byte(p.tool), byte(p.tool >> 8), byte(p.action), byte(p.outcome)}
}

// indexKeys are the lists that a record is in.
func indexKeys(r record.Indexed) (keys []string) {
	add := func(field, value string) {
		if value != "" {
			keys = append(keys, indexKey(r.Tenant, field, value))
		}
	}
	add("user", r.User)
	add("thread", r.Thread)
	add("action", r.Action)
	add("outcome", r.Outcome)
	if r.Action == ActionToolCall {
		add("tool", r.Subject)
	}
	if r.Exec != "" {
		add("exec", execSecond(r.Exec))
	}
	return keys
}

func indexKey(tenant, field, value string) string {
	return store.AuditIndexKey(tenant, field, strconv.FormatUint(long(value), 36))
}

// execSecond stands for all execs that began within a second, as their ids say: a list for each exec would take more memory
// than its records.
func execSecond(exec string) string {
	if len(exec) == 36 && exec[14] == '7' {
		if raw, err := hex.DecodeString(strings.ReplaceAll(exec[:13], "-", "")); err == nil && len(raw) == 6 {
			ms := uint64(raw[0])<<40 | uint64(raw[1])<<32 | uint64(raw[2])<<24 | uint64(raw[3])<<16 | uint64(raw[4])<<8 | uint64(raw[5])
			return strconv.FormatUint(ms/1000, 36)
		}
	}
	return exec
}

// listsOf are the lists that a query may take.
func listsOf(f Filter) (keys []string) {
	for _, c := range []struct{ field, value string }{{"exec", f.Exec}, {"thread", f.Thread}, {"tool", f.Tool}, {"user", f.User}, {"outcome", f.Outcome}, {"action", f.Action}} {
		if c.value == "" {
			continue
		}
		if c.field == "exec" {
			c.value = execSecond(c.value)
		}
		keys = append(keys, indexKey(f.Tenant, c.field, c.value))
	}
	return keys
}

// entryWant says which hashes an entry must have. 0 stands for any.
type entryWant struct {
	mask, want [entryBytes - 7]byte
}

func newEntryWant(f Filter) (w entryWant) {
	p := prints{user: short(f.User), thread: short(f.Thread), tool: short(f.Tool), action: short(f.Action), outcome: short(f.Outcome)}
	all := printBytes(p)
	for i, asked := range []bool{f.User != "", f.User != "", f.Thread != "", f.Thread != "", f.Tool != "", f.Tool != "", f.Action != "", f.Outcome != ""} {
		if asked {
			w.mask[i], w.want[i] = 0xFF, all[i]
		}
	}
	return w
}

func (w entryWant) fits(entry string) bool {
	for i := range w.mask {
		if entry[7+i]&w.mask[i] != w.want[i] {
			return false
		}
	}
	return true
}

func entryKey(entry string) (key uint64) {
	for i := range 7 {
		key = key<<8 | uint64(entry[i])
	}
	return key
}

// list looks in the best list, or in the stream when f asks for nothing that is indexed.
func (v *redisView) list(ctx context.Context, f Filter) (items []Record, next string, err error) {
	items = []Record{}
	now := time.Now()
	deadline, found := now.Add(listTimeout), now.Add(listTimeout)
	if f.Text != "" {
		found = now.Add(foundTimeout)
	}
	next, err = v.search(ctx, f, deadline, found, func(r Record) (full bool) {
		items = append(items, r)
		return len(items) == f.Limit
	})
	return items, next, err
}

// count reads what list would. A Redis does not count by values, so a summary of very many records is of the newest ones.
func (v *redisView) count(ctx context.Context, f Filter, c *summary.Counter, deadline time.Time) (since int64, err error) {
	f.Limit = DefaultListed // how much is asked for at first
	next, err := v.search(ctx, f, deadline, deadline, func(r Record) (full bool) {
		countRecord(c, r)
		return false
	})
	if err != nil || next == "" {
		return 0, err
	}
	// An id is never earlier than its record: all records from behind it on are counted.
	return int64(streamKey(next)/perMilli) + streamEpoch + 1, nil
}

// search calls keep with the records that match f, newest first, until there is enough, or until the deadline: found is that of
// a search which has kept one. next goes on behind them.
func (v *redisView) search(ctx context.Context, f Filter, deadline, found time.Time, keep func(Record) (full bool)) (next string, err error) {
	q := &redisQuery{redisView: v, selector: newSelector(f), deadline: deadline}
	q.keep = func(r Record) bool {
		q.deadline = found
		return keep(r)
	}
	at := uint64(1) << 53
	if f.Cursor != "" {
		at = streamKey(f.Cursor)
	} else if !f.Until.IsZero() {
		if at, err = q.behind(ctx, f.Until); err != nil {
			return "", err
		}
	}
	if ms := f.Since.UnixMilli(); !f.Since.IsZero() && ms > streamEpoch {
		q.since = uint64(ms-streamEpoch) * perMilli // an id is never earlier than its record
	}
	if lists := listsOf(f); len(lists) > 0 {
		next, err = q.fromList(ctx, lists, at)
	} else {
		next, err = q.fromStream(ctx, at)
	}
	if err != nil {
		return "", away(err)
	}
	return next, nil
}

func away(err error) error {
	if sandbox.KindOf(err) != "" && sandbox.KindOf(err) != sandbox.Internal {
		return err
	}
	return sandbox.Wrap(sandbox.Unavailable, err, "the audit records cannot be read: Redis does not answer")
}

type redisQuery struct {
	*redisView
	selector
	since    uint64
	keep     func(Record) (full bool)
	full     bool
	read     int
	deadline time.Time
}

// behind is a place that no record from before t lies behind. An id may be later than its record: as much later as the stream
// has ever been ahead of a writer that was away.
func (q *redisQuery) behind(ctx context.Context, t time.Time) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	late, err := q.rdb.HGet(ctx, store.AuditCursorKey(q.f.Tenant), "late").Int64()
	if err != nil && !errors.Is(err, redis.Nil) {
		return 0, away(err)
	}
	ms := t.UnixMilli() + late + 1
	if ms <= streamEpoch {
		return 0, nil
	}
	return min(uint64(ms-streamEpoch)*perMilli, 1<<53), nil
}

// enough reports whether the answer is whole, or took long enough.
func (q *redisQuery) enough() bool {
	return q.full || q.read >= maxScanned || time.Now().After(q.deadline)
}

// fromStream reads the stream backwards from before the record at.
func (q *redisQuery) fromStream(ctx context.Context, at uint64) (next string, err error) {
	chunk := int64(lineChunk)
	if q.f.Text == "" {
		chunk = int64(q.f.Limit) + 1
	}
	for {
		entries, err := q.entries(ctx, at, chunk)
		if err != nil {
			return "", err
		}
		for i, e := range entries {
			q.read++
			at = streamKey(e.ID)
			if text, ok := e.Values["r"].(string); ok {
				if r, ok := q.record([]byte(text)); ok {
					q.full = q.keep(r)
				}
			}
			if last := i == len(entries)-1 && int64(len(entries)) < chunk; !last && q.enough() {
				return idOf(at), nil
			}
		}
		if int64(len(entries)) < chunk {
			return "", nil
		}
		chunk = min(2*chunk, lineChunk)
	}
}

func (q *redisQuery) entries(ctx context.Context, before uint64, n int64) ([]redis.XMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	return q.rdb.XRevRangeN(ctx, store.AuditStreamKey(q.f.Tenant), "("+idOf(before), idOf(q.since), n).Result()
}

// pageScript returns up to ARGV[2] entries of a list, the next ones before the number ARGV[1].
var pageScript = redis.NewScript(keyOfEntry + `
local low, high = 0, redis.call('LLEN', KEYS[1])
local before = tonumber(ARGV[1])
while low < high do
  local mid = math.floor((low + high) / 2)
  if key(redis.call('LINDEX', KEYS[1], mid)) < before then low = mid + 1 else high = mid end
end
if low == 0 then return {} end
return redis.call('LRANGE', KEYS[1], math.max(0, low - tonumber(ARGV[2])), low - 1)`)

// keyOfEntry is the number of an entry, for scripts.
const keyOfEntry = `
local function key(e)
  local a, b, c, d, f, g, h = string.byte(e, 1, 7)
  return ((((((a * 256 + b) * 256 + c) * 256 + d) * 256 + f) * 256 + g) * 256) + h
end
`

// fromList reads the shortest of the lists backwards.
func (q *redisQuery) fromList(ctx context.Context, lists []string, at uint64) (next string, err error) {
	list, err := q.shortest(ctx, lists)
	if err != nil || list == "" {
		return "", err
	}
	want := newEntryWant(q.f)
	chunk := q.f.Limit + 1
	for entries := 0; entries < maxPrints; chunk = min(4*chunk, maxChunk) {
		page, err := q.page(ctx, list, at, chunk)
		if err != nil {
			return "", err
		}
		entries += len(page)
		end := len(page) < chunk
		var keys []uint64
		for i, e := range slices.Backward(page) {
			if len(e) != entryBytes {
				continue
			}
			if at = entryKey(e); at < q.since {
				end, page = true, nil // so is all before
			} else if want.fits(e) {
				keys = append(keys, at)
			}
			if page != nil && i > 0 && len(keys) < listChunk {
				continue
			}
			rest, err := q.take(ctx, keys)
			if err != nil {
				return "", err
			}
			last := end && (page == nil || i == 0)
			switch {
			case rest > 0:
				return idOf(keys[len(keys)-rest-1]), nil
			case q.enough() && !last:
				return idOf(at), nil
			case last:
				return "", nil
			}
			keys = keys[:0]
		}
		if end {
			return "", nil
		}
	}
	return idOf(at), nil
}

func (q *redisQuery) shortest(ctx context.Context, lists []string) (string, error) {
	if len(lists) == 1 {
		return lists[0], nil
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	p := q.rdb.Pipeline()
	lengths := make([]*redis.IntCmd, len(lists))
	for i, l := range lists {
		lengths[i] = p.LLen(ctx, l)
	}
	if _, err := p.Exec(ctx); err != nil {
		return "", err
	}
	best := 0
	for i, n := range lengths {
		if n.Val() < lengths[best].Val() {
			best = i
		}
	}
	if lengths[best].Val() == 0 {
		return "", nil
	}
	return lists[best], nil
}

func (q *redisQuery) page(ctx context.Context, list string, before uint64, n int) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	return pageScript.Run(ctx, q.rdb, []string{list}, before, n).StringSlice()
}

// take reads records, newest first, and keeps the matching ones. rest is how many it left when the page was
// full.
func (q *redisQuery) take(ctx context.Context, keys []uint64) (rest int, err error) {
	size := max(q.f.Limit, 100)
	if q.f.Text != "" {
		size = listChunk
	}
	for len(keys) > 0 {
		part := keys[:min(size, len(keys))]
		found, err := q.records(ctx, part)
		if err != nil {
			return 0, err
		}
		for i, line := range found {
			q.read++
			if r, ok := q.record([]byte(line)); ok && line != "" {
				if q.full = q.keep(r); q.full {
					return len(keys) - i - 1, nil
				}
			}
		}
		keys = keys[len(part):]
	}
	return 0, nil
}

// records reads lines by their numbers; "" for a line that the stream no longer has.
func (q *redisQuery) records(ctx context.Context, keys []uint64) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	p := q.rdb.Pipeline()
	found := make([]*redis.XMessageSliceCmd, len(keys))
	for i, k := range keys {
		id := idOf(k)
		found[i] = p.XRange(ctx, store.AuditStreamKey(q.f.Tenant), id, id)
	}
	if _, err := p.Exec(ctx); err != nil {
		return nil, err
	}
	lines := make([]string, len(keys))
	for i, c := range found {
		if m := c.Val(); len(m) == 1 {
			lines[i], _ = m[0].Values["r"].(string)
		}
	}
	return lines, nil
}

// followPause is how long a follower waits before it asks Redis again.
const followPause = 250 * time.Millisecond

// follow reads the stream forwards. Ids only grow, so nothing comes behind a place that was passed.
func (v *redisView) follow(ctx context.Context, f Filter, after string, emit func(Record, string) error) error {
	key, sel := store.AuditStreamKey(f.Tenant), newSelector(f)
	if after == "" {
		newest, err := v.rdb.XRevRangeN(ctx, key, "+", "-", 1).Result()
		if err != nil {
			return away(err)
		}
		if after = "0-0"; len(newest) > 0 {
			after = newest[0].ID
		}
	}
	for {
		asked, cancel := context.WithTimeout(ctx, listTimeout)
		entries, err := v.rdb.XRangeN(asked, key, "("+after, "+", followed).Result()
		cancel()
		if err != nil {
			return away(err)
		}
		for _, e := range entries {
			after = e.ID
			text, _ := e.Values["r"].(string)
			if r, ok := sel.record([]byte(text)); ok {
				if err := emit(r, e.ID); err != nil {
					return err
				}
			}
		}
		if len(entries) == 0 && !wait(ctx, followPause, nil) {
			return nil
		}
	}
}
