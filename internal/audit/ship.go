package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/skerry-sandbox/skerry/internal/audit/journal"
	"github.com/skerry-sandbox/skerry/internal/audit/record"
	"github.com/skerry-sandbox/skerry/internal/audit/segment"
	"github.com/skerry-sandbox/skerry/internal/platform/retry"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
)

const (
	// A batch goes to Redis in one script per tenant, which keeps Redis busy for a few milliseconds.
	batchRecords = 256
	batchBytes   = 1 << 20
	// linger is how long the shipper lets records gather. Copying one at once would take the processor
	// from the answer that waits for the same record, and commits that others make come for free.
	linger = 20 * time.Millisecond
	// The pause after a failure doubles from minPause to maxPause.
	minPause = 100 * time.Millisecond
	maxPause = 30 * time.Second
	// redisTimeout bounds one command.
	redisTimeout = 5 * time.Second
)

// shipper copies durable records to the tenants' streams, in order and each once. Redis holds how far
// it came, written together with the records, so that neither a crash here nor one there makes a
// second copy. Only durable records are copied: the Seq of a record that a power cut took is used again.
type shipper struct {
	journal *journal.Journal
	log     *slog.Logger
	rdb     redis.UniversalClient
	work    chan struct{} // a token: records were written or made durable
	hurry   chan struct{} // a token: a caller waits in Flush
	stop    context.CancelFunc
	done    chan struct{}

	keep *keeper // what bounds the streams

	// Of the goroutine alone:
	from    segment.Follower
	cursors map[string]uint64 // tenant -> Seq that Redis said it has
	atOpen  uint64            // Seq of the last record when the log was opened
	highest uint64            // no Seq above can have been copied
	failing bool

	mu      sync.Mutex
	shipped uint64        // all records up to this Seq are copied
	moved   chan struct{} // closed and replaced when shipped grows
}

func startShipper(j *journal.Journal, o Options) *shipper {
	ctx, stop := context.WithCancel(context.Background())
	s := &shipper{
		journal: j, log: o.Log, rdb: o.Redis, stop: stop, done: make(chan struct{}),
		work: make(chan struct{}, 1), hurry: make(chan struct{}, 1), moved: make(chan struct{}),
		from:    segment.NewFollower(j.Dir(), j.Cuts(), o.Log),
		cursors: map[string]uint64{}, atOpen: j.Appended(), highest: j.Appended(),
	}
	s.keep = startKeeper(ctx, o)
	go s.run(ctx)
	return s
}

func (s *shipper) wake() { token(s.work) }

func token(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// close copies what is left for at most d, then ends the goroutine.
func (s *shipper) close(d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	if err := s.flush(ctx); err != nil {
		s.log.Info("audit records wait on disk for the next start to copy them to Redis", "error", err)
	}
	s.stop()
	<-s.done
	<-s.keep.done
}

// at is the Seq up to which all records are copied.
func (s *shipper) at() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shipped
}

// flush waits until all that is appended now is copied.
func (s *shipper) flush(ctx context.Context) error {
	target := s.journal.Appended()
	if err := s.journal.Durable(ctx, target); err != nil {
		return err
	}
	token(s.hurry)
	for {
		s.mu.Lock()
		at, moved := s.shipped, s.moved
		s.mu.Unlock()
		if at >= target {
			return nil
		}
		select {
		case <-moved:
		case <-s.done:
			return sandbox.Errorf(sandbox.Unavailable, "the audit log is closed")
		case <-ctx.Done():
			return sandbox.Wrap(sandbox.Unavailable, ctx.Err(), "audit records wait to be copied to Redis")
		}
	}
}

func (s *shipper) advance(to uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if to > s.shipped {
		s.shipped = to
		close(s.moved)
		s.moved = make(chan struct{})
	}
}

func (s *shipper) run(ctx context.Context) {
	defer close(s.done)
	defer s.from.Close()
	positioned, pauses := false, retry.Doubling(minPause, maxPause)
	for ctx.Err() == nil {
		err := error(nil)
		if !positioned {
			err = s.position(ctx)
		}
		if err == nil {
			positioned = true
			err = s.batch(ctx)
		}
		switch {
		case err == nil:
			pauses.Reset()
			s.recovered()
		case ctx.Err() == nil:
			positioned = false
			s.failed(err)
			s.rest(ctx, pauses.NextBackOff())
		}
	}
}

func (s *shipper) failed(err error) {
	if !s.failing {
		s.failing = true
		s.log.Warn("audit records cannot be copied to Redis; they wait on disk", "error", err)
	}
}

func (s *shipper) recovered() {
	if s.failing {
		s.failing = false
		s.log.Info("audit records are copied to Redis again")
	}
}

