package store

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// PoolCount is what a server has and wants of the sandboxes that wait for threads of one template.
type PoolCount struct {
	Have   int // that wait, or are being made
	Want   int // to make now
	Target int // of all servers together
}

// sharePoolScript writes down how many a server has, and lets it make more. A server has an equal share of the target,
// rounded up, and all together never get more than the target.
var sharePoolScript = redis.NewScript(`
local now = redis.call('TIME')
now = tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000)
local ttl, have, target = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[5])
local servers, others = 1, 0
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  if all[i] ~= ARGV[1] then
    local count, at = string.match(all[i + 1], '^(%d+) (%d+)$')
    if not at or tonumber(at) + ttl < now then
      redis.call('HDEL', KEYS[1], all[i])
    else
      servers = servers + 1
      others = others + tonumber(count)
    end
  end
end
local grant = math.min(tonumber(ARGV[4]), math.ceil(target / servers) - have, target - others - have)
if grant < 0 then grant = 0 end
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f %.0f', have + grant, now))
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return grant`)

// SharePool says how many of a template's sandboxes wait on a server, and returns how many it may make now. What it says
// counts for ttl.
func (s *Store) SharePool(ctx context.Context, template, replica string, c PoolCount, ttl time.Duration) (int, error) {
	if template == "" || replica == "" || c.Have < 0 || c.Want < 0 || ttl < time.Millisecond {
		return 0, sandbox.Errorf(sandbox.Internal, "a pool without a template, a server or a time")
	}
	ctx, cancel := deadline(ctx)
	defer cancel()
	n, err := sharePoolScript.Run(ctx, s.rdb, []string{poolKey(template)}, replica, ttl.Milliseconds(), c.Have, c.Want, c.Target).Int()
	return n, failure(err)
}

// LeavePool takes a server out of the count.
func (s *Store) LeavePool(ctx context.Context, template, replica string) error {
	ctx, cancel := deadline(ctx)
	defer cancel()
	return failure(s.rdb.HDel(ctx, poolKey(template), replica).Err())
}
