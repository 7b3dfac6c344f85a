package store

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// packStreams say which server has the stream of which tool pack.
type packStreams struct{ *conn }

// packStreamsKept is how long the records stay when no server reads them: all have ended then.
const packStreamsKept = 10 * time.Minute

// PackStream is the record of one stream.
type PackStream struct {
	Replica string `json:"replica"` // that has it
	sandbox.PackStream
}

// packPlace is where the record of a stream lies. The skills of threads lie apart, by the server that has the thread: no
// other one reads them.
func packPlace(s sandbox.PackStream) place {
	if s.Channel == "" {
		return place{key: packStreamsKey, field: s.ID + ":" + s.Tenant}
	}
	return place{key: skillStreamsKey(s.Home), field: s.ID + ":" + s.Tenant + ":" + s.Thread.User + ":" + s.Thread.ID + ":" + s.Channel}
}

// The scripts answer {verdict, the record that is in the way}. A server whose lease is older than its time is gone.
// KEYS: streams, their version, leases. ARGV: field, record, replica, a replica that has ended, ms of a lease, instance,
// identity, id and tenant of a pack that is no skill's.
var claimPackScript = redis.NewScript(`
local now = redis.call('TIME')
now = tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000)
local function lives(replica)
  if replica == ARGV[4] then return false end
  local at = redis.call('HGET', KEYS[3], replica)
  return at and tonumber(at) + tonumber(ARGV[5]) >= now
end
local verdict = {'ok', ''}
if ARGV[8] ~= '' then
  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    local id, tenant = string.match(field, '^([^:]*):(.*)$')
    if id == ARGV[8] and tenant ~= ARGV[9] and (tenant == '' or ARGV[9] == '') then
      local text = redis.call('HGET', KEYS[1], field)
      local other = cjson.decode(text)['replica']
      if other ~= ARGV[3] and lives(other) then return {'audience', text} end
    end
  end
end
local text = redis.call('HGET', KEYS[1], ARGV[1])
if text then
  local was = cjson.decode(text)
  if was['replica'] == ARGV[3] then return {'ok', ''} end
  local again = was['instance'] and was['instance'] == ARGV[6] and was['identity'] == ARGV[7]
  if lives(was['replica']) then
    if not was['draining'] and not again then return {'taken', text} end
    verdict[2] = text
  end
end
redis.call('HSET', KEYS[3], ARGV[3], string.format('%.0f', now))
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('INCR', KEYS[2])
redis.call('PEXPIRE', KEYS[1], ARGV[10])
return verdict`)

// putPackScript writes a record that no other server has. KEYS: streams, their version. ARGV: field, record, replica, ms.
var putPackScript = redis.NewScript(`
local text = redis.call('HGET', KEYS[1], ARGV[1])
if text == ARGV[2] then return {'ok', ''} end
if text and cjson.decode(text)['replica'] ~= ARGV[3] then return {'taken', text} end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('INCR', KEYS[2])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return {'ok', ''}`)

// removePackScript removes the record of a replica. KEYS: streams, their version. ARGV: field, replica.
var removePackScript = redis.NewScript(`
local text = redis.call('HGET', KEYS[1], ARGV[1])
if not text or cjson.decode(text)['replica'] ~= ARGV[2] then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('INCR', KEYS[2])
return 1`)

// readPacksScript renews a server's lease, and reads what has changed. KEYS: leases, epoch, streams, their version, skills of
// the server's threads, their version. ARGV: replica, an epoch if there is none, that of the reader, its versions, ms.
var readPacksScript = redis.NewScript(`
local now = redis.call('TIME')
now = tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000)
redis.call('SETNX', KEYS[2], ARGV[2])
local epoch = redis.call('GET', KEYS[2])
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', now))
local answer = {epoch, string.format('%.0f', now), redis.call('HGETALL', KEYS[1])}
for i = 0, 1 do
  local version = redis.call('GET', KEYS[4 + 2 * i]) or '0'
  local records = {}
  if epoch ~= ARGV[3] or version ~= ARGV[4 + i] then records = redis.call('HVALS', KEYS[3 + 2 * i]) end
  answer[4 + 2 * i], answer[5 + 2 * i] = version, records
end
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[6]) end
return answer`)

// packStreamsLifetime is packStreamsKept as scripts take it.
func packStreamsLifetime() int64 { return packStreamsKept.Milliseconds() }

// ClaimPack takes the name of a pack for a server whose lease lasts for ttl. gone is a server that is known to have
// ended, or "". A stream may be taken over when it is stopping, or when it belongs to the same run of the same program: then
// from is the server that had it. Conflict: another server has the name, and other is its record.
func (s packStreams) ClaimPack(ctx context.Context, p PackStream, gone string, ttl time.Duration) (from string, other PackStream, err error) {
	id, tenant := p.ID, p.Tenant
	if p.Channel != "" {
		id, tenant = "", ""
	}
	at := packPlace(p.PackStream)
	verdict, other, err := s.packScript(ctx, claimPackScript, []string{at.key, at.key + versionSuffix, packLeasesKey}, at.field, p,
		p.Replica, gone, ttl.Milliseconds(), p.Instance, p.Identity, id, tenant, packStreamsLifetime())
	switch {
	case err != nil:
		return "", other, err
	case verdict == "audience":
		return "", other, sandbox.Errorf(sandbox.Conflict, "the name %q is taken by a pack of other tenants", p.ID)
	case verdict != "ok":
		return "", other, sandbox.Errorf(sandbox.Conflict, "the pack %q is connected already, to another server: %s provides it since %s, from %s",
			p.ID, other.Identity, other.Since.UTC().Format(time.RFC3339), other.Source)
	}
	return other.Replica, PackStream{}, nil
}