// rest waits out a pause, or minPause when a caller waits in flush.
func (s *shipper) rest(ctx context.Context, pause time.Duration) {
	if !wait(ctx, minPause, nil) {
		return
	}
	wait(ctx, pause-minPause, s.hurry)
}

// position asks Redis how far this writer came, and goes there. It is done again after a failure:
// Redis may have come back with less than it had.
func (s *shipper) position(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	at, err := s.rdb.Get(ctx, store.AuditWriterKey(s.journal.Writer())).Uint64()
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	at = s.truthful(at)
	if err := s.from.Seek(at + 1); err != nil {
		return err
	}
	s.advance(at)
	return nil
}

// truthful is a cursor that Redis holds, unless it lies behind the end of the log. Then the log lost
// its end (it was cut, or an old copy was restored), and the numbers of the lost records are given
// again: the new ones must not be taken for those.
func (s *shipper) truthful(cursor uint64) uint64 {
	if cursor <= s.highest {
		return cursor
	}
	s.log.Error("the audit log on disk ends before what was copied to Redis: its end was cut or an old copy restored",
		"on_disk", s.highest, "in_redis", cursor)
	return s.highest
}

// batch waits for durable records and copies some.
func (s *shipper) batch(ctx context.Context) error {
	limit, err := s.limit(ctx)
	if err != nil {
		return err
	}
	items, err := s.from.Read(limit, batchRecords, batchBytes)
	if err != nil {
		return err
	}
	done := s.from.Next() - 1 // what follows may rewind
	byTenant := map[string][]segment.Line{}
	for _, it := range items {
		byTenant[it.Tenant] = append(byTenant[it.Tenant], it)
	}
	for tenant, list := range byTenant {
		again, err := s.send(ctx, tenant, list)
		if err != nil {
			return err
		}
		if again > 0 {
			return s.from.Seek(again)
		}
	}
	s.highest = max(s.highest, done) // also when the answer of the next line is lost
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	if err := s.rdb.MSet(ctx, s.cursorAt(done, items)...).Err(); err != nil {
		return err
	}
	s.advance(done)
	return nil
}

// cursorAt are the keys that say how far this writer came, and with which head.
func (s *shipper) cursorAt(done uint64, items []segment.Line) []any {
	pairs := []any{store.AuditWriterKey(s.journal.Writer()), done}
	if n := len(items); n > 0 && items[n-1].Seq == done {
		if _, hash, ok := record.SplitHash(items[n-1].Text); ok {
			h := Head{Writer: s.journal.Writer(), Seq: done, Hash: string(hash)}
			pairs = append(pairs, store.AuditHeadKey(s.journal.Writer()), h.String())
		}
	}
	return pairs
}

// limit waits until there are durable records to copy, and returns the Seq of the last one.
func (s *shipper) limit(ctx context.Context) (uint64, error) {
	for s.journal.Appended() < s.from.Next() {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-s.work:
		case <-s.hurry:
		}
	}
	if s.journal.Synced() < s.from.Next()+batchRecords && !wait(ctx, linger, s.hurry) {
		return 0, ctx.Err()
	}
	if err := s.journal.Durable(ctx, s.from.Next()); err != nil {
		return 0, err
	}
	return s.journal.Synced(), nil
}

// beginScript returns a writer's cursor, set back to ARGV[2] when it is larger. A stream of a version that had no lists is
// emptied: the logs on disk fill it again.
var beginScript = redis.NewScript(`
if redis.call('EXISTS', KEYS[2]) == 1 and redis.call('HEXISTS', KEYS[1], 'bytes') == 0 then
  redis.call('DEL', KEYS[1], KEYS[2])
end
local at = redis.call('HGET', KEYS[1], ARGV[1]) or '0'
if tonumber(at) > tonumber(ARGV[2]) then
  at = ARGV[2]
  redis.call('HSET', KEYS[1], ARGV[1], at)
end
return at`)

