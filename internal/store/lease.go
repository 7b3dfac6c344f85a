package store

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// leases say which server holds a thread.
type leases struct{ *conn }

// Lease says which replica may create or remove the sandbox of a thread.
type Lease struct {
	// Token is the fencing token: larger than that of every lease of the tenant before it. That holds also
	// after Redis lost its data, as long as its clock was not set back.
	Token int64
	Owner string // the replica
	// Deleting: the owner is removing the sandbox or the thread. From AcquireLease without an error:
	// the caller itself had begun to, before this call.
	Deleting bool
}

// The scripts answer {verdict, owner, token, state}. A token travels as text: Lua's numbers are
// exact up to 2^53 only, which microseconds since 1970 stay below until the year 2255.
var acquireScript = redis.NewScript(`
local owner = redis.call('HGET', KEYS[1], 'owner')
local state = redis.call('HGET', KEYS[1], 'state') or 'own'
if owner and owner ~= ARGV[1] and owner ~= ARGV[3] then
  return {'taken', owner, redis.call('HGET', KEYS[1], 'token'), state}
end
local now = redis.call('TIME')
local token = tonumber(redis.call('GET', KEYS[2]) or '0') + 1
local floor = tonumber(now[1]) * 1000000 + tonumber(now[2])
if token < floor then token = floor end
token = string.format('%.0f', token)
redis.call('SET', KEYS[2], token)
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'token', token, 'state', 'own')
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {'ok', ARGV[1], token, state}`)

// keepScript lengthens a lease that the caller has. ARGV[3] is the new state, or "" for the old one.
var keepScript = redis.NewScript(`
local owner = redis.call('HGET', KEYS[1], 'owner')
if not owner then return {'gone', '', '0', ''} end
local token = redis.call('HGET', KEYS[1], 'token')
local state = redis.call('HGET', KEYS[1], 'state')
if owner ~= ARGV[1] then return {'taken', owner, token, state} end
if ARGV[3] ~= '' then
  state = ARGV[3]
  redis.call('HSET', KEYS[1], 'state', state)
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {'ok', owner, token, state}`)

var releaseScript = redis.NewScript(`
if redis.call('HGET', KEYS[1], 'owner') == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0`)

// AcquireLease takes the thread for a replica, for ttl. The replica that has it already gets it
// again, with a new token and in the state own. When another has it: Conflict, with that lease.
func (s leases) AcquireLease(ctx context.Context, t sandbox.Thread, replica string, ttl time.Duration) (Lease, error) {
	return s.TakeLease(ctx, t, replica, replica, ttl)
}

// TakeLease is AcquireLease that takes the thread also from the replica from, which is known to have
// ended: no server waits for its lease to run out. From another owner it takes nothing.
func (s leases) TakeLease(ctx context.Context, t sandbox.Thread, replica, from string, ttl time.Duration) (Lease, error) {
	if err := checkLease(t, replica, ttl); err != nil {
		return Lease{}, err
	}
	return s.lease(ctx, acquireScript, []string{leaseKey(t), fenceKey(t.Tenant)}, t, replica, ttl.Milliseconds(), from)
}

// Lease returns the lease of a thread as it is. NotFound: there is none.
func (s leases) Lease(ctx context.Context, t sandbox.Thread) (Lease, error) {
	if err := checkThread(t); err != nil {
		return Lease{}, err
	}
	ctx, cancel := deadline(ctx)
	defer cancel()
	got, err := s.rdb.HMGet(ctx, leaseKey(t), "owner", "token", "state").Result()
	if err != nil {
		return Lease{}, failure(err)
	}
	owner, _ := got[0].(string)
	if owner == "" {
		return Lease{}, sandbox.Errorf(sandbox.NotFound, "no replica has a lease of thread %q", t.ID)
	}
	text, _ := got[1].(string)
	token, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return Lease{}, sandbox.Wrap(sandbox.Internal, err, "the lease cannot be read")
	}
	return Lease{Owner: owner, Token: token, Deleting: got[2] == "deleting"}, nil
}

// RenewLease keeps the thread for another ttl. NotFound: the lease ran out and no server has taken it
// (AcquireLease takes it again). Conflict: another replica has it.
func (s leases) RenewLease(ctx context.Context, t sandbox.Thread, replica string, ttl time.Duration) error {
	if err := checkLease(t, replica, ttl); err != nil {
		return err
	}
	_, err := s.lease(ctx, keepScript, []string{leaseKey(t)}, t, replica, ttl.Milliseconds(), "")
	return err
}

// leasesAtOnce is how many leases one script renews: Redis does nothing else for a millisecond. scriptsAtOnce
// is how many scripts one round trip runs.
const (
	leasesAtOnce  = 500
	scriptsAtOnce = 20
)

// keepAllScript is keepScript for many leases of one owner. KEYS are the leases; ARGV the owner, the time, and a token for each.
const keepAllScript = `
local verdicts = {}
for i, key in ipairs(KEYS) do
  local held = redis.call('HMGET', key, 'owner', 'token')
  if not held[1] then verdicts[i] = 'gone'
  elseif held[1] ~= ARGV[1] or held[2] ~= ARGV[i + 2] then verdicts[i] = 'taken'
  else
    redis.call('PEXPIRE', key, ARGV[2])
    verdicts[i] = 'ok'
  end
end
return verdicts`

