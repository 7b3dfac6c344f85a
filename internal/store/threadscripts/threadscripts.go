// Package threadscripts has the scripts that Redis runs on threads. A script runs as one step, so two servers that change one
// thread do not undo each other. Each may run twice: the client repeats a call whose answer was lost.
package threadscripts

import (
	"encoding/json"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Touch notes when a thread was active, for lists of its owner and of its tenant, and adds to what it used. A thread without a
// record stays away. KEYS: the records, the activity of the owner's threads, of the tenant's; the usage of the owner's threads,
// the sizes of the owner's threads, of the tenant's. ARGV: the id; the member of the tenant's lists; the time in ms, "" when
// activity stays as it is; the mode; who adds, "" when nothing is added, the number of the batch, execs, their ms; the size,
// "" when it was not measured, and when it was. The mode "new" is that of a thread that was just made: an activity that is
// known stays, and what an earlier thread of the name left goes. It answers with the usage, "" when nothing was added.
var Touch = redis.NewScript(`
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return '' end
if ARGV[4] == 'new' then
  redis.call('ZADD', KEYS[2], 'NX', ARGV[3], ARGV[1])
  redis.call('ZADD', KEYS[3], 'NX', ARGV[3], ARGV[2])
  redis.call('HDEL', KEYS[4], ARGV[1])
  redis.call('ZREM', KEYS[5], ARGV[1])
  redis.call('ZREM', KEYS[6], ARGV[2])
elseif ARGV[3] ~= '' then
  redis.call('ZADD', KEYS[2], ARGV[3], ARGV[1])
  redis.call('ZADD', KEYS[3], ARGV[3], ARGV[2])
end
if ARGV[5] == '' then return '' end
local text = redis.call('HGET', KEYS[4], ARGV[1])
local used = text and cjson.decode(text) or {execs = 0, exec_ms = 0}
local batch = tonumber(ARGV[6])
if batch > 0 and (used.writer ~= ARGV[5] or batch > used.batch) then
  used.execs = used.execs + tonumber(ARGV[7])
  used.exec_ms = used.exec_ms + tonumber(ARGV[8])
  used.writer, used.batch = ARGV[5], batch
end
if ARGV[9] ~= '' and tonumber(ARGV[10]) >= (used.measured_at or 0) then
  used.disk_bytes, used.measured_at = tonumber(ARGV[9]), tonumber(ARGV[10])
  redis.call('ZADD', KEYS[5], ARGV[9], ARGV[1])
  redis.call('ZADD', KEYS[6], ARGV[9], ARGV[2])
end
text = cjson.encode(used)
redis.call('HSET', KEYS[4], ARGV[1], text)
return text`)

// Usage reads what Touch keeps of a thread's usage; nil: nothing is known. A text that cannot be read is nothing, so that it
// fails no call that asks for the thread.
func Usage(text string) *sandbox.ThreadUsage {
	var r struct {
		DiskBytes  *int64 `json:"disk_bytes"`
		MeasuredAt int64  `json:"measured_at"` // Unix ms
		Execs      int64  `json:"execs"`
		ExecMillis int64  `json:"exec_ms"`
	}
	if json.Unmarshal([]byte(text), &r) != nil {
		return nil
	}
	u := &sandbox.ThreadUsage{DiskBytes: r.DiskBytes, Execs: r.Execs, ExecSeconds: float64(r.ExecMillis) / 1000}
	if r.MeasuredAt > 0 {
		at := time.UnixMilli(r.MeasuredAt).UTC()
		u.MeasuredAt = &at
	}
	return u
}

// Page answers four lists of the same length: ids, records, times of activity, and what the threads used. What is missing is an
// empty string.
var Page = redis.NewScript(`
local ids = redis.call('ZRANGEBYLEX', KEYS[1], ARGV[1], '+', 'LIMIT', 0, ARGV[2])
if #ids == 0 then return {{}, {}, {}, {}} end
local records = redis.call('HMGET', KEYS[2], unpack(ids))
local used = redis.call('HMGET', KEYS[4], unpack(ids))
local active = {}
for i = 1, #ids do
  if not records[i] then records[i] = '' end
  if not used[i] then used[i] = '' end
  active[i] = redis.call('ZSCORE', KEYS[3], ids[i]) or ''
end
return {ids, records, active, used}`)