// sendScript appends the records that the stream does not have, with the entries of their lists, and moves the cursor with
// them. An id is the record's time, or the id before plus one when the stream is past that time already: so an id is never
// earlier than its record. KEYS: stream, cursor, lists. ARGV: writer, the cursor that the shipper knows of, then Seq, ms,
// line, hashes and "number of a list,…" of each record. It answers the cursor, one below ARGV[2]: records were lost; and how
// many records the stream has, and bytes.
var sendScript = redis.NewScript(keyOfEntry + `
local at = redis.call('HGET', KEYS[2], ARGV[1]) or '0'
if tonumber(at) < tonumber(ARGV[2]) then return {at, 0, 0} end
local last = redis.call('HGET', KEYS[2], 'id')
if not last then
  local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
  last = newest[1] and newest[1][1] or '` + fmt.Sprint(streamEpoch) + `-0'
end
local ms, n = string.match(last, '^(%d+)%-(%d+)$')
ms, n = tonumber(ms), tonumber(n)
local late, bytes, failed = 0, 0, nil
for i = 3, #ARGV, 5 do
  if tonumber(ARGV[i]) > tonumber(at) then
    local time = tonumber(ARGV[i + 1])
    if time > ms then ms, n = time, 0 else n = n + 1 end
    if n >= ` + fmt.Sprint(perMilli) + ` then ms, n = ms + 1, 0 end
    local id = string.format('%.0f-%.0f', ms, n)
    local r = redis.pcall('XADD', KEYS[1], id, 'r', ARGV[i + 2])
    if type(r) == 'table' and r.err then failed = r break end
    local k, entry = (ms - ` + fmt.Sprint(streamEpoch) + `) * ` + fmt.Sprint(perMilli) + ` + n, ''
    for _ = 1, 7 do
      entry = string.char(k % 256) .. entry
      k = math.floor(k / 256)
    end
    entry = entry .. ARGV[i + 3]
    for list in string.gmatch(ARGV[i + 4], '%d+') do
      list = KEYS[tonumber(list)]
      local before = redis.call('LINDEX', list, -1)
      if before and key(before) >= key(entry) then
        redis.call('DEL', list) -- of a stream that was lost
      end
      redis.call('RPUSH', list, entry)
    end
    at, last = ARGV[i], id
    bytes = bytes + #ARGV[i + 2]
    if ms - time > late then late = ms - time end
  end
end
redis.call('HSET', KEYS[2], ARGV[1], at, 'id', last)
local total = redis.call('HINCRBY', KEYS[2], 'bytes', bytes)
if late > tonumber(redis.call('HGET', KEYS[2], 'late') or '0') then
  redis.call('HSET', KEYS[2], 'late', string.format('%.0f', late))
end
if failed then return redis.error_reply(failed.err) end
return {at, redis.call('XLEN', KEYS[1]), total}`)

// send copies one tenant's records. again > 0: Redis lost records that it had, and copying must go
// on from there.
func (s *shipper) send(ctx context.Context, tenant string, list []segment.Line) (again uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	stream, cursor := store.AuditStreamKey(tenant), store.AuditCursorKey(tenant)
	at, known := s.cursors[tenant]
	if !known {
		if err := s.rdb.SAdd(ctx, store.AuditTenantsKey, tenant).Err(); err != nil {
			return 0, err
		}
		// Once in the life of this log and before anything of it is copied: from then on a cursor
		// may rightly be larger.
		at, err = cursorOf(beginScript.Run(ctx, s.rdb, []string{cursor, stream}, s.journal.Writer(), s.atOpen))
		if err != nil {
			return 0, err
		}
		s.cursors[tenant] = at
	}
	args := sendArgs{keys: []string{stream, cursor}, args: []any{s.journal.Writer(), at}, lists: map[string]int{}}
	for _, it := range list {
		if it.Seq > at {
			args.add(it)
		}
	}
	if len(args.args) == 2 {
		return 0, nil
	}
	answer, err := sendScript.Run(ctx, s.rdb, args.keys, args.args...).Slice()
	if err != nil {
		return 0, err
	}
	got, length, bytes, err := sent(answer)
	if err != nil {
		return 0, err
	}
	s.cursors[tenant] = got
	if got < at {
		s.log.Warn("Redis lost audit records; they are copied again", "tenant", tenant, "from", got+1, "to", at)
		return got + 1, nil
	}
	return 0, s.keep.full(ctx, tenant, length, bytes)
}

// sendArgs are the arguments of sendScript.
type sendArgs struct {
	keys  []string
	args  []any
	lists map[string]int
}

func (a *sendArgs) add(it segment.Line) {
	r := it.Indexed
	var numbers []byte
	for _, key := range indexKeys(r) {
		n, ok := a.lists[key]
		if !ok {
			a.keys = append(a.keys, key)
			n = len(a.keys)
			a.lists[key] = n
		}
		numbers = append(strconv.AppendInt(numbers, int64(n), 10), ',')
	}
	a.args = append(a.args, it.Seq, int64(it.Time), it.Text, printBytes(printsOf(r)), numbers)
}

func sent(answer []any) (at uint64, length, bytes int64, err error) {
	if len(answer) == 3 {
		text, _ := answer[0].(string)
		length, _ = answer[1].(int64)
		bytes, _ = answer[2].(int64)
		if at, err = strconv.ParseUint(text, 10, 64); err == nil {
			return at, length, bytes, nil
		}
	}
	return 0, 0, 0, fmt.Errorf("audit cursor: %.100v", answer)
}

func cursorOf(c *redis.Cmd) (uint64, error) {
	text, err := c.Text()
	if err != nil {
		return 0, err
	}
	at, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("audit cursor: %w", err)
	}
	return at, nil
}