// PutPack writes down a stream again that a server has. Conflict: another server has it by now.
func (s packStreams) PutPack(ctx context.Context, p PackStream) error {
	at := packPlace(p.PackStream)
	verdict, _, err := s.packScript(ctx, putPackScript, []string{at.key, at.key + versionSuffix}, at.field, p, p.Replica, packStreamsLifetime())
	if err == nil && verdict != "ok" {
		err = sandbox.Errorf(sandbox.Conflict, "the pack %q is connected to another server", p.ID)
	}
	return err
}

// RemovePack removes a server's record of a stream. One of another server stays.
func (s packStreams) RemovePack(ctx context.Context, p PackStream) error {
	ctx, cancel := deadline(ctx)
	defer cancel()
	at := packPlace(p.PackStream)
	return failure(removePackScript.Run(ctx, s.rdb, []string{at.key, at.key + versionSuffix}, at.field, p.Replica).Err())
}

func (s packStreams) packScript(ctx context.Context, script *redis.Script, keys []string, field string, p PackStream, args ...any) (verdict string, other PackStream, err error) {
	text, err := textOf(p)
	if err != nil {
		return "", other, err
	}
	ctx, cancel := deadline(ctx)
	defer cancel()
	answer, err := script.Run(ctx, s.rdb, keys, append([]any{field, text}, args...)...).StringSlice()
	if err != nil {
		return "", other, failure(err)
	}
	if len(answer) != 2 {
		return "", other, errPackAnswer
	}
	if answer[1] != "" {
		other, err = readPackStream(answer[1])
	}
	return answer[0], other, err
}

var errPackAnswer = sandbox.Errorf(sandbox.Internal, "the state store sent an answer of the wrong shape")

func readPackStream(text string) (p PackStream, err error) {
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return p, sandbox.Wrap(sandbox.Internal, err, "the record of a pack cannot be read")
	}
	return p, nil
}

// PackView is what a server has read of the streams of all servers.
type PackView struct {
	// Epoch is another one after Redis has lost its data.
	Epoch string
	// Silent has the servers with a lease, and for how long each has said nothing.
	Silent map[string]time.Duration
	// Streams are those of packs, and of skills of the reader's threads.
	Streams []PackStream

	versions [2]string
	parts    [2][]PackStream
}

// ReadPacks renews a server's lease, and reads the streams. was is what the server read before; epoch becomes that of Redis
// when it has none.
func (s packStreams) ReadPacks(ctx context.Context, replica, epoch string, was PackView) (PackView, error) {
	ctx, cancel := deadline(ctx)
	defer cancel()
	skills := skillStreamsKey(replica)
	keys := []string{packLeasesKey, packEpochKey, packStreamsKey, packStreamsKey + versionSuffix, skills, skills + versionSuffix}
	answer, err := readPacksScript.Run(ctx, s.rdb, keys, replica, epoch, was.Epoch, was.versions[0], was.versions[1], packStreamsLifetime()).Slice()
	if err != nil {
		return was, failure(err)
	}
	now := PackView{Silent: map[string]time.Duration{}}
	if len(answer) != 7 {
		return was, errPackAnswer
	}
	now.Epoch, _ = answer[0].(string)
	leases := texts(answer[2])
	at, err := strconv.ParseInt(texts(answer[1:2])[0], 10, 64)
	if err != nil || len(leases)%2 != 0 {
		return was, errPackAnswer
	}
	for i := 0; i < len(leases); i += 2 {
		said, _ := strconv.ParseInt(leases[i+1], 10, 64)
		now.Silent[leases[i]] = time.Duration(at-said) * time.Millisecond
	}
	for i := range now.parts {
		now.versions[i], _ = answer[3+2*i].(string)
		if now.parts[i] = was.parts[i]; now.Epoch != was.Epoch || now.versions[i] != was.versions[i] {
			now.parts[i] = nil
			for _, text := range texts(answer[4+2*i]) {
				p, err := readPackStream(text)
				if err != nil {
					return was, err
				}
				now.parts[i] = append(now.parts[i], p)
			}
		}
		now.Streams = append(now.Streams, now.parts[i]...)
	}
	return now, nil
}

// texts are the strings of a list in an answer.
func texts(list any) []string {
	all, _ := list.([]any)
	out := make([]string, len(all))
	for i, v := range all {
		out[i], _ = v.(string)
	}
	return out
}

// LeavePacks ends a server's lease: its streams are gone from then on.
func (s packStreams) LeavePacks(ctx context.Context, replica string) error {
	ctx, cancel := deadline(ctx)
	defer cancel()
	return failure(s.rdb.HDel(ctx, packLeasesKey, replica).Err())
}
