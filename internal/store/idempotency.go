package store

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
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
	// MaxIdempotencyKey bounds the key that a client sends, in bytes.
	MaxIdempotencyKey = 255
	// MaxRetryAge is how long after its first try a request may be tried again: claims live longer.
	MaxRetryAge = 2 * time.Hour
	// retrySlack is taken off from when a retry says it was first sent: clocks and networks are not exact.
	retrySlack = 5 * time.Second
)

// beginScript knows its own claim again: the client may send it twice when a connection dies. A retry (its
// age in ms is ARGV[4]) whose first try this memory may have missed, because it is younger, is not let
// through: embedded state begins empty with each server, and Redis can lose what it had.
var beginScript = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('SETNX', KEYS[2], string.format('%.0f', now))
local was = redis.call('HMGET', KEYS[1], 'claim', 'fp', 'state', 'answer')
if not was[1] then
  if ARGV[4] ~= '0' and now - ARGV[4] < tonumber(redis.call('GET', KEYS[2])) then return {'missed', '', ''} end
  redis.call('HSET', KEYS[1], 'claim', ARGV[1], 'fp', ARGV[2], 'state', 'running')
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  return {'first', '', ''}
end
if was[2] ~= ARGV[2] then return {'other', '', ''} end
if was[3] == 'running' and was[1] == ARGV[1] then return {'first', '', ''} end
return {was[3], was[4] or '', was[1]}`)

var finishScript = redis.NewScript(`
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
if ARGV[1] == 'free' then return redis.call('DEL', KEYS[1]) end
redis.call('HSET', KEYS[1], 'state', ARGV[1], 'answer', ARGV[2])
return redis.call('PEXPIRE', KEYS[1], ARGV[3])`)

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
	keys := []string{at, idempotencySinceKey(o.Tenant)}
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
// out it does nothing. Embedded state keeps the newest 128 MiB of answers; older ones become "too
// large to be kept".
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
	err = finishScript.Run(ctx, s.rdb, []string{at}, state, answer, answerTTL.Milliseconds()).Err()
	if err == nil && s.embedded != nil && state == "done" {
		for _, old := range s.embedded.remember(at, len(answer)) {
			if err = dropAnswerScript.Run(ctx, s.rdb, []string{old}).Err(); err != nil {
				break
			}
		}
	}
	return failure(err)
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
