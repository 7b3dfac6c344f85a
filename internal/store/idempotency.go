package store

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	// answerTTL is how long an answer is remembered (api.md).
	answerTTL = 24 * time.Hour
	// claimTTL frees a key whose request never finished, because its server died. It is longer than
	// the longest request.
	claimTTL = sandbox.MaxExecTimeout + sandbox.MaxApprovalWait + 10*time.Minute
	// MaxAnswer is the largest answer that is kept. Of a larger one only the fact is: a retry then
	// gets a Conflict that says so, and runs nothing.
	MaxAnswer = 1 << 20
	// answerCost is what an answer counts beside its own length.
	answerCost = 512
	// MaxIdempotencyKey bounds the key that a client sends, in bytes.
	MaxIdempotencyKey = 255
	// MaxRetryAge is how long after its first try a request may be tried again: claims live longer.
	MaxRetryAge = 2 * time.Hour
	// retrySlack is taken off from when a retry says it was first sent: clocks and networks are not exact.
	retrySlack = 5 * time.Second
)

// beginScript knows its own claim again: the client may send it twice when a connection dies. A retry (its
// age in ms is ARGV[4]) whose first try this memory may have missed, because it is younger, is not let
// through: embedded state begins empty with each server, Redis can lose what it had, and old answers make room for
// new ones. KEYS: the request, since when there is a memory for the tenant, and for the user.
var beginScript = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('SETNX', KEYS[2], string.format('%.0f', now))
local was = redis.call('HMGET', KEYS[1], 'claim', 'fp', 'state', 'answer')
if not was[1] then
  local since = math.max(tonumber(redis.call('GET', KEYS[2])), tonumber(redis.call('GET', KEYS[3]) or '0'))
  if ARGV[4] ~= '0' and now - ARGV[4] < since then return {'missed', '', ''} end
  redis.call('HSET', KEYS[1], 'claim', ARGV[1], 'fp', ARGV[2], 'state', 'running')
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  return {'first', '', ''}
end
if was[2] ~= ARGV[2] then return {'other', '', ''} end
if was[3] == 'running' and was[1] == ARGV[1] then return {'first', '', ''} end
return {was[3], was[4] or '', was[1]}`)

// finishScript stores an answer and counts it, for its user and its tenant. When these are too many, of the oldest only
// the fact is kept that there was one, and when those are too many, not even that. KEYS: the request; then, of the user
// and of the tenant, the answers (members USER:HASH:BYTES), their bytes, the facts (members USER:HASH), and since when
// all facts are there. ARGV: state, answer, TTL in ms, member, its bytes; then, of the user and of the tenant, the most
// bytes and the most facts. It returns the names of answers and of facts that must go.
var finishScript = redis.NewScript(`
if redis.call('EXISTS', KEYS[1]) == 0 then return {{}, {}} end
if ARGV[1] == 'free' then
  redis.call('DEL', KEYS[1])
  return {{}, {}}
