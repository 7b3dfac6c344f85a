package audit

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/skerry-sandbox/skerry/internal/audit/record"
	"github.com/skerry-sandbox/skerry/internal/store"
)

// DefaultKept is how many records of a tenant Redis keeps.
const DefaultKept = 1_000_000

// Keep bounds what Redis has of each tenant: the oldest records go first, by whichever bound comes first. 0 is no bound, but
// for Records: DefaultKept.
type Keep struct {
	Records int64
	Bytes   int64 // of the records; what Redis needs for them is about a fifth more
	Age     time.Duration
}

const (
	// keepEvery is how often all streams are looked at.
	keepEvery = time.Minute
	// keepSlack is how far a stream may grow beyond its bound before it is looked at.
	keepSlack = 256
	// keepChunk is how many records are removed at once: Redis is busy with them for some milliseconds.
	keepChunk = 256
)

// keeper removes old records from Redis. Every server has one; they do not get into each other's way.
type keeper struct {
	log  *slog.Logger
	rdb  redis.UniversalClient
	keep Keep
	done chan struct{}
}

func startKeeper(ctx context.Context, o Options) *keeper {
	k := &keeper{log: o.Log, rdb: o.Redis, keep: o.Keep, done: make(chan struct{})}
	if k.keep.Records <= 0 {
		k.keep.Records = DefaultKept
	}
	go k.run(ctx)
	return k
}

func (k *keeper) run(ctx context.Context) {
	defer close(k.done)
	for wait(ctx, keepEvery, nil) {
		if err := k.all(ctx); err != nil && ctx.Err() == nil {
			k.log.Debug("old audit records stay in Redis for now", "error", err)
		}
	}
}

func (k *keeper) all(ctx context.Context) error {
	tenants, err := k.rdb.SMembers(ctx, store.AuditTenantsKey).Result()
	if err != nil {
		return err
	}
	for _, tenant := range tenants {
		if err := k.trim(ctx, tenant); err != nil {
			return err
		}
	}
	return nil
}

// full trims a stream that has grown well beyond its bounds.
func (k *keeper) full(ctx context.Context, tenant string, length, bytes int64) error {
	if length <= k.keep.Records+keepSlack && (k.keep.Bytes <= 0 || bytes <= k.keep.Bytes+k.keep.Bytes/16) {
		return nil
	}
	return k.trim(ctx, tenant)
}

// trimScript removes the records up to ARGV[2] and their entries, if ARGV[1] is still the oldest one. KEYS: stream, cursor,
// lists. ARGV: first id, number and id of the last one, the id behind it, bytes.
var trimScript = redis.NewScript(keyOfEntry + `
local oldest = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)
if not oldest[1] or oldest[1][1] ~= ARGV[1] then return 0 end
local last = tonumber(ARGV[2])
for i = 3, #KEYS do
  while true do
    local e = redis.call('LINDEX', KEYS[i], 0)
    if not e or key(e) > last then break end
    redis.call('LPOP', KEYS[i])
  end
end
redis.call('HINCRBY', KEYS[2], 'bytes', -tonumber(ARGV[4]))
return redis.call('XTRIM', KEYS[1], 'MINID', ARGV[3])`)

// trim removes what lies outside of the bounds.
func (k *keeper) trim(ctx context.Context, tenant string) error {
	stream, cursor := store.AuditStreamKey(tenant), store.AuditCursorKey(tenant)
	for ctx.Err() == nil {
		p := k.rdb.Pipeline()
		length := p.XLen(ctx, stream)
		bytes := p.HGet(ctx, cursor, "bytes")
		oldest := p.XRangeN(ctx, stream, "-", "+", keepChunk)
		if _, err := p.Exec(ctx); err != nil && err != redis.Nil { //nolint:errorlint // it is this one, or one of the network
			return err
		}
		size, _ := strconv.ParseInt(bytes.Val(), 10, 64)
		out, freed := k.beyond(oldest.Val(), length.Val(), size)
		if len(out) == 0 {
			return nil
		}
		keys := []string{stream, cursor}
		for _, e := range out {
			text, _ := e.Values["r"].(string)
			if r, ok := record.ParseIndexed([]byte(text)); ok {
				keys = append(keys, indexKeys(r)...)
			}
		}
		slices.Sort(keys[2:])
		keys = append(keys[:2], slices.Compact(keys[2:])...)
		last := streamKey(out[len(out)-1].ID)
		if err := trimScript.Run(ctx, k.rdb, keys, out[0].ID, last, idOf(last+1), freed).Err(); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// beyond returns those of the oldest records that are to go.
func (k *keeper) beyond(oldest []redis.XMessage, length, bytes int64) (out []redis.XMessage, freed int64) {
	deadline := time.Now().Add(-k.keep.Age).UnixMilli()
	for _, e := range oldest {
		ms := int64(streamKey(e.ID)/perMilli) + streamEpoch
		if length-int64(len(out)) <= k.keep.Records && (k.keep.Bytes <= 0 || bytes-freed <= k.keep.Bytes) && (k.keep.Age <= 0 || ms >= deadline) {
			break
		}
		text, _ := e.Values["r"].(string)
		freed += int64(len(text))
		out = append(out, e)
	}
	return out, freed
}