// RenewLeases is RenewLease of many threads, each for the lease with its token. The errors are those of
// single threads, Conflict also when the replica has the thread by another token. It costs a command for
// each tenant, and for each 500 threads of one.
func (s leases) RenewLeases(ctx context.Context, replica string, tokens map[sandbox.Thread]int64, ttl time.Duration) map[sandbox.Thread]error {
	failed := map[sandbox.Thread]error{}
	ofTenant := map[string][]sandbox.Thread{}
	for t := range tokens {
		if err := checkLease(t, replica, ttl); err != nil {
			failed[t] = err
			continue
		}
		ofTenant[t.Tenant] = append(ofTenant[t.Tenant], t)
	}
	var parts [][]sandbox.Thread // keys of one script lie in one slot
	for _, threads := range ofTenant {
		parts = slices.AppendSeq(parts, slices.Chunk(threads, leasesAtOnce))
	}
	for some := range slices.Chunk(parts, scriptsAtOnce) {
		s.keepSome(ctx, replica, some, tokens, ttl, failed)
	}
	return failed
}

// keepSome renews in one round trip.
func (s leases) keepSome(ctx context.Context, replica string, parts [][]sandbox.Thread, tokens map[sandbox.Thread]int64, ttl time.Duration, failed map[sandbox.Thread]error) {
	ctx, cancel := deadline(ctx)
	defer cancel()
	answers := make([]*redis.Cmd, len(parts))
	_, _ = s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { //nolint:errcheck // each command has its error
		for i, threads := range parts {
			keys, args := make([]string, 0, len(threads)), make([]any, 0, 2+len(threads))
			args = append(args, replica, ttl.Milliseconds())
			for _, t := range threads {
				keys, args = append(keys, leaseKey(t)), append(args, tokens[t])
			}
			answers[i] = p.Eval(ctx, keepAllScript, keys, args...)
		}
		return nil
	})
	for i, threads := range parts {
		verdicts, err := answers[i].StringSlice()
		if err = failure(err); err == nil && len(verdicts) != len(threads) {
			err = sandbox.Errorf(sandbox.Internal, "the state store sent an answer of the wrong shape")
		}
		for n, t := range threads {
			switch {
			case err != nil:
				failed[t] = err
			case verdicts[n] == "gone":
				failed[t] = sandbox.Errorf(sandbox.NotFound, "the lease of thread %q ran out", t.ID)
			case verdicts[n] != "ok":
				failed[t] = sandbox.Errorf(sandbox.Conflict, "thread %q is run by another server", t.ID)
			}
		}
	}
}

// MarkDeleting says that the owner removes the thread's sandbox or the thread, and keeps the lease
// for ttl. Errors as of RenewLease.
func (s leases) MarkDeleting(ctx context.Context, t sandbox.Thread, replica string, ttl time.Duration) (Lease, error) {
	if err := checkLease(t, replica, ttl); err != nil {
		return Lease{}, err
	}
	return s.lease(ctx, keepScript, []string{leaseKey(t)}, t, replica, ttl.Milliseconds(), "deleting")
}

// ReleaseLease releases the thread. It is no error when the replica does not have it (any more).
func (s leases) ReleaseLease(ctx context.Context, t sandbox.Thread, replica string) error {
	if err := checkThread(t); err != nil {
		return err
	}
	ctx, cancel := deadline(ctx)
	defer cancel()
	return failure(releaseScript.Run(ctx, s.rdb, []string{leaseKey(t)}, replica).Err())
}

func (s leases) lease(ctx context.Context, script *redis.Script, keys []string, t sandbox.Thread, args ...any) (Lease, error) {
	ctx, cancel := deadline(ctx)
	defer cancel()
	answer, err := script.Run(ctx, s.rdb, keys, args...).StringSlice()
	if err != nil {
		return Lease{}, failure(err)
	}
	if len(answer) != 4 {
		return Lease{}, sandbox.Errorf(sandbox.Internal, "the state store sent an answer of the wrong shape")
	}
	token, err := strconv.ParseInt(answer[2], 10, 64)
	if err != nil {
		return Lease{}, sandbox.Wrap(sandbox.Internal, err, "the lease cannot be read")
	}
	l := Lease{Owner: answer[1], Token: token, Deleting: answer[3] == "deleting"}
	switch {
	case answer[0] == "gone":
		return Lease{}, sandbox.Errorf(sandbox.NotFound, "the lease of thread %q ran out", t.ID)
	case answer[0] == "taken" && l.Deleting:
		return l, sandbox.Errorf(sandbox.Conflict, "thread %q is being removed by another server", t.ID)
	case answer[0] == "taken":
		return l, sandbox.Errorf(sandbox.Conflict, "thread %q is run by another server", t.ID)
	}
	return l, nil
}

func checkLease(t sandbox.Thread, replica string, ttl time.Duration) error {
	if err := checkThread(t); err != nil {
		return err
	}
	if replica == "" || len(replica) > 256 || ttl < time.Millisecond {
		return sandbox.Errorf(sandbox.Internal, "a lease needs a replica and a time")
	}
	return nil
}