end
redis.call('HSET', KEYS[1], 'state', ARGV[1], 'answer', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local long_ago = string.format('%.0f', now - ARGV[3])
local answers, facts = {}, {}
local function take(at, member)
  if redis.call('ZREM', KEYS[at], member) == 0 then return false end
  redis.call('DECRBY', KEYS[at + 1], string.match(member, ':(%d+)$'))
  return true
end
local function oldest(list)
  local first = redis.call('ZRANGE', list, 0, 0, 'WITHSCORES')
  return first[1], first[2]
end
for level = 0, 1 do
  local at = 2 + 4 * level
  if redis.call('ZADD', KEYS[at], string.format('%.0f', now), ARGV[4]) == 1 then redis.call('INCRBY', KEYS[at + 1], ARGV[5]) end
  for _, old in ipairs(redis.call('ZRANGEBYSCORE', KEYS[at], '-inf', long_ago, 'LIMIT', 0, 100)) do take(at, old) end
  redis.call('ZREMRANGEBYSCORE', KEYS[at + 2], '-inf', long_ago)
  for _ = 1, 100 do
    local member, score = oldest(KEYS[at])
    if tonumber(redis.call('GET', KEYS[at + 1]) or '0') <= tonumber(ARGV[6 + 2 * level]) or not member or member == ARGV[4] then break end
    local name = string.match(member, '^(.*):%d+$')
    for each = 2, 6, 4 do
      if take(each, member) then redis.call('ZADD', KEYS[each + 2], score, name) end
    end
    answers[#answers + 1] = name
  end
  for _ = 1, 100 do
    if redis.call('ZCARD', KEYS[at + 2]) <= tonumber(ARGV[7 + 2 * level]) then break end
    local name, score = oldest(KEYS[at + 2])
    for each = 2, 6, 4 do redis.call('ZREM', KEYS[each + 2], name) end
    local since = math.max(tonumber(score) + 1, tonumber(redis.call('GET', KEYS[at + 3]) or '0'))
    redis.call('SET', KEYS[at + 3], string.format('%.0f', since))
    facts[#facts + 1] = name
  end
  for i = at, at + 2 do redis.call('PEXPIRE', KEYS[i], ARGV[3]) end
end
redis.call('PEXPIRE', KEYS[5], ARGV[3])
return {answers, facts}`)

var defaultAnswers = answerBounds{userBytes: 64 << 20, userFacts: 20_000, tenantBytes: 256 << 20, tenantFacts: 100_000}

// answerBounds are how much is remembered of answers, and of those whose answer is let go of.
type answerBounds struct {
	userBytes, userFacts, tenantBytes, tenantFacts int64
}

// Begin claims key for a request whose method, path and body have the hash fingerprint. age is 0, or, of a
// retry, how long ago the request was sent first. first: go on and call Finish. Else answer is what the
// first request was answered with. Invalid when that one had another fingerprint. Conflict, with a field
// Idempotency-Key that says which, in three cases: the first request is still running (sandbox.KeyRunning),
// its answer was larger than MaxAnswer (KeyDone), or it may have been done (KeyUnknown). The last means that
// it ended with its server (Options.Alive) or is older than what is remembered. A claim that is never
// finished frees itself after 130 minutes.
func (s *Store) Begin(ctx context.Context, o sandbox.Owner, key, fingerprint string, age time.Duration) (first bool, answer []byte, err error) {
	at, err := idempotencyPlace(o, key)
	if err != nil {
		return false, nil, err
	}
	if age < 0 || age > MaxRetryAge {
		return false, nil, sandbox.Errorf(sandbox.Invalid, "Idempotency-Age: use more than 0 and at most %d seconds", int(MaxRetryAge.Seconds()))
	}
	if age > 0 {
		age += retrySlack
	}
	ctx, cancel := deadline(ctx)
	defer cancel()
	keys := []string{at, idempotencySinceKey(o.Tenant), ownerSinceKey(o)}
	got, err := beginScript.Run(ctx, s.rdb, keys, s.replica+":"+rand.Text(), fingerprint, claimTTL.Milliseconds(), age.Milliseconds()).StringSlice()
	if err != nil {
		return false, nil, failure(err)
	}
	if len(got) != 3 {
		return false, nil, sandbox.Errorf(sandbox.Internal, "the state store sent an answer of the wrong shape")
	}
	switch got[0] {
	case "first":
		return true, nil, nil
	case "done":
		return false, []byte(got[1]), nil
	case "large":
		return false, nil, sandbox.KeyConflict(sandbox.KeyDone,
			"the request with this Idempotency-Key was done before; its answer was too large to be kept")
	case "missed":
		return false, nil, sandbox.KeyConflict(sandbox.KeyUnknown,
			"what is remembered of Idempotency-Keys began after this request was first sent; the request may have been done. Look at its effects, or use another key to do it again")
	case "other":
		return false, nil, sandbox.Errorf(sandbox.Invalid, "this Idempotency-Key was used for another request")
	}
	if replica, _, _ := strings.Cut(got[2], ":"); s.alive != nil && !s.alive(replica) {
		return false, nil, sandbox.KeyConflict(sandbox.KeyUnknown,
			"the server that had the request with this Idempotency-Key ended before it answered; the request may have been done. Look at its effects, or use another key to do it again")
	}
	return false, nil, sandbox.KeyConflict(sandbox.KeyRunning, "the request with this Idempotency-Key is still running")
}

// Finish stores the answer for 24 hours; a nil answer frees the key. After the claim ran
// out it does nothing. The newest 64 MiB of a user's answers are kept, and 256 MiB of a tenant's; embedded state keeps
// the newest 128 MiB of all. Older ones become "too large to be kept". Of those the newest 20,000 of a user are known,
// and 100,000 of a tenant. A retry of an older one is a Conflict (KeyUnknown), as of a memory that was lost.
func (s *Store) Finish(ctx context.Context, o sandbox.Owner, key string, answer []byte) error {
	at, err := idempotencyPlace(o, key)
	if err != nil {
		return err
	}
	state := "done"
	switch {
	case answer == nil:
		state = "free"
	case len(answer) > MaxAnswer:
		state, answer = "large", nil
	}
	ctx, cancel := deadline(ctx)
	defer cancel()
	cost := int64(len(answer)) + answerCost
	member := strings.TrimPrefix(at, idempotencyPrefix(o.Tenant))
	user, tenant := ownerAnswersKey(o), tenantAnswersKey(o.Tenant)
	lists, err := finishScript.Run(ctx, s.rdb,
		[]string{at, user, user + ":bytes", user + ":facts", ownerSinceKey(o), tenant, tenant + ":bytes", tenant + ":facts", idempotencySinceKey(o.Tenant)},
		state, answer, answerTTL.Milliseconds(), fmt.Sprintf("%s:%d", member, cost), cost,
		s.answers.userBytes, s.answers.userFacts, s.answers.tenantBytes, s.answers.tenantFacts).Slice()
	if err == nil {
		err = s.dropAnswers(ctx, o.Tenant, lists)
	}
	if err == nil && s.embedded != nil && state == "done" {
		for _, old := range s.embedded.remember(at, len(answer)) {
			if err = dropAnswerScript.Run(ctx, s.rdb, []string{old}).Err(); err != nil {
				break
			}
		}
	}
	return failure(err)
}

// dropAnswers lets go of what finishScript says.
func (s *Store) dropAnswers(ctx context.Context, tenant string, lists []any) error {
	answers, err := stringList(lists, 0)
	if err != nil {
		return err
	}
	facts, err := stringList(lists, 1)
	if err != nil {
		return err
	}
	for _, name := range answers {
		if err := dropAnswerScript.Run(ctx, s.rdb, []string{idempotencyPrefix(tenant) + name}).Err(); err != nil {
			return err
		}
	}
	for _, name := range facts {
		if err := s.rdb.Del(ctx, idempotencyPrefix(tenant)+name).Err(); err != nil {
			return err
		}
	}
	return nil
}

// dropAnswerScript marks an answer as too large to be kept: a retry still runs nothing.
var dropAnswerScript = redis.NewScript(`
if redis.call('HGET', KEYS[1], 'state') ~= 'done' then return 0 end
redis.call('HSET', KEYS[1], 'state', 'large')
return redis.call('HDEL', KEYS[1], 'answer')`)

func idempotencyPlace(o sandbox.Owner, key string) (string, error) {
	if err := checkOwner(o); err != nil {
		return "", err
	}
	if key == "" || len(key) > MaxIdempotencyKey {
		return "", sandbox.Errorf(sandbox.Invalid, "Idempotency-Key: use 1 to %d bytes", MaxIdempotencyKey)
	}
	sum := sha256.Sum256([]byte(key))
	return idempotencyKey(o, hex.EncodeToString(sum[:])), nil
}
